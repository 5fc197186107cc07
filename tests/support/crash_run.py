"""Drive a real store over a simulated disk by a script, without threads, and note what was acknowledged when.

A script is a string, one letter a step; sizes, queues and keys come from the seed::

    p put a message          b put a batch             P put one that fills most of a file
    D put a delayed one      h put a half message      c commit the oldest half message     u put one that no queue sees
    f a round of the flush   C a round of the commit   s a round of the flush with a put in the middle of its sync
    d dispatch               q flush the queues and the checkpoint        Q flush queues with many dirty pages only
    i write what waits for the index                   e delete expired files               t let a second pass
    T let five days pass     r stop and start          k kill the process and start again
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import attrs

from flintmq.config.sections.models import BrokerConfig, IndexSection, StoreSection
from flintmq.core.broker.log_files import LogFiles
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.kernel.ports import (
    DispatchRequest,
    FlushStatus,
    FlushStrategy,
    TransientStorePool,
    requests_of,
)
from flintmq.core.log.commit_log import Appendable
from flintmq.core.store.message_store import MessageStore
from flintmq.core.store.opened_store import StoreSpec
from flintmq.dispatchers.consume_queue.consume_queue_table import make_consume_queues
from flintmq.dispatchers.index.index_service import make_index
from flintmq.plugins.retention.cleaner import CleanCommitLogService
from flintmq.testing.clock import ManualClock
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.store import TAGS_CODES, start_store
from flintmq.tests.support.crash_messages import CrashMessages
from flintmq.tests.support.log_parts import view_of

ROOT: Final = Path("/store")
LETTERS: Final = "pbPDhcufCsdqQietTrk"
_FIVE_DAYS_MS: Final = 5 * 86_400_000
CONFIG: Final = BrokerConfig(
    store=StoreSection(
        path=str(ROOT), commit_log_file_bytes=8192, consume_queue_file_bytes=200, preallocate=False, delete_when="00;12"
    ),
    index=IndexSection(max_hash_slot_num=8, max_index_num=24),
)


class CrashFailure(AssertionError):
    """A promise was broken. Says which, and what was seen."""


@runtime_checkable
class Steps(Protocol):
    """A service whose rounds are called by hand."""

    def run_once(self, now_s: float) -> None: ...


ChangeSpec = Callable[[StoreSpec], StoreSpec]
"""Puts a part of another's into a store."""


def stepped(config: BrokerConfig, strategy: FlushStrategy[Any], **more: Any) -> StoreSpec:
    """Say what a store without threads is opened from: its maker calls the rounds of its services. Queues and index are the
    built-in ones."""
    return StoreSpec(
        config=config,
        strategy=strategy,
        tags_codes=TAGS_CODES,
        make_queues=make_consume_queues,
        make_index=make_index,
        make_id=lambda length_bytes: "a5" * length_bytes,  # the same seed makes the same bytes
        runs=False,
        **more,
    )


def flush_round(store: MessageStore) -> None:
    """Do what the thread that syncs does when it wakes up."""
    service: Any = store.services.flush_service
    part = getattr(service, "flusher", service)
    if isinstance(part, Steps):
        part.run_once(store.clock.monotonic_s())


def commit_round(store: MessageStore) -> None:
    """Do what the thread that commits does, where there is one."""
    service: Any = store.services.flush_service
    if hasattr(service, "flusher") and isinstance(service, Steps):
        service.run_once(store.clock.monotonic_s())


@attrs.frozen
class Kind:
    """What is driven: a flush strategy with what it needs."""

    strategy: FlushStrategy[Any]
    settings: object = None
    pool: Callable[[], TransientStorePool] | None = None
    acknowledges: str = "synced"
    """What an acknowledgement stands for: ``synced``, ``wrote`` or ``appended`` (to the pool)."""


@attrs.frozen
class Mark:
    """The state of the log after a number of operations."""

    number: int
    committed: int
    flushed: int


