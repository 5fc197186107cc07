"""Recover what a crash left, and hold the result to everything that was promised."""

from __future__ import annotations

import random
import re
from typing import Final

from flintmq.core.errors import FlintError
from flintmq.core.io.paths import ends_path
from flintmq.core.kernel.ports import DispatchRequest, FlushStatus, QueueReader
from flintmq.core.log.epochs import epochs_path
from flintmq.core.record.java_hash import index_key_hash
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES
from flintmq.core.record.record import HEAD_V4_BYTES, MAGIC_BLANK, decode_records
from flintmq.core.record.sys_flag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flintmq.core.recovery.repair import LOST_TOPIC
from flintmq.core.store.message_store import MessageStore
from flintmq.dispatchers.consume_queue.consume_queue import ConsumeQueue
from flintmq.dispatchers.index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from flintmq.dispatchers.index.index_service import IndexService
from flintmq.testing.clock import ManualClock
from flintmq.testing.journaled_files import Image
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.store import IMMEDIATE, message, start_store
from flintmq.tests.support.crash_run import ROOT, ChangeSpec, CrashFailure, CrashRun, stepped

_HEAD: Final = re.compile(rb"\d{20} \d+")
_BLANK: Final = MAGIC_BLANK.to_bytes(4, "big")
_FILLER: Final = UNIT.pack(0, FILLER_SIZE, 0)
_FOR_EVER_MS: Final = 2**63 - 1


class UndetectableError(Exception):
    """A record that nobody was promised has lost a part of its head, and its format cannot tell: no checksum covers it."""


def expect(condition: object, promise: str, seen: object = "") -> None:
    """Raise CrashFailure unless the condition holds."""
    if not condition:
        raise CrashFailure(f"{promise}; seen: {seen}")


