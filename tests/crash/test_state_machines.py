"""The store's parts against models a page long: any order of steps, restarts and crashes among them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flintmq.core.broker.log_files import LogFiles
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.record.java_hash import index_key_hash
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT_BYTES
from flintmq.dispatchers.consume_queue.consume_queue_table import ConsumeQueueTable
from flintmq.dispatchers.index.index_service import IndexService
from flintmq.plugins.retention.cleaner import CleanCommitLogService
from flintmq.testing.clock import ManualClock
from flintmq.testing.journaled_files import Image
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.store import BY_HAND, message, start_store
from flintmq.tests.support.crash_run import CONFIG, stepped
from flintmq.tests.support.crash_states import KINDS, CrashPoint
from flintmq.tests.support.effort import examples
from flintmq.tests.support.log_parts import view_of

ROOT = Path("/store")
BOUNDS = settings(max_examples=examples(60), stateful_step_count=30)
DAMAGES = st.sampled_from(("killed", *KINDS))
SEEDS = st.integers(0, 1_000)


def crash(disk: SimulatedDisk, damage: str, seed: int, number: int | None = None) -> Image:
    """What a crash at the end of the journal leaves, or behind so many operations."""
    point = CrashPoint(disk).advance(len(disk.journal) if number is None else number)
    return point.killed() if damage == "killed" else point.power_cut(damage, random.Random(seed))


class CommitLogMachine(RuleBasedStateMachine):
    """Records stay where they were put; a crash takes at most what was not flushed, and nothing out of the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        self.model: dict[int, bytes] = {}
        self.flushed = 0
        self._open()

    def _open(self) -> None:
        self.store = start_store(stepped(CONFIG, BY_HAND, disk=self.disk, clock=self.clock))

    @rule(sizes=st.lists(st.integers(0, 3_000), min_size=1, max_size=4), batch=st.booleans())
    def put(self, sizes: list[int], batch: bool) -> None:
        items = [message("T", size % 2, b"\x01" * size) for size in sizes]
        if batch and sum(sizes) < 7_000:
            put = self.store.put([items])
        else:
            put = self.store.put(list(items))
        for request in put.records:
            at, size = request.commit_log_offset_bytes, request.message_size_bytes
            piece = self.store.commit_log.slice(at, size)
            assert piece is not None
            assert at not in self.model
            self.model[at] = bytes(piece)
        while self.store.dispatch():
            pass

    @rule(everything=st.booleans())
    def flush(self, everything: bool) -> None:
        before = -1
        while before < self.flushed:
            before, self.flushed = self.flushed, self.store.commit_log.flush(0)
            if not everything:
                break

    @rule()
    def flush_queues(self) -> None:
        self.store.services.flusher.flush(0)

    @rule(milliseconds=st.integers(0, 10_000))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self._open()
        self.flushed = self.store.commit_log.flushed_offset_bytes

    @rule(damage=DAMAGES, seed=SEEDS)
    def crash(self, damage: str, seed: int) -> None:
        boot = self.disk.boot if damage == "killed" else f"{self.disk.boot}+"
        self.disk = SimulatedDisk(crash(self.disk, damage, seed), boot=boot)
        self._open()
        found = self._found()
        for at, raw in self.model.items():
            if at + len(raw) <= self.flushed or damage == "killed":
                assert found.get(at) == raw
        self.model = found
        self.flushed = self.store.commit_log.flushed_offset_bytes

    def _found(self) -> dict[int, bytes]:
        log = self.store.commit_log
        found = {}
        for request in log.requests(log.min_offset_bytes, log.max_offset_bytes):
            piece = log.slice(request.commit_log_offset_bytes, request.message_size_bytes)
            assert piece is not None
            if request.topic == "T":
                found[request.commit_log_offset_bytes] = bytes(piece)
        return found

    @invariant()
    def holds_what_was_put(self) -> None:
        assert self._found() == self.model
        assert self.store.commit_log.flushed_offset_bytes <= self.store.commit_log.wrote_offset_bytes


