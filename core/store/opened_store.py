"""The specification from which a store is opened, and the opened store, with mapped files and a recovered log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.store import StoreSection
from flintmq.core.errors import store_errors
from flintmq.core.event import Event
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock, stopwatch_of
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.threads import threads_here
from flintmq.core.kernel.ports import (
    ConsumeQueues,
    FlushStrategy,
    IndexBuilder,
    MakeConsumeQueues,
    MakeIndexBuilder,
    StoreFolder,
    TagsCodesFactory,
    TransientStorePool,
)
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.epochs import EpochFile, epochs_path, random_id
from flintmq.core.log.mapped_file_queue import MappedFileQueue
from flintmq.core.log.multi_path_queue import MultiPathMappedFileQueue
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.store_lock import StoreLock
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.recovery.last_stop import LastStop, StoreMarks
from flintmq.core.recovery.missing_log import may_be_lost
from flintmq.core.recovery.notes import Notes
from flintmq.core.recovery.plan import FoundStore, RecoveryPlan, plan_start
from flintmq.core.recovery.recovery import Recovery
from flintmq.core.recovery.start_walk import Recovered
from flintmq.core.store.message_reader import MessageReader


class StoreSpec(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The specification of a store: the settings, factories and resources with which it is opened."""

    config: BrokerConfig
    """The broker's settings, with the store's sizes, paths and limits."""
    strategy: FlushStrategy[Any]
    make_queues: MakeConsumeQueues
    make_index: MakeIndexBuilder
    tags_codes: Mapping[str, TagsCodesFactory] = MappingProxyType({})
    """Factories of objects that compute tags codes, keyed by topic. In a topic without a factory, the tags codes are the hashes
    of the tags."""
    settings: object = None
    """The settings of the flush strategy."""
    pool: TransientStorePool | None = None
    """The transient store pool; None if the flush strategy uses no pool. The pool is closed with the store."""
    disk: Disk = OS_DISK
    clock: Clock = SYSTEM_CLOCK
    indexes: bool | None = None
    """Whether a dispatcher feeds the index builder; None if the setting ``index.enable`` decides."""
    make_id: Callable[[int], str] = random_id
    """Function that returns a new id for an epoch, given the id's length in bytes."""
    takes_writes: Callable[[], bool] = lambda: True
    """Function that returns whether messages may be stored now. The function returns False for a slave, which copies its
    master's log."""
    runs: bool = True
    """Whether the flush services run on their threads; False if the caller runs the rounds of the flush services itself."""

    @property
    def root(self) -> Path:
        """Path of the folder that contains the store's files, from the setting ``store.path``."""
        return Path(self.config.store.path)


