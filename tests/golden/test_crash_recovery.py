"""After a crash FlintMQ finds the end of the log where the real broker found it, and keeps what it cuts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record.record import decode_records
from flintmq.core.recovery.repair import LOST_TOPIC
from flintmq.core.store.message_store import MessageStore
from flintmq.core.store.opened_store import recover
from flintmq.dispatchers.index.index_service import IndexService
from flintmq.testing.store import snapshot

VARIANTS = [
    "kill9",
    "torn-half",
    "torn-size-only",
    "bad-crc",
    "bad-magic",
    "garbage-tail",
    "cq-behind",
    "cq-ahead",
    "no-checkpoint",
    "no-consumequeue",
    "no-index",
    "second-file-bad",
    "no-last-file",
    "middle-bad",
    "last-file-bad",
    "clean-flag-torn",
    "clean-flag-cq-behind",
]
DAMAGED = {"second-file-bad", "middle-bad", "last-file-bad"}
"""Variants with valid records behind the bad one."""


def apply_patch(root: Path, patch: dict[str, Any]) -> None:
    if "delete" in patch:
        path = root / patch["delete"]
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        return
    path, at = root / patch["file"], patch["at"]
    raw = bytearray(path.read_bytes())
    if "hex" in patch:
        data = bytes.fromhex(patch["hex"])
        raw[at : at + len(data)] = data
    elif "zero" in patch:
        raw[at : at + patch["zero"]] = bytes(patch["zero"])
    else:
        raw[at] ^= patch["xor"]
    path.write_bytes(raw)


def crashed(crash: Any, name: str, root: Path) -> tuple[Path, dict[str, Any]]:
    """The store of a variant, and what the real broker recovered it to."""
    variant = next(variant for variant in crash.manifest["variants"] if variant["name"] == name)
    crash.unpack(root)
    for patch in variant["patches"]:
        apply_patch(root, patch)
    return root, variant["recovered"]


def test_every_crashed_store_in_the_golden_data_has_a_recovery_test(crash: Any) -> None:
    """A new variant in the golden data must not go unnoticed."""
    assert [variant["name"] for variant in crash.manifest["variants"]] == VARIANTS


@pytest.mark.parametrize(
    ("name", "compat"), [(name, "strict") for name in VARIANTS] + [(n, "safe") for n in VARIANTS if n not in DAMAGED]
)
def test_a_crashed_store_recovered_by_flintmq_equals_the_store_recovered_by_the_java_broker(
    crash: Any, name: str, compat: str, tmp_path: Path
) -> None:
    """The log end, records, queues, index and checkpoint are compared."""
    root, recovered = crashed(crash, name, tmp_path)
    store = crash.open(root, compat=compat)
    try:
        log = store.commit_log
        assert log.min_offset_bytes == recovered["commitLogMinOffset"]
        assert log.max_offset_bytes == recovered["commitLogMaxOffset"]
        requests = list(log.requests(log.min_offset_bytes, log.max_offset_bytes))
        assert len(requests) == recovered["records"]
        assert requests[-1].commit_log_offset_bytes == recovered["lastRecord"]
        for topic, queues in recovered["queues"].items():
            for queue in queues:
                assert store.reader.min_queue_offset(topic, queue["queueId"]) == queue["minOffset"]
                assert store.reader.max_queue_offset(topic, queue["queueId"]) == queue["maxOffset"]
        for key, units in recovered["consumequeue"].items():
            topic, queue_id = key.split("/")
            found = store.consume_queues.find(topic, int(queue_id))
            assert found is not None
            first, last = found.unit(found.min_queue_offset), found.unit(found.max_queue_offset - 1)
            assert [found.min_queue_offset, *(first or ())] == units["first"]
            if units["entries"] == found.max_queue_offset:
                assert [found.max_queue_offset - 1, *(last or ())] == units["last"]
            else:
                # RocketMQ leaves the units it cut in the file, behind the queue's end; here they become zeros.
                assert units["last"][1] >= recovered["commitLogMaxOffset"]
        store.index.flush()
        assert isinstance(store.index, IndexService)
        found_index = [header(file) for file in store.index.files]
        if name == "clean-flag-torn":
            # RocketMQ keeps the keys of the record that was cut, and leaves out those of the one that takes its place.
            assert found_index[-1][3] == recovered["lastRecord"]
            return
        assert found_index == [
            header_of(entry, repeated=at == 1 and repeats(name)) for at, entry in enumerate(recovered["index"])
        ]
    finally:
        store.close()


def header(file: Any) -> tuple[int, ...]:
    return (
        file.begin_timestamp_ms,
        file.end_timestamp_ms,
        file.begin_physical_offset_bytes,
        file.end_physical_offset_bytes,
        file.hash_slot_count,
        file.index_count,
    )


def header_of(entry: dict[str, Any], *, repeated: bool) -> tuple[int, ...]:
    names = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount")
    values = [entry[name] for name in names]
    values[-1] -= repeated
    return tuple(values)


def repeats(name: str) -> bool:
    """Whether RocketMQ indexed a key twice.

    It keeps the first index file, which ends between the two keys of one record, deletes the second and indexes both keys
    of that record again. Here the one that is there is left out, as in an index built without a crash.
    """
    return name not in ("no-checkpoint", "no-index", "clean-flag-torn", "clean-flag-cq-behind")


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_damage_in_the_middle_of_the_log_loses_only_the_damaged_records(crash: Any, name: str, tmp_path: Path) -> None:
    """The real broker drops every record behind a bad one; here they stay, at their offsets, with their keys."""
    root, recovered = crashed(crash, name, tmp_path / "bad")
    sound = crash.open(crash.unpack(tmp_path / "sound"))
    with_all = {r.commit_log_offset_bytes: r for r in all_requests(sound)}
    end = sound.commit_log.max_offset_bytes
    sound.close()
    before = b"".join(snapshot(root, "commitlog").values())
    store = crash.open(root)
    try:
        assert store.recovered is not None
        assert store.recovered.cut is None
        (hole,) = store.recovered.holes
        assert hole.start_offset_bytes == recovered["commitLogMaxOffset"]
        assert store.commit_log.max_offset_bytes == end
        lost = {at for at in with_all if hole.start_offset_bytes <= at < hole.end_offset_bytes}
        assert lost
        assert hole.quarantine is not None
        assert before[hole.start_offset_bytes :][:64] in hole.quarantine.read_bytes()
        found = {r.commit_log_offset_bytes: r for r in all_requests(store) if r.topic != LOST_TOPIC}
        assert found == {at: request for at, request in with_all.items() if at not in lost}
        for request in found.values():
            queue = store.consume_queues.find(request.topic, request.queue_id)
            assert queue is not None
            unit = queue.unit(request.queue_offset)
            assert unit == (request.commit_log_offset_bytes, request.message_size_bytes, request.tags_code)
            if request.uniq_key:
                keyed, _time, _offset = store.reader.query_message(request.topic, request.uniq_key, 64, 0, 2**63 - 1)
                assert len(keyed) == 1
        for topic, queue_id in store.consume_queues.queues:
            assert read_through(store, topic, queue_id) == sorted(
                r.queue_offset for r in found.values() if (r.topic, r.queue_id) == (topic, queue_id)
            )
    finally:
        store.close()


def all_requests(store: MessageStore) -> list[DispatchRequest]:
    return list(store.commit_log.requests(store.commit_log.min_offset_bytes, store.commit_log.max_offset_bytes))


def read_through(store: MessageStore, topic: str, queue_id: int) -> list[int]:
    """The queue offsets of what a consumer is given that reads all of a queue."""
    found: list[int] = []
    offset = store.reader.min_queue_offset(topic, queue_id)
    while offset < store.reader.max_queue_offset(topic, queue_id):
        result = store.reader.get_message(topic, queue_id, offset, 32, None)
        assert result.next_begin_offset > offset
        found += [record.queue_offset for piece in result.slices for record in decode_records(piece)]
        offset = result.next_begin_offset
    return found


@pytest.mark.parametrize("name", VARIANTS)
def test_bytes_cut_from_the_log_are_kept_in_quarantine(crash: Any, name: str, tmp_path: Path) -> None:
    """Somebody may still save messages from them; the report says whether they are damaged or a torn tail."""
    root, recovered = crashed(crash, name, tmp_path)
    end = recovered["commitLogMaxOffset"]
    before = b"".join(snapshot(root, "commitlog").values())
    store = crash.open(root, compat="strict")
    cut = store.recovered.cut if store.recovered is not None else None
    store.close()
    lost = before[end:]
    if name == "no-last-file":
        assert lost[4:8] == bytes.fromhex("CBD43194")
        assert not lost[8:].strip(b"\0")
        lost = b""  # the BLANK of a file that became the last one: nothing was in it
    if not lost.strip(b"\0"):
        assert cut is None
        assert not (root / "flint/quarantine").exists()
        return
    assert cut is not None
    assert cut.offset_bytes == end
    assert cut.damaged == (name in DAMAGED)
    assert cut.quarantine is not None
    assert cut.quarantine.parent == root / "flint" / "quarantine"
    kept = bytearray(len(lost))
    raw = cut.quarantine.read_bytes()
    while raw:
        head, _, rest = raw.partition(b"\n")
        offset, size = map(int, head.split())
        kept[offset - end : offset - end + size] = rest[:size]
        raw = rest[size + 1 :]
    assert kept == lost


@pytest.mark.parametrize("name", VARIANTS)
def test_the_second_start_after_a_crash_leaves_the_store_files_unchanged(crash: Any, name: str, tmp_path: Path) -> None:
    """A recovered store is a clean one: opened again, no byte of it changes."""
    root, _recovered = crashed(crash, name, tmp_path)
    crash.open(root).close()
    first = snapshot(root)
    store = crash.open(root)
    assert store.started_clean
    store.close()
    assert snapshot(root) == first


@pytest.mark.parametrize("name", [name for name in VARIANTS if not name.startswith("clean-flag")])
def test_crash_recovery_gives_the_same_queues_and_index_as_a_rebuild_from_the_whole_log(
    crash: Any, name: str, tmp_path: Path
) -> None:
    """Queues and index, byte for byte. A unit left behind would later speak of another record than the one it was made for.

    A store that says it was stopped cleanly and was not is outside of this: neither broker looks at queues that are behind.
    """
    root, _recovered = crashed(crash, name, tmp_path)
    crash.open(root).close()
    recovered = snapshot(root, "consumequeue", "index")
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    crash.open(root).close()
    rebuilt = snapshot(root, "consumequeue", "index")
    assert queue_files(rebuilt) == queue_files(recovered)
    assert index_files(rebuilt) == index_files(recovered)


def queue_files(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: raw for name, raw in files.items() if not name.startswith("index")}


def index_files(files: dict[str, bytes]) -> list[bytes]:
    """In order: their names are times."""
    return [raw for name, raw in sorted(files.items()) if name.startswith("index")]


def test_a_starting_broker_zeroes_consume_queue_units_whose_records_are_missing_from_the_log(
    crash: Any, tmp_path: Path
) -> None:
    """The log lost its last record without a crash being noticed; its unit must not be taken for the next record's."""
    root, recovered = crashed(crash, "clean-flag-torn", tmp_path)
    crash.open(root).close()
    for key, entries in recovered["consumequeue"].items():
        raw = b"".join(snapshot(root / "consumequeue" / key).values())
        queue = next(q for q in recovered["queues"][key[:-2]] if str(q["queueId"]) == key[-1])
        assert queue["maxOffset"] <= entries["entries"]
        assert not raw[queue["maxOffset"] * 20 :].strip(b"\0")


def test_recovering_a_crashed_store_without_dispatching_its_records_keeps_the_abort_file(
    crash: Any, tmp_path: Path
) -> None:
    """The dispatchers have not caught up yet, so the next start must recover the store again."""
    root, recovered = crashed(crash, "kill9", tmp_path)
    recover(crash.spec(root)).close()
    assert (root / "abort").exists()
    store = crash.open(root)
    store.index.flush()
    assert [header(file) for file in store.index.files] == [
        header_of(entry, repeated=at == 1) for at, entry in enumerate(recovered["index"])
    ]
    store.close()