class ConsumeQueueMachine(RuleBasedStateMachine):
    """A queue is the row of its messages, whatever comes twice, is lost, cut or expires."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.units: list[tuple[int, int, int]] = []
        self.minimum = 0
        self.log_end = 0
        self.requests: list[DispatchRequest] = []
        self.table = self._load()

    def _load(self) -> ConsumeQueueTable:
        table = ConsumeQueueTable(self.disk, ROOT / "consumequeue", 200)
        table.load()
        table.recover()
        table.correct_min_offsets(0)
        return table

    def _request(self) -> DispatchRequest:
        request = DispatchRequest("T", 0, self.log_end, 100, -self.log_end, 1, len(self.units), "", "", 0, 0, {})
        self.log_end += 100
        return request

    @rule(count=st.integers(1, 25), again=st.integers(0, 10))
    def put(self, count: int, again: int) -> None:
        new = []
        for _ in range(count):
            new.append(self._request())
            self.units.append((new[-1].commit_log_offset_bytes, 100, new[-1].tags_code))
        self.requests += new
        self.table.dispatch(RecordBatch.of_requests(self.requests[-count - again :]))

    @precondition(lambda self: self.units)
    @rule(count=st.integers(1, 15))
    def lose(self, count: int) -> None:
        """Messages that a damaged log has lost, with one behind them."""
        for _ in range(count):
            self._request()
            self.units.append((0, FILLER_SIZE, 0))
        self.put(1, 0)

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        end = int(self.log_end * share)
        self.table.truncate(end)
        before = len(self.units)
        while self.units and (self.units[-1][0] + 100 > end or self.units[-1][1] == FILLER_SIZE):
            if self.units[-1][1] == FILLER_SIZE and len(self.units) == before:
                break
            self.units.pop()
        self.requests = [r for r in self.requests if r.commit_log_offset_bytes + 100 <= end]
        self.minimum = min(self.minimum, len(self.units))
        if self.table.queues:
            self.table.correct_min_offsets(0)

    @rule()
    def restart(self) -> None:
        self.table.flush(0)
        self.table.close()
        self.table = self._load()

    @rule(seed=SEEDS)
    def cut_the_power_when_all_is_flushed(self, seed: int) -> None:
        self.table.flush(0)
        self.disk = SimulatedDisk(crash(self.disk, "lost", seed))
        self.table = self._load()

    @invariant()
    def holds_its_messages(self) -> None:
        queue = self.table.find("T", 0)
        if queue is None:
            assert not self.units
            return
        assert queue.max_queue_offset == len(self.units)
        assert [queue.unit(at) for at in range(len(self.units))] == self.units
        raw = b"".join(bytes(file.view) for file in queue.files.files)
        assert not raw[len(self.units) * UNIT_BYTES :].strip(b"\0")
        real = [at for at, unit in enumerate(self.units) if unit[1] != FILLER_SIZE]
        for physical in (0, self.log_end // 2, self.log_end):
            wanted = next((at for at in real if self.units[at][0] >= physical), len(self.units))
            assert queue.first_from(lambda at, limit=physical: at < limit) == wanted  # type: ignore[misc]


class IndexMachine(RuleBasedStateMachine):
    """Every key leads to its messages, once each, across files, restarts and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.clock = ManualClock()
        self.records: list[DispatchRequest] = []
        self.index = self._load(clean=True)

    def _load(self, *, clean: bool, same_boot: bool = False) -> IndexService:
        self.checkpoint = StoreCheckpoint(self.disk, ROOT / "checkpoint")
        index = IndexService(self.disk, ROOT / "index", 4, 12, self.checkpoint, self.clock)
        index.load(clean=clean, same_boot=same_boot)
        if not clean:
            self._put_from(index)
        return index

    def _put_from(self, index: IndexService) -> None:
        """Puts the records that the index's files may lack."""
        end = max(index.ends, default=0)
        index.dispatch(RecordBatch.of_requests([r for r in self.records if r.commit_log_offset_bytes >= end]))

    @rule(keys=st.lists(st.sampled_from("abcdefgh"), max_size=3, unique=True), unique=st.booleans())
    def put(self, keys: list[str], unique: bool) -> None:
        number = len(self.records)
        uniq_key = f"U{number}" if unique else ""
        record = DispatchRequest(
            "T", 0, number * 100, 100, 0, self.clock.now_ms(), number, " ".join(keys), uniq_key, 0, 0, {}
        )
        self.records.append(record)
        self.index.dispatch(RecordBatch.of_requests([record]))

    @rule(milliseconds=st.integers(0, 5_000))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)

    @rule()
    def write(self) -> None:
        self.index.build()

    @rule()
    def flush_the_checkpoint(self) -> None:
        self.checkpoint.flush()

    @rule()
    def restart(self) -> None:
        self.index.flush()
        self.index = self._load(clean=True)

    @rule(damage=DAMAGES, seed=SEEDS)
    def crash(self, damage: str, seed: int) -> None:
        self.disk = SimulatedDisk(crash(self.disk, damage, seed))
        self.index = self._load(clean=False, same_boot=damage == "killed")

    @rule(keep=st.floats(0, 1))
    def cut_the_log(self, keep: float) -> None:
        self.index.build()
        self.records = self.records[: int(len(self.records) * keep)]
        count = len(self.index.files)
        self.index.truncate(len(self.records) * 100)
        if len(self.index.files) < count:
            self._put_from(self.index)

    @invariant()
    def finds_every_key_once(self) -> None:
        wanted: dict[int, list[int]] = {}
        for record in self.records:
            for key in filter(None, [record.uniq_key, *record.keys.split(" ")]):
                wanted.setdefault(index_key_hash("T", key), []).append(record.commit_log_offset_bytes)
        for key in ("a", "c", "h", "U0", f"U{len(self.records) - 1}", "none"):
            found = self.index.query("T", key, 1_000, 0, 2**62)[0]
            assert sorted(found) == wanted.get(index_key_hash("T", key), [])