class CrashRun:
    """One script, run to its end.

    Args:
        kind: the flush strategy that is driven.
        seed: decides about sizes, queues and keys.
        disk: what the store lies on; an empty one by default.
        change: puts a part of another's into the store.
        config: sizes and times.
    """

    def __init__(
        self,
        kind: Kind,
        seed: int,
        *,
        disk: SimulatedDisk | None = None,
        change: ChangeSpec = lambda spec: spec,
        config: BrokerConfig = CONFIG,
    ) -> None:
        self.kind = kind
        self.seed = seed
        self.config = config
        self.disk = disk if disk is not None else SimulatedDisk()
        self.clock = ManualClock()
        self._change = change
        self._messages = CrashMessages(seed)
        self._halves: list[DispatchRequest] = []
        self.appended: dict[int, DispatchRequest] = {}
        """Every record, by its place."""
        self.raw: dict[int, set[bytes]] = {}
        """The bytes of every record that ever lay at a place."""
        self.acknowledged: list[tuple[int, DispatchRequest]] = []
        """(operations done, record)"""
        self.marks: list[Mark] = [Mark(0, 0, 0)]
        self.deleted: list[tuple[int, int]] = []
        """(operations done before, position below which the log may be deleted)"""
        self.forfeited: list[tuple[int, int]] = []
        """(operations done when the process was killed, position behind which it took with it what was acknowledged)"""
        self.refused = 0
        """Puts that failed, whole or in part."""
        self.fenced: list[str] = []
        self.store = self._start()
        self.alive = True
        """Whether the store runs; not after a start that failed."""

    # life

    def _start(self) -> MessageStore:
        pool = self.kind.pool() if self.kind.pool is not None else None
        given = {"settings": self.kind.settings, "pool": pool, "disk": self.disk, "clock": self.clock}
        store = start_store(self._change(stepped(self.config, self.kind.strategy, **given)))
        fenced: list[str] = []

        def fence(reason: str) -> None:
            fenced.append(reason)
            self.fenced.append(reason)
            if len(fenced) > 1:
                raise CrashFailure(f"a store is fenced once; seen: {fenced}")

        store.fenced.subscribe(fence)
        self._mark(store)
        return store

    def _mark(self, store: MessageStore) -> None:
        marks = store.watermarks
        self.marks.append(Mark(len(self.disk.journal), marks.committed, marks.flushed))

    def run(self, script: Iterable[str]) -> CrashRun:
        """Do the steps of a script."""
        for letter in script:
            self.step(letter)
        return self

    def step(self, letter: str) -> None:
        """Do one step. Errors of the store's own tree are counted in :attr:`refused`; others go through."""
        if not self.alive and letter not in "rk":
            return
        try:
            _STEPS[letter](self)
        except (RefusedError, StoreError):
            self.refused += 1
        if self.alive:
            self._mark(self.store)
            marks = self.store.watermarks
            ceiling = marks.flushed if self.kind.strategy.synchronous else marks.committed
            if marks.dispatched > ceiling or max(marks.flushed, marks.committed) > marks.wrote:
                raise CrashFailure(f"nobody is shown what a crash may take back; seen: {marks.dispatched} > {ceiling}")

    # steps

    def _put(self, items: list[Appendable]) -> list[DispatchRequest]:
        put = self.store.put(items)
        for result in put.results:
            if isinstance(result, Exception):
                self.refused += 1
        requests = requests_of(put.records)
        for request in requests:
            self._note(request)

        def done(status: FlushStatus) -> None:
            if status is FlushStatus.FLUSHED:
                if self.store.watermarks.fence_reason is not None:
                    raise CrashFailure("nothing is acknowledged after a failed sync")
                self.acknowledged.extend((len(self.disk.journal), request) for request in requests)

        put.waiter.add_done_callback(done)
        return requests

    def _note(self, request: DispatchRequest) -> None:
        at = request.commit_log_offset_bytes
        file = self.store.commit_log.queue.find(at)
        assert file is not None
        place = at - file.start
        source = file.view if file.buffer is None else file.buffer
        self.appended[at] = request
        self.raw.setdefault(at, set()).add(bytes(source[place : place + request.message_size_bytes]))

    def put(self) -> None:
        self._put(self._messages.small())

    def put_half(self) -> None:
        self._halves += self._put(self._messages.half())

    def commit_half(self) -> None:
        if self._halves:
            self._put(self._messages.committed(self._halves.pop(0)))

    def flush(self) -> None:
        flush_round(self.store)

    def commit(self) -> None:
        commit_round(self.store)

    def flush_while_putting(self) -> None:
        self.disk.during_sync = self.put
        try:
            flush_round(self.store)
        finally:
            self.disk.during_sync = None

    def dispatch(self) -> None:
        while self.store.dispatch():
            pass

    def flush_queues(self, least_pages: int) -> None:
        try:
            self.store.services.flusher.flush(least_pages)
        except OSError:
            self.refused += 1  # its thread logs it and goes on

    def write_index(self) -> None:
        self.store.index.query("A", "", 1, 0, 0)

    def expire(self) -> None:
        files = self.store.commit_log.queue.files
        self.deleted.append((len(self.disk.journal), files[-1].start if files else 0))
        cleaner = CleanCommitLogService(LogFiles(self.store, view_of(self.store)))
        cleaner.delete_manually()
        cleaner.run()
        self.deleted[-1] = (self.deleted[-1][0], self.store.commit_log.min_offset_bytes)

    def second(self) -> None:
        self.clock.advance_ms(1_000)

    def days(self) -> None:
        self.clock.advance_ms(_FIVE_DAYS_MS)

    def restart(self) -> None:
        if self.alive:
            self.alive = False
            self.store.close()
        self.store = self._start()
        self.alive = True

    def kill(self) -> None:
        if self.alive and self.kind.acknowledges == "appended":
            self.forfeited.append((len(self.disk.journal), self.store.watermarks.committed))
        self.alive = False
        self.store = self._start()
        self.alive = True
        self._halves.clear()

    # what must be there

    def survivors(self, number: int, *, power_cut: bool) -> dict[int, DispatchRequest]:
        """Return what was acknowledged by then and must outlive a crash behind so many operations, by place."""
        mark = next(mark for mark in reversed(self.marks) if mark.number <= number)
        limit = 1 << 62
        if self.kind.acknowledges != "synced":
            if power_cut:
                limit = mark.flushed
            elif self.kind.acknowledges == "appended":
                limit = mark.committed
        deleted = max((minimum for at, minimum in self.deleted if at <= number), default=0)
        found: dict[int, DispatchRequest] = {}
        killed = [(at, committed) for at, committed in self.forfeited if at <= number]
        for at, request in self.acknowledged:
            physical = request.commit_log_offset_bytes
            end = physical + request.message_size_bytes
            if at > number or physical < deleted or end > limit:
                continue
            if all(at > killed_at or end <= committed for killed_at, committed in killed):
                found[physical] = request
        return found


_STEPS: Final[dict[str, Callable[[CrashRun], object]]] = {
    "p": CrashRun.put,
    "b": lambda run: run._put(run._messages.batch()),
    "P": lambda run: run._put(run._messages.large()),
    "D": lambda run: run._put(run._messages.delayed()),
    "h": CrashRun.put_half,
    "c": CrashRun.commit_half,
    "u": lambda run: run._put(run._messages.unqueued()),
    "f": CrashRun.flush,
    "C": CrashRun.commit,
    "s": CrashRun.flush_while_putting,
    "d": CrashRun.dispatch,
    "q": lambda run: run.flush_queues(0),
    "Q": lambda run: run.flush_queues(1),
    "i": CrashRun.write_index,
    "e": CrashRun.expire,
    "t": CrashRun.second,
    "T": CrashRun.days,
    "r": CrashRun.restart,
    "k": CrashRun.kill,
}