class OpenedStore(msgspec.Struct, frozen=True, eq=False):
    """The parts of a store whose files are mapped.

    After :func:`recover`, the store can be read, but not written. Used only on the event loop's thread.
    """

    spec: StoreSpec
    marks: StoreMarks
    folder: StoreFolder
    """The folder and resources from which consume queues and index were created."""
    last_stop: LastStop
    """How the previous broker that used the store stopped: cleanly, killed, or crashed."""
    commit_log: CommitLog
    checkpoint: StoreCheckpoint
    epochs: EpochFile
    consume_queues: ConsumeQueues
    index: IndexBuilder
    reader: MessageReader
    """The reader of queues and records."""
    background: Executor | None
    """The executor with one thread for slow file work; None if no file work runs in the background."""
    progressed: Event[[]]
    """Event published on the flush service's thread when more records have become readable."""
    fenced: Event[[str]]
    """Event published with the reason when a sync has failed; published once, on the flush service's thread."""
    lock: contextlib.ExitStack
    """Exit stack whose close releases the store's lock."""
    files: contextlib.ExitStack
    """Exit stack whose close ends the background work, then closes the dispatchers, then the files."""
    dispatchers: contextlib.ExitStack
    """Exit stack whose close closes the dispatchers. The exit stack :attr:`files` closes this exit stack after the background
    work has ended, and before the files are closed."""
    notes: Notes
    """Ends of the store's files that were recorded before this start, and the differences found in the files."""
    recovered: Recovered | None = None
    """Findings of the recovery; None if the recovery did not scan the log."""
    recovery_plan: RecoveryPlan | None = None
    """Steps of the recovery; None before the recovery is planned."""
    recovery_s: float = 0.0
    """Duration of the recovery in seconds, without the time in which dispatchers catch up."""

    @property
    def root(self) -> Path:
        """The folder in the setting ``store.path`` (RocketMQ's ``storePathRootDir``), which contains the files of the store."""
        return self.folder.root

    @property
    def quarantine(self) -> Path:
        """The folder ``flint/quarantine``, which keeps the bytes removed from the log."""
        return self.root / "flint" / "quarantine"

    @property
    def disk(self) -> Disk:
        """The disk interface through which the store reads, writes and syncs files."""
        return self.folder.disk

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings when the store was opened."""
        return self.folder.config

    @property
    def started_clean(self) -> bool:
        """Whether the previous broker on the store stopped cleanly."""
        return self.folder.was_stopped

    @property
    def watermarks(self) -> Watermarks:
        """The physical offsets up to which the log is written, synced, readable and dispatched."""
        return self.commit_log.watermarks

    def next_queue_offsets(self) -> dict[tuple[str, int], int]:
        """Return the queue offset that each queue's next message will get, keyed by topic and queue id."""
        return {key: queue.max_queue_offset for key, queue in self.consume_queues.queues.items()}

    def begin_tags_codes(self) -> None:
        """Record the log position from which each rule for tags codes applies. Called before any dispatch or append.

        Raises:
            StoreError: the disk refused the write; the position is then not recorded until the next start.
        """
        for rule in self.commit_log.tags_codes.values():
            rule.begin(self.watermarks.wrote)

    def build_lost_queues(self) -> None:
        """Rebuild the store's damaged or lost queues, after all queues have caught up with the log.

        Raises StoreError if it fails.
        """
        begin = self.recovery_plan.dispatched_from_offset_bytes if self.recovery_plan is not None else 0
        goes_on = self.config.store.compat == "safe"
        reach = (begin, self.watermarks.dispatched)
        self.notes.build_lost_queues(self.consume_queues, self.commit_log, reach, goes_on=goes_on)

    def plan(self) -> RecoveryPlan:
        """Return the steps that a recovery of the store's current files would take."""
        return plan_start(
            FoundStore(
                self.last_stop,
                self.commit_log,
                self.consume_queues,
                self.index if _indexes(self.spec) else None,
                self.checkpoint.min_timestamp_ms,
                self.epochs.epochs.current.start_offset_bytes,
                check_crc=self.config.store.check_crc_on_recover,
                is_safe=self.config.store.compat == "safe",
                noted=self.notes.noted,
            )
        )

    def recovery(self) -> Recovery:
        """Return the object that carries out a recovery plan on the store's files."""

        def mark_in_use() -> None:
            if self.started_clean:
                self.marks.mark_abort()

        return Recovery(
            self.disk,
            self.quarantine,
            self.commit_log,
            self.consume_queues,
            self.index,
            self.checkpoint,
            self.epochs,
            mark_in_use,
        )

    def close(self) -> None:
        """Close the store's files without changes, and release its lock. A store that had crashed still counts as crashed."""
        with store_errors(self.root), self.lock:
            self.files.close()


def recover(spec: StoreSpec) -> OpenedStore:
    """Lock a store's folder, map the store's files, and recover the store. The caller must close the returned store.

    Raises:
        StoreLockedError: another broker has locked the store.
        StoreFormatError: a file has an unexpected size or name.
        StoreError: the folder cannot be written.
    """
    with _mapped(spec) as (mapped, kept):
        began_s = spec.clock.monotonic_s()
        plan = mapped.plan()
        recovered = mapped.recovery().run(plan)
        took_s = spec.clock.monotonic_s() - began_s
        opened = msgspec.structs.replace(mapped, recovered=recovered, recovery_plan=plan, recovery_s=took_s)
        opened.watermarks.dispatched = plan.dispatched_from_offset_bytes
        kept.pop_all()
    return opened


def plan_of(spec: StoreSpec) -> RecoveryPlan:
    """Return the steps that :func:`recover` would take with a store, without taking them. The store is closed again.

    Planning may remove files that a crash left incomplete. A caller that must not change the store passes a disk interface that
    drops writes.

    Raises:
        StoreError: as :func:`recover` does.
    """
    with _mapped(spec) as (mapped, _kept):
        return mapped.plan()


@contextlib.contextmanager
def _mapped(spec: StoreSpec) -> Iterator[tuple[OpenedStore, contextlib.ExitStack]]:
    """Lock a store, map its files, and yield the store and an exit stack.

    At the end of the ``with`` block, the exit stack closes the files and unlocks the store, unless the caller has called the
    stack's ``pop_all()``.
    """
    marks = StoreMarks(spec.disk, spec.root)
    with store_errors(spec.root), marks.distrusting_memory(), contextlib.ExitStack() as kept:
        spec.disk.make_folder(spec.root)
        lock = kept.enter_context(contextlib.ExitStack())
        elsewhere = [Path(folder) for folder in spec.config.store.commit_log_paths]
        for folder in elsewhere:
            spec.disk.make_folder(folder)
        lock.callback(StoreLock(spec.root, spec.disk, elsewhere).release)
        files = kept.enter_context(contextlib.ExitStack())
        yield _load(spec, marks, lock, files), kept