class CheckpointMachine(RuleBasedStateMachine):
    """A checkpoint says what was flushed last, or what was being flushed; never more than it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.flushed = (0, 0, 0)
        self.checkpoint = StoreCheckpoint(self.disk, ROOT / "checkpoint")

    def _times(self) -> tuple[int, int, int]:
        found = self.checkpoint
        return (found.physic_msg_timestamp_ms, found.logics_msg_timestamp_ms, found.index_msg_timestamp_ms)

    @rule(field=st.sampled_from(("physic", "logics", "index")), milliseconds=st.integers(0, 2**40))
    def tell(self, field: str, milliseconds: int) -> None:
        setattr(self.checkpoint, f"{field}_msg_timestamp_ms", milliseconds)

    @rule()
    def flush(self) -> None:
        self.checkpoint.flush()
        self.flushed = self._times()

    @rule(milliseconds=st.integers(0, 2**40))
    def rewind(self, milliseconds: int) -> None:
        before = self.checkpoint.min_timestamp_ms
        self.checkpoint.rewind(milliseconds)
        assert self.checkpoint.min_timestamp_ms <= min(before, milliseconds)
        if milliseconds < before:
            self.flushed = self._times()

    @rule(damage=DAMAGES, seed=SEEDS)
    def crash(self, damage: str, seed: int) -> None:
        self.disk = SimulatedDisk(crash(self.disk, damage, seed))
        self.checkpoint = StoreCheckpoint(self.disk, ROOT / "checkpoint")
        assert self._times() == self.flushed

    @rule(seed=SEEDS, share=st.floats(0, 1))
    def crash_while_flushing(self, seed: int, share: float) -> None:
        begun = len(self.disk.journal)
        before, told = self.flushed, self._times()
        self.checkpoint.flush()
        number = begun + int((len(self.disk.journal) - begun) * share)
        self.disk = SimulatedDisk(crash(self.disk, KINDS[seed % len(KINDS)], seed, number))
        self.checkpoint = StoreCheckpoint(self.disk, ROOT / "checkpoint")
        for found, old, new in zip(self._times(), before, told, strict=True):
            assert found in (old, new)
        self.flushed = self._times()

    @invariant()
    def trusts_three_seconds_less(self) -> None:
        physic, logics, _index = self._times()
        assert self.checkpoint.min_timestamp_ms == max(0, min(physic, logics) - 3_000)


class OffsetsMachine(RuleBasedStateMachine):
    """Consumer offsets come back as they were last written, or as they were being written: never none of both."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.saved: dict[str, Any] = {}
        self.manager = self._manager()

    def _manager(self) -> ConsumerOffsetManager:
        manager = ConsumerOffsetManager(JsonFile(ROOT / "config" / "consumerOffset.json", self.disk))
        manager.load()
        return manager

    def _table(self) -> dict[str, Any]:
        return dict(self.manager.to_wire()["offsetTable"])

    @rule(
        topic=st.sampled_from("AB"), group=st.sampled_from("gh"), queue_id=st.integers(0, 2), offset=st.integers(0, 99)
    )
    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        self.manager.commit(topic, group, queue_id, offset)
        assert self.manager.query(topic, group, queue_id) == offset

    @rule(topic=st.sampled_from("AB"), group=st.sampled_from("gh"))
    def remove(self, topic: str, group: str) -> None:
        self.manager.remove(topic, group)
        assert self.manager.query_all(topic, group) == {}

    @rule()
    def clone(self) -> None:
        wanted = self.manager.query_all("A", "g") or self.manager.query_all("A", "h")
        self.manager.clone("g", "h", "A")
        assert self.manager.query_all("A", "h") == wanted

    @rule()
    def persist(self) -> None:
        if self.manager.persist():
            self.saved = self._table()

    @rule(damage=DAMAGES, seed=SEEDS)
    def crash(self, damage: str, seed: int) -> None:
        self.disk = SimulatedDisk(crash(self.disk, damage, seed))
        self.manager = self._manager()
        assert self._table() == self.saved

    @rule(damage=DAMAGES, seed=SEEDS, share=st.floats(0, 1))
    def crash_while_persisting(self, damage: str, seed: int, share: float) -> None:
        begun = len(self.disk.journal)
        told = self._table()
        before, self.saved = self.saved, told if self.manager.persist() else self.saved
        number = begun + int((len(self.disk.journal) - begun) * share)
        self.disk = SimulatedDisk(crash(self.disk, damage, seed, number))
        self.manager = self._manager()
        assert self._table() in (before, told)
        self.saved = self._table()


