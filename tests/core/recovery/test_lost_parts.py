"""Any one file or folder of a store, damaged after a stop or a kill, is made again, refused, or told of; never silence."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flintmq
from flintmq import Message
from flintmq.config import load_config
from flintmq.core.errors import StoreError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.recovery.last_stop import boot_path
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.verify import verify
from flintmq.testing.embedded import SETTINGS
from flintmq.tests.support.effort import examples

SIZES = (
    "store.commit_log_file_bytes=8192",
    "store.consume_queue_file_bytes=400",
    "index.max_hash_slot_num=20",
    "index.max_index_num=80",
    "store.preallocate=false",
)
TOPICS = ("Orders", "Bills", "Notes")
GROUPS = ("CG", "Audit")
NOT_STATE = ("lock", "flint/boot", "flint/feed", "abort")
"""What a start makes again whatever was there: nothing of the store's content is in it. And a store without ``flint`` at all
is one that only RocketMQ has used."""

REMEDIES = (
    "Restore",
    "the configured size is",
    "must be",
    "If a disk is not mounted",
    "if a disk is not mounted",
    "move it away",
    "is missing",
    "a checkpoint has",
)
"""What a refusal says is to be done, or what must be there."""


class State(msgspec.Struct, frozen=True):
    """What users see of a store."""

    messages: dict[tuple[str, int], list[bytes]]
    offsets: dict[str, Any]
    topics: set[str]
    groups: set[str]
    ends: dict[tuple[str, int], int]
    """The queue offset of each queue's next message."""


def broker_of(root: Path) -> flintmq.Broker:
    return flintmq.Broker(load_config(None, [*SETTINGS, *SIZES, f"store.path={root}"], {}))


def state_of(broker: flintmq.Broker) -> State:
    def look() -> State:
        state = broker.state
        queues = state.store.consume_queues.queues
        messages = {
            key: [bytes(queue.unit_bytes(at, 1)) for at in range(queue.min_queue_offset, queue.max_queue_offset)]
            for key, queue in queues.items()
            if queue.max_queue_offset and key[0] in (*TOPICS, "SCHEDULE_TOPIC_XXXX")
        }
        offsets = state.offsets.to_wire()["offsetTable"]
        ends = {key: queue.max_queue_offset for key, queue in queues.items()}
        names = {config.topic_name for config in state.topics}
        return State(messages, offsets, names, {config.group_name for config in state.groups}, ends)

    return broker.call(_async(look))


def _async(work: Any) -> Any:
    async def run() -> Any:
        return work()

    return run