def _load(spec: StoreSpec, marks: StoreMarks, lock: contextlib.ExitStack, files: contextlib.ExitStack) -> OpenedStore:
    """Map the files of a store, and set each queue's end after its last valid unit."""
    config, disk, root = spec.config, spec.disk, spec.root
    settings = config.store
    notes = Notes.read(disk, root)
    last_stop = notes.last_stop(marks)
    progressed: Event[[]] = Event()
    fenced: Event[[str]] = Event()
    fenced.subscribe(lambda _reason: marks.forget_boot())
    if spec.pool is not None:
        files.callback(spec.pool.close)
    parts = files.enter_context(contextlib.ExitStack())
    dispatchers = files.enter_context(contextlib.ExitStack())
    background = None
    if settings.preallocate or settings.warm:
        background = threads_here().worker("flintmq-allocate")
        files.callback(background.shutdown)
    queue = log_files(settings, commit_log_folders(settings), disk, spec.pool, background)
    parts.callback(queue.close)
    files.callback(setattr, queue, "closing", True)  # ``closing`` stops the filling of the next log file early.
    checkpoint = StoreCheckpoint(disk, root / "checkpoint")
    parts.callback(checkpoint.close)
    lost = partial(may_be_lost, last_stop, checkpoint.min_timestamp_ms, notes.noted)
    queue.load(crashed=last_stop is not LastStop.CLEAN, may_be_lost=lost if settings.compat == "safe" else None)
    commit_log = CommitLog(
        queue,
        Watermarks(synchronous=spec.strategy.synchronous),
        checkpoint,
        spec.clock,
        {topic: make(config, disk) for topic, make in spec.tags_codes.items()},
        on_progress=progressed.publish,
        on_fenced=fenced.publish,
    )
    notes.restore_epochs()
    epochs = EpochFile(disk, epochs_path(root), queue.min_offset_bytes, spec.make_id)
    folder = StoreFolder(
        root,
        config,
        disk,
        spec.clock,
        checkpoint,
        last_stop is LastStop.CLEAN,
        last_stop is LastStop.KILLED,
        queue.min_offset_bytes,
        marks.forget_boot,
    )
    consume_queues = spec.make_queues(folder)
    parts.callback(consume_queues.close)
    index = spec.make_index(folder)
    parts.callback(index.close)
    notes.look_at(consume_queues, index if _indexes(spec) else None, queue.min_offset_bytes, last_stop)
    return OpenedStore(
        spec,
        marks,
        folder,
        last_stop,
        commit_log,
        checkpoint,
        epochs,
        consume_queues,
        index,
        MessageReader(commit_log, consume_queues, index, settings, stopwatch_of(spec.clock)),
        background,
        progressed,
        fenced,
        lock,
        files,
        dispatchers,
        notes,
    )


def _indexes(spec: StoreSpec) -> bool:
    return spec.config.index.enable if spec.indexes is None else spec.indexes


_STEP_BYTES: Final = 64 * 1024 * 1024


def commit_log_folders(settings: StoreSection) -> tuple[Path, ...]:
    """Return the folders in which new files of the commit log are created."""
    return tuple(map(Path, settings.commit_log_paths)) or (Path(settings.path) / "commitlog",)


def log_files(
    settings: StoreSection,
    folders: Sequence[Path],
    disk: Disk,
    pool: TransientStorePool | None,
    background: Executor | None,
) -> MappedFileQueue:
    """Return the ``MappedFileQueue`` of a commit log, without mapping its files.

    Args:
        settings: the store's settings, with file sizes and read-only folders.
        folders: the folders in which files are created.
        disk: the disk interface.
        pool: the buffers to which records are appended first; None: records are appended to the mapped files.
        background: the executor that creates files in advance; None: files are created when needed.
    """
    read_only = [Path(path) for path in settings.read_only_commit_log_paths]
    make: Callable[..., MappedFileQueue]
    if len(folders) == 1 and not read_only:
        make = partial(MappedFileQueue, disk, folders[0])
    else:
        make = partial(MultiPathMappedFileQueue, disk, list(folders), read_only)
    return make(
        settings.commit_log_file_bytes,
        step_bytes=_STEP_BYTES,
        size_key="store.commit_log_file_bytes (mappedFileSizeCommitLog)",
        pool=pool,
        ahead=background,
        warm=settings.warm,
        holds=True,
    )