class Check:
    """One crash state of a run.

    Args:
        run: what was done before the crash.
        image: what the crash left.
        number: operations done.
        power_cut: whether the machine stopped, not only the process.
        survivors: what must be there, by place; computed from the run by default.
        boot: the boot of the crash; the run's by default.
    """

    def __init__(
        self,
        run: CrashRun,
        image: Image,
        number: int,
        *,
        power_cut: bool,
        survivors: dict[int, DispatchRequest] | None = None,
        boot: str = "",
        change: ChangeSpec = lambda spec: spec,
    ) -> None:
        self._run = run
        self._image = image
        self._number = number
        self._boot = (boot or run.disk.boot) + (" cut" if power_cut else "")
        self._change = change
        self.survivors = run.survivors(number, power_cut=power_cut) if survivors is None else survivors
        self.rng = random.Random(number)
        self._partial = False

    def run(self, *, goes_on: bool = True, journal: bool = False) -> SimulatedDisk:
        """Recover, look, stop; again, and nothing may have changed; then write. Return the disk of the first recovery."""
        disk = SimulatedDisk(self._image, boot=self._boot, journal=journal)
        store = self._open(disk)
        self.look(store)
        self._close(store)
        first = disk.image()
        self._look_at_quarantine(first, store.commit_log.max_offset_bytes)
        disk2 = SimulatedDisk(first, boot=self._boot, journal=False)
        again = self._open(disk2)
        expect(again.started_clean, "a recovered store is a clean one")
        if goes_on:
            self._close(again)
            second = disk2.image()
            different = _difference(first, second)
            # A log whose last file was cut away ends with a BLANK; the next start ends it before that, in a new epoch.
            # What is noted of the store's ends has the epochs in it, and where the log of a stop ended.
            changed = set(different) - {str(epochs_path(ROOT)), str(ends_path(ROOT))}
            expect(not changed, "recovery happens once", different)
            store = self._open(SimulatedDisk(second, boot=self._boot, journal=False))
            self.go_on(store)
            self._close(store)
        else:
            self._close(again)
        return disk

    def _open(self, disk: SimulatedDisk) -> MessageStore:
        clock = ManualClock(self._run.clock.now_ms() + 60_000)
        try:
            return start_store(self._change(stepped(self._run.config, IMMEDIATE, disk=disk, clock=clock)))
        except (FlintError, OSError) as error:
            raise CrashFailure(f"a recovery never fails; seen: {error!r}") from error

    @staticmethod
    def _close(store: MessageStore) -> None:
        store.close()

    # what was promised

    def look(self, store: MessageStore) -> None:
        """Log, queues, index and reads."""
        log = store.commit_log
        found = list(log.requests(log.min_offset_bytes, log.max_offset_bytes))
        records = {request.commit_log_offset_bytes: request for request in found if request.topic != LOST_TOPIC}
        for at, request in self.survivors.items():
            expect(at in records, "what was acknowledged is there", (at, request.topic, request.queue_offset))
            expect(records[at] == request, "what was acknowledged is unchanged", (at, request, records[at]))
        raw = self._run.raw
        for at in records:
            request = records[at]
            piece = log.slice(at, request.message_size_bytes)
            seen = bytes(piece) if piece is not None else b""
            if seen not in raw.get(at, ()):
                if at not in self.survivors and any(is_torn_copy(seen, put) for put in raw.get(at, ())):
                    raise UndetectableError(f"{at}: the record's head has no checksum")
                expect(False, "the log holds what was put, unchanged", (at, seen, raw.get(at)))
        given_up = max((minimum for at, minimum in self._run.deleted if at <= self._number), default=0)
        self._partial = log.min_offset_bytes < given_up
        if self._partial:
            # Files that were given up, and could not be deleted, are back; queues and index may have forgotten them.
            records = {at: request for at, request in records.items() if at >= given_up}
        self._look_at_queues(store, records)
        self._look_at_index(store, records)

    def _look_at_queues(self, store: MessageStore, records: dict[int, DispatchRequest]) -> None:
        model: dict[tuple[str, int], tuple[int, list[bytes]]] = {}
        for request in records.values():
            if request.sys_flag & TRANSACTION_PREPARED:
                continue
            key = (request.topic, request.queue_id)
            first, units = model.setdefault(key, (request.queue_offset, []))
            gap = request.queue_offset - first - len(units)
            expect(gap >= 0, "a queue offset has one message", (key, request.queue_offset, first + len(units)))
            units += [_FILLER] * gap
            units.append(UNIT.pack(request.commit_log_offset_bytes, request.message_size_bytes, request.tags_code))
        for request in self.survivors.values():
            if not request.sys_flag & TRANSACTION_PREPARED:
                first, units = model[(request.topic, request.queue_id)]
                unit = units[request.queue_offset - first]
                expect(
                    UNIT.unpack(unit)[0] == request.commit_log_offset_bytes,
                    "what was acknowledged keeps its queue offset",
                    (request, UNIT.unpack(unit)),
                )
        minimum = store.commit_log.min_offset_bytes
        for key, queue in store.consume_queues.queues.items():
            base, raw = self._stored_units(queue)
            first, units = model.pop(key, (queue.max_queue_offset, []))
            for at in range(0, 0 if self._partial else max(0, first - base) * UNIT_BYTES, UNIT_BYTES):
                physical, size, _tags = UNIT.unpack_from(raw, at)
                gone = physical + size <= minimum or (size == FILLER_SIZE and not physical)
                expect(gone, "a queue speaks of what is in the log", (key, at // UNIT_BYTES + base, physical, size))
            begin = (first - base) * UNIT_BYTES
            wanted = b"".join(units)
            if raw[begin:].rstrip(b"\0") != wanted.rstrip(b"\0") or begin < 0:
                seen = [unit for unit in UNIT.iter_unpack(raw) if any(unit)]
                expect(False, "a queue is what the log would build", (key, first, list(map(UNIT.unpack, units)), seen))
            expect(queue.max_queue_offset == first + len(units), "a queue ends with its log", (key, first, len(units)))
            if units and self._partial:
                continue
            if units:
                expect(
                    queue.min_queue_offset == first, "a queue begins with its log", (key, first, queue.min_queue_offset)
                )
                self._read(store, key, first, units)
        expect(not model, "every message has a queue", list(model))

    def _stored_units(self, queue: QueueReader) -> tuple[int, bytes]:
        """Return the logical offset of the first unit that a queue stores, and what it stores, packed."""
        assert isinstance(queue, ConsumeQueue)
        files = queue.files.files
        return files[0].start // UNIT_BYTES if files else 0, b"".join(bytes(file.view) for file in files)

    def _read(self, store: MessageStore, key: tuple[str, int], first: int, units: list[bytes]) -> None:
        """A consumer is given everything, once, and comes to the end."""
        queue_offset = first
        given: list[int] = []
        while queue_offset < first + len(units):
            result = store.reader.get_message(*key, queue_offset, 32, None)
            expect(result.next_begin_offset > queue_offset, "a read gets on", (key, queue_offset, result.status))
            given += [record.queue_offset for piece in result.slices for record in decode_records(piece)]
            queue_offset = result.next_begin_offset
        wanted = [first + at for at, unit in enumerate(units) if unit != _FILLER]
        expect(given == wanted, "a consumer is given every message once", (key, given, wanted))

    def _look_at_index(self, store: MessageStore, records: dict[int, DispatchRequest]) -> None:
        index = store.index
        assert isinstance(index, IndexService)
        index.flush()
        wanted: list[tuple[int, int]] = []
        keys: dict[int, list[tuple[str, str]]] = {}
        for at, request in records.items():
            if request.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                names = [request.uniq_key, *request.keys.split(" ")]
                keys[at] = [(request.topic, name) for name in names if name]
                wanted += [(index_key_hash(*key), at) for key in keys[at]]
        found: list[tuple[int, int]] = []
        begin = min(records, default=store.commit_log.max_offset_bytes)
        settings = self._run.config.index
        entries_at = HEADER_BYTES + settings.max_hash_slot_num * SLOT_BYTES
        for file in index.files:
            view = file._region.view
            for number in range(1, file.index_count):
                at = entries_at + number * ENTRY_BYTES
                physical = int.from_bytes(view[at + 4 : at + 12], "big", signed=True)
                if physical >= begin:
                    found.append((int.from_bytes(view[at : at + 4], "big", signed=True), physical))
        expect(found == wanted, "the index has every key once", _first_difference(found, wanted))
        if keys:
            at = self.rng.choice(list(keys))
            for topic, key in keys[at]:
                pieces, _time, _offset = store.reader.query_message(topic, key, 64, 0, _FOR_EVER_MS)
                expect(len(pieces) == 1, "a key is found", (topic, key, at, len(pieces)))

    def _look_at_quarantine(self, after: Image, end: int) -> None:
        """What was taken out of the log is kept beside it."""
        kept: list[tuple[int, bytes]] = []
        for path, raw in after.files.items():
            while path.parent.name == "quarantine" and raw:
                head, _, rest = raw.partition(b"\n")
                if not _HEAD.fullmatch(head):
                    break  # a crash came while it was written: the log was not touched yet
                position, size = map(int, head.split())
                kept.append((position, rest[:size]))
                raw = rest[size + 1 :]
        for path, before in self._image.files.items():
            if path.parent.name != "commitlog" or not path.name.isdigit():
                continue
            now = after.files.get(path, b"").ljust(len(before), b"\0")
            if now == before:
                continue
            start = int(path.name)
            taken = {at for at, byte in enumerate(before) if byte and byte != now[at]}
            for position, data in kept:
                begin = position - start
                taken -= {at for at in taken if begin <= at < begin + len(data) and data[at - begin] == before[at]}
            # A BLANK at the end of the log goes with the file behind it: nothing was in it.
            blank = before.find(_BLANK, max(0, min(taken, default=0) - 4)) - 4
            left = {at for at in taken if not (start + at >= end and blank <= at < blank + 8)}
            expect(not left, "what is taken out of the log is kept", (str(path), sorted(left)[:4], len(kept)))

    # afterwards

    def go_on(self, store: MessageStore) -> None:
        """New messages take the next places."""
        for key in sorted(store.consume_queues.queues)[:2] or [("new", 0)]:
            next_offset = store.reader.max_queue_offset(*key)
            end = store.commit_log.wrote_offset_bytes
            put = store.put([message(key[0], key[1], b"after", uniq_key="AFTER")])
            (request,) = put.records
            expect(put.waiter.status is FlushStatus.FLUSHED, "a recovered store takes messages", put.waiter.status)
            expect(request.queue_offset == next_offset, "queue offsets go on", (request.queue_offset, next_offset))
            size = store.config.store.commit_log_file_bytes
            places = (end, -(-end // size) * size)
            expect(request.commit_log_offset_bytes in places, "the log goes on", (request.commit_log_offset_bytes, end))
            while store.dispatch():
                pass
            result = store.reader.get_message(*key, next_offset, 1, None)
            bodies = [record.body for piece in result.slices for record in decode_records(piece)]
            expect(bodies == [b"after"], "a new message is found", (key, next_offset, result.status))
            pieces, _time, _offset = store.reader.query_message(key[0], "AFTER", 64, 0, _FOR_EVER_MS)
            expect(pieces, "a new key is found", key)


def is_torn_copy(seen: bytes, put: bytes) -> bool:
    """Return whether parts of the record's head are zeros: a page was written to disk in mid copy."""
    if len(seen) != len(put):
        return False
    differing = [place for place, (one, other) in enumerate(zip(seen, put, strict=True)) if one != other]
    return bool(differing) and differing[-1] < HEAD_V4_BYTES and not any(seen[place] for place in differing)


def _difference(left: Image, right: Image) -> list[str]:
    return sorted(
        str(path) for path in left.files.keys() | right.files.keys() if left.files.get(path) != right.files.get(path)
    )


def _first_difference(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> object:
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return at, one, other
    return len(left), len(right), left[len(right) :][:3], right[len(left) :][:3]