def use(broker: flintmq.Broker, count: int, first: int) -> None:
    """Send to all topics, and have groups consume a part."""
    for number in range(first, first + count):
        topic = TOPICS[number % len(TOPICS)]
        level = 18 if number % 7 == 0 else 0
        broker.put([Message(topic, b"%d" % number, keys=f"k{number}", delay_level=level)])

    def consume() -> None:
        state = broker.state
        for group in GROUPS:
            state.groups.find(group)
            for topic in TOPICS:
                state.offsets.commit(topic, group, 0, first // 6 + 1)
        state.offsets.persist()
        for service in state.services():
            persist = getattr(service, "persist", None)
            if persist is not None:
                persist()
        state.topics.persist()
        state.groups.persist()
        state.store.services.flusher.flush(0)
        state.store.noter.after_round(is_thorough=True)

    broker.call(_async(consume))


class Stores(msgspec.Struct, frozen=True):
    """One store as it was left three times, and what was in it the last time."""

    older: Path
    clean: Path
    killed: Path
    state: State


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    folder = tmp_path_factory.mktemp("stores")
    live = folder / "live"
    with broker_of(live) as broker:
        use(broker, 60, 0)
    shutil.copytree(live, folder / "older")
    with broker_of(live) as broker:
        use(broker, 180, 60)
        shutil.copytree(live, folder / "killed")
        state = state_of(broker)
    shutil.copytree(live, folder / "clean")
    return Stores(folder / "older", folder / "clean", folder / "killed", state)


def parts_of(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def damage(root: Path, older: Path, part: str, how: str) -> bool:
    """Damage a file, or all files of a folder; return whether anything is not as it was."""
    path = root / part
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    if how == "removed":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return bool(files)
    if how == "older":
        source = older / part
        if not source.exists():
            return False
        before = {one: one.read_bytes() for one in files}
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(source, path) if source.is_dir() else shutil.copy(source, path)
        after = {one: one.read_bytes() for one in ([path] if path.is_file() else path.rglob("*")) if one.is_file()}
        return before != after
    changed = False
    for one in files:
        raw = one.read_bytes()
        new = bytes(len(raw)) if how == "zeros" else raw[: len(raw) // 2]
        one.write_bytes(new)
        changed = changed or new != raw
    return changed


@contextlib.contextmanager
def told() -> Iterator[list[str]]:
    """Keep what is logged at WARNING and above."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep(logging.WARNING)
    logger = logging.getLogger("flintmq")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def left_killed(root: Path) -> None:
    """Have a copy look as if the machine had been running ever since."""
    boot_path(root).write_text(OS_DISK.incarnation(root))


def check(stores: Stores, root: Path, part: str, how: str, *, killed: bool) -> str:
    """Damage a copy and start it; return which of the allowed outcomes came."""
    shutil.copytree(stores.killed if killed else stores.clean, root)
    if killed:
        left_killed(root)
    if not damage(root, stores.older, part, how):
        return "as it was"
    findings = [found.what for found in verify(StoreFiles(root)).findings if found.where != str(root / "abort")]
    if killed and not (root / "abort").exists():
        findings.append("abort")
    before, refusal = stores.state, ""
    with told() as lines:
        try:
            with broker_of(root) as broker:
                now = state_of(broker)
                alarms = broker.api.alarms.current()
        except StoreError as error:
            refusal = str(error)
    if refusal:
        assert any(word in refusal for word in REMEDIES), refusal
        assert findings, f"{part} {how}: refused ({refusal}), and verify found nothing"
        return "refused"
    for key, end in before.ends.items():
        assert now.ends.get(key, 0) >= end, f"{part} {how}: {key} goes on at {now.ends.get(key, 0)}, and went to {end}"
    lines = [line for line in lines if not line.startswith("recovered after")]
    if now == before:
        if not killed and part not in NOT_STATE and (part, how) != ("flint", "removed"):
            assert findings, f"{part} {how}: made again, and verify found nothing"
        return "as before"
    assert lines, f"{part} {how}: {diff(before, now)}, and nothing was said"
    assert findings, f"{part} {how}: {lines}, and verify found nothing"
    assert any(alarm.id == "store.mended" for alarm in alarms) or "commit log" in " ".join(lines), (part, how, lines)
    return "said"


def diff(before: State, now: State) -> str:
    return "; ".join(
        f"{field}: {str(getattr(before, field))[:100]} became {str(getattr(now, field))[:100]}"
        for field in State.__struct_fields__
        if getattr(before, field) != getattr(now, field)
    )


@given(st.data())
@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_broker_never_loses_data_silently_after_damage_to_a_file_or_folder_of_its_store(
    stores: Stores, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    killed = data.draw(st.booleans(), "killed")
    part = data.draw(st.sampled_from(parts_of(stores.killed if killed else stores.clean)), "part")
    ways = ["zeros", "cut", "removed"]
    if not killed or part.startswith(("commitlog", "consumequeue", "index")):
        ways.append("older")
    how = data.draw(st.sampled_from(ways), "how")
    root = tmp_path_factory.mktemp("damaged") / "store"
    try:
        check(stores, root, part, how, killed=killed)
    finally:
        shutil.rmtree(root.parent)
