"""A restored store is whole, new, and never half made; a damaged backup is told, byte by byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flintmq.core.errors import StoreError, StoreFormatError
from flintmq.core.io import fastjson
from flintmq.core.io.paths import RESTORE_MARK, RESTORE_NOT_FINISHED
from flintmq.core.log.epochs import read_epochs
from flintmq.programs.backup import restore
from flintmq.programs.backup.check import check_backup
from flintmq.programs.backup.manifest import decode_manifest, manifest_path, read_manifest
from flintmq.programs.backup.restore import RestorePlan, restore_backup
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store, opened

from .conftest import FILE_BYTES, SEGMENT_BYTES, EndedError, EndingWriter, Live, verified


def test_the_log_of_a_restored_store_continues_in_a_new_epoch(live: Live) -> None:
    """What comes there now is not what came in the other one: whoever remembers a position behind must notice."""
    live.put(30)
    made = live.back_up()
    root, _ = live.restore()
    theirs, ours = read_epochs(live.root), read_epochs(root)
    assert theirs is not None
    assert ours is not None
    assert ours.store_id == theirs.store_id
    assert ours.entries[:-1] == theirs.entries
    assert (ours.current.start_offset_bytes, ours.current.cause) == (made.manifest.end_offset_bytes, "recovered")
    with opened(root, clock=ManualClock(live.clock.now_ms()), commit_log_file_bytes=FILE_BYTES) as store:
        store.put([message("T", 0, b"new")])
        while store.dispatch():
            pass
        assert store.reader.max_queue_offset("T", 0) == 31
        assert len(store.reader.query_message("T", "k7", 10, 0, 2**62)[0]) == 1


def test_a_restored_store_keeps_its_configured_file_sizes(live: Live) -> None:
    """A store opens with the sizes it was made with only; the command line's count more."""
    live.put(60)
    live.back_up()
    root, _ = live.restore()
    sizes = {path.stat().st_size for path in root.glob("consumequeue/*/*/*")}
    assert sizes == {path.stat().st_size for path in live.root.glob("consumequeue/*/*/*")} == {200}
    assert {path.stat().st_size for path in root.glob("index/*")} == {40 + 16 * 4 + 64 * 20}
    open_store(root, commit_log_file_bytes=FILE_BYTES).close()
    other, _ = live.restore(chosen=frozenset({"store.consume_queue_file_bytes"}))
    assert {path.stat().st_size for path in other.glob("consumequeue/*/*/*")} == {6_000_000}