class RetentionMachine(RuleBasedStateMachine):
    """Files go oldest first, when all of their messages are older than they are kept for, and never the last."""

    KEPT_MS = 72 * 3_600_000

    @initialize()
    def open(self) -> None:
        self.clock = ManualClock()
        self.store = start_store(stepped(CONFIG, BY_HAND, disk=SimulatedDisk(), clock=self.clock))
        self.cleaner = CleanCommitLogService(LogFiles(self.store, view_of(self.store)))
        self.stored: list[tuple[int, int, int]] = []

    @rule(sizes=st.lists(st.integers(2_000, 7_000), min_size=1, max_size=4), flush=st.booleans())
    def put(self, sizes: list[int], flush: bool) -> None:
        for size in sizes:
            for request in self.store.put([message("T", size % 3, b"\x01" * size)]).records:
                self.stored.append((request.commit_log_offset_bytes, request.queue_id, self.clock.now_ms()))
        while self.store.dispatch():
            pass
        while flush and self.store.watermarks.flushed < self.store.watermarks.wrote:
            self.store.commit_log.flush(0)

    @rule(hours=st.integers(0, 100))
    def wait(self, hours: int) -> None:
        self.clock.advance_ms(hours * 3_600_000)

    @rule()
    def clean(self) -> None:
        flushed = self.store.watermarks.flushed
        self.cleaner.delete_manually()
        self.cleaner.run()
        minimum = self.store.commit_log.min_offset_bytes
        assert minimum <= flushed
        now_ms = self.clock.now_ms()
        assert all(now_ms - stored_ms >= self.KEPT_MS for at, _queue, stored_ms in self.stored if at < minimum)
        self.stored = [entry for entry in self.stored if entry[0] >= minimum]

    @invariant()
    def everything_kept_can_be_read(self) -> None:
        given = 0
        for queue_id in range(3):
            offset = self.store.reader.min_queue_offset("T", queue_id)
            while offset < self.store.reader.max_queue_offset("T", queue_id):
                result = self.store.reader.get_message("T", queue_id, offset, 32, None)
                assert result.next_begin_offset > offset
                given += result.message_count
                offset = result.next_begin_offset
        minimum = self.store.commit_log.min_offset_bytes
        assert given >= sum(at >= minimum for at, _queue, _stored in self.stored)
        assert len(self.store.commit_log.queue.files) >= bool(self.stored)


def _case(machine: type[RuleBasedStateMachine]) -> Any:
    machine.TestCase.settings = BOUNDS
    return machine.TestCase


TestCommitLog = _case(CommitLogMachine)
TestConsumeQueue = _case(ConsumeQueueMachine)
TestIndex = _case(IndexMachine)
TestCheckpoint = _case(CheckpointMachine)
TestConsumerOffsets = _case(OffsetsMachine)
TestRetention = _case(RetentionMachine)