def test_a_backup_copies_the_consumer_offsets_before_it_copies_the_commit_log(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group never passes over what came meanwhile, and each message has its topic."""
    live.put(10)
    live.commit()
    live.write_topics("T")

    class Meanwhile(EndingWriter):
        def step(self, kind: str, path: Path) -> None:
            if kind == "cut":
                live.put(5, topic="New")
                live.put(5)
                live.commit()
                live.write_topics("T", "New")
            super().step(kind, path)

    made = live.back_up(Meanwhile())
    root, restored = live.restore()
    assert restored.records == 10
    offsets = fastjson.loads((root / "config" / "consumerOffset.json").read_bytes())
    assert offsets["offsetTable"]["T@billing"][0] == 10
    topics = fastjson.loads((root / "config" / "topics.json").read_bytes())
    assert set(topics["topicConfigTable"]) == {"T", "New"}
    assert made.manifest.tables[0].path == "config/consumerOffset.json"


@pytest.mark.parametrize("there", ["file", "folder", "half"])
def test_a_restore_into_a_used_folder_is_refused(live: Live, there: str) -> None:
    """Also what an interrupted restore left; then it says so."""
    live.put(3)
    live.back_up()
    store = live.folder / "there"
    (store / "commitlog").mkdir(parents=True)
    if there == "file":
        (store / "x").touch()
    if there == "half":
        (store / "commitlog" / RESTORE_MARK).touch()
    wanted = RESTORE_NOT_FINISHED if there == "half" else "is not empty"
    with pytest.raises(StoreFormatError, match=wanted):
        restore_backup(RestorePlan(backup=live.target, store=store))


def test_a_restore_interrupted_at_any_step_leaves_no_usable_store(live: Live) -> None:
    """An error leaves nothing behind; a kill leaves what no broker starts on."""
    live.put(30)
    live.commit()
    live.back_up()
    whole = EndingWriter()
    restore_backup(RestorePlan(backup=live.target, store=live.folder / "whole"), writer=whole)
    for end_at in range(len(whole.steps)):
        store = live.folder / "part"
        with pytest.raises(EndedError):
            restore_backup(RestorePlan(backup=live.target, store=store), writer=EndingWriter(end_at))
        assert not store.exists()
    kinds = [step for step in whole.steps if step[0] in ("file", "write", "grow")]
    assert kinds[0] == ("file", RESTORE_MARK)
    assert whole.steps.index(("remove", RESTORE_MARK)) > max(
        at for at, step in enumerate(whole.steps) if step[0] == "write"
    )


def test_a_broker_does_not_start_on_a_store_whose_restore_is_not_finished(live: Live) -> None:
    """The mark is what keeps it."""
    live.put(30)
    live.back_up()
    root, _ = live.restore()
    (root / "commitlog" / RESTORE_MARK).touch()
    for commit_log_file_bytes in (
        FILE_BYTES,
        2 * FILE_BYTES,
    ):  # not another fault either, which an operator would mend first
        with pytest.raises(StoreError, match=RESTORE_NOT_FINISHED):
            open_store(root, commit_log_file_bytes=commit_log_file_bytes)
    (root / "abort").touch()  # as a start leaves that was killed: the mark is no file that a crash has left empty
    with pytest.raises(StoreError, match=RESTORE_NOT_FINISHED):
        open_store(root, commit_log_file_bytes=FILE_BYTES)
    assert [one.what for one in verified(root).findings if RESTORE_MARK in one.where] == [
        f"{RESTORE_NOT_FINISHED}: a start refuses"
    ]


def test_a_broker_start_rebuilds_the_consume_queues_of_a_store_restored_without_consume_queues(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is whole then, and queues are made from it."""
    live.put(30)
    live.put(7, queue_id=2)
    live.back_up()

    def ended(*_args: object, **_named: object) -> None:
        raise EndedError

    monkeypatch.setattr(restore, "rebuild", ended)
    with pytest.raises(EndedError):
        live.restore()
    with opened(live.folder / "restored1", commit_log_file_bytes=FILE_BYTES) as store:
        assert [store.reader.max_queue_offset("T", queue_id) for queue_id in (0, 1, 2)] == [30, 0, 7]


def test_checking_a_backup_reports_the_log_range_that_contains_a_changed_byte(live: Live) -> None:
    """By the digest of its segment; a record's head has no checksum of its own."""
    live.put(60)
    live.back_up()
    path = sorted(live.target.glob("log/*"))[1]
    raw = bytearray(path.read_bytes())
    raw[SEGMENT_BYTES + 17] ^= 4
    path.write_bytes(raw)
    start = FILE_BYTES + SEGMENT_BYTES
    checked = check_backup(live.target)
    assert not checked.is_sound
    assert any(f"commit log {start}..{start + SEGMENT_BYTES}" in found for found in checked.findings)
    with pytest.raises(StoreFormatError, match=rf"nothing was restored: commit log {start}\.\."):
        live.restore()
    assert not (live.folder / "restored1").exists()
    _, restored = live.restore(keep_damage=True)
    assert [one.start_offset_bytes for one in restored.damage] == [start]


@pytest.mark.parametrize("what", ["log gone", "log short", "table gone", "table changed"])
def test_all_missing_files_of_a_backup_are_reported(live: Live, what: str) -> None:
    """All of it at once, not the first only."""
    live.put(60)
    live.commit()
    live.back_up()
    log, table = sorted(live.target.glob("log/*"))[0], next(live.target.glob("tables/*/config/consumerOffset.json"))
    if what == "log gone":
        log.unlink()
    elif what == "log short":
        log.write_bytes(log.read_bytes()[:100])
    elif what == "table gone":
        table.unlink()
    else:
        table.write_bytes(b"{}")
    (found,) = check_backup(live.target).findings
    assert str(log if "log" in what else table) in found
    with pytest.raises(StoreError):
        live.restore()


def test_a_changed_manifest_is_refused(live: Live) -> None:
    """Nor does a table's name lead out of the folder."""
    live.put(30)
    live.commit()
    made = live.back_up()
    path = manifest_path(live.target)
    raw = path.read_bytes()
    assert decode_manifest(raw, path) == made.manifest
    outer = json.loads(raw)
    outer["backup"]["end_offset_bytes"] += 1
    for bad, why in (
        (json.dumps(outer).encode(), "does not match its digest"),
        (raw.replace(b'"format": 1', b'"format": 2'), "of format 2"),
        (raw[:-20], "is damaged"),
        (b"[]", "is damaged"),
        (b"", "is damaged"),
    ):
        path.write_bytes(bad)
        with pytest.raises(StoreFormatError, match=why):
            read_manifest(live.target)
    path.write_bytes(_resealed(raw, lambda backup: backup["tables"][0].update(path="config/../../x")))
    with pytest.raises(StoreFormatError, match="is not a store's table"):
        read_manifest(live.target)
    path.write_bytes(_resealed(raw, lambda backup: backup["log"].pop(0)))
    with pytest.raises(StoreFormatError, match="does not continue"):
        read_manifest(live.target)


def _resealed(raw: bytes, change: object) -> bytes:
    """A manifest that somebody has changed on purpose."""
    import msgspec

    from flintmq.programs.backup.manifest import digest_of

    outer = msgspec.json.decode(raw)
    change(outer["backup"])  # type: ignore[operator]
    inner = msgspec.json.encode(outer["backup"])
    return msgspec.json.encode({"format": 1, "digest": digest_of(inner), "backup": msgspec.Raw(inner)})


def test_a_backup_of_an_empty_store_can_be_restored_but_an_empty_folder_cannot(live: Live) -> None:
    """The first backup of a new broker is one; a folder without any is not."""
    made = live.back_up()
    assert made.manifest.end_offset_bytes == 0
    root, restored = live.restore()
    assert (restored.records, restored.log_end_offset_bytes) == (0, 0)
    with opened(root, commit_log_file_bytes=FILE_BYTES) as store:
        assert store.watermarks.wrote == 0
    shutil.rmtree(live.target)
    live.target.mkdir()
    with pytest.raises(StoreFormatError, match="no backup lies there"):
        live.restore()
