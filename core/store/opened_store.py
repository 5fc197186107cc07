"""What a store is opened from, and its parts once its files are mapped and its log is recovered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.store import StoreSection
from flintmq.core.errors import store_errors
from flintmq.core.event import Event
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
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
    """What a store is opened from."""

    config: BrokerConfig
    """Sizes, paths, limits."""
    strategy: FlushStrategy[Any]
    make_queues: MakeConsumeQueues
    make_index: MakeIndexBuilder
    tags_codes: Mapping[str, TagsCodesFactory] = MappingProxyType({})
    """By topic, what makes the rule of its tags codes where these are not the hashes of the tags."""
    settings: object = None
    """The settings of the flush strategy."""
    pool: TransientStorePool | None = None
    """The transient store pool, when the strategy uses one; closed with the store."""
    disk: Disk = OS_DISK
    clock: Clock = SYSTEM_CLOCK
    indexes: bool | None = None
    """Whether a dispatcher feeds the index builder; None takes ``index.enable``. Where none does, it gets no record again."""
    make_id: Callable[[int], str] = random_id
    """Makes the id of an epoch, of so many bytes."""
    takes_writes: Callable[[], bool] = lambda: True
    """Returns whether messages may be stored now; false for the store of a slave, which copies its master's log."""
    runs: bool = True
    """Whether the services that flush run by themselves; one who calls their rounds says no."""

    @property
    def root(self) -> Path:
        """The store's folder."""
        return Path(self.config.store.path)


class OpenedStore(msgspec.Struct, frozen=True, eq=False):
    """The parts of a store that is open and recovered: it can be read, and nothing is written to it. Loop thread."""

    spec: StoreSpec
    marks: StoreMarks
    folder: StoreFolder
    """What consume queues and index were made from."""
    last_stop: LastStop
    """How the store was left."""
    commit_log: CommitLog
    checkpoint: StoreCheckpoint
    epochs: EpochFile
    consume_queues: ConsumeQueues
    index: IndexBuilder
    reader: MessageReader
    """Reads queues and records."""
    background: Executor | None
    """The thread for slow file work, in order; None without one."""
    progressed: Event[[]]
    """More became readable. Published on the flush service's thread."""
    fenced: Event[[str]]
    """A sync failed, for the given reason. Published once, on the flush service's thread."""
    lock: contextlib.ExitStack
    """Lets others take the store."""
    files: contextlib.ExitStack
    """Ends the background work, closes the dispatchers, and closes the files."""
    dispatchers: contextlib.ExitStack
    """Closes the dispatchers: after the background work has ended, before the files are closed."""
    notes: Notes
    """What was noted of the store before this start, and what it has found missing."""
    recovered: Recovered | None = None
    """What the recovery found; None where the log was not walked."""
    recovery_plan: RecoveryPlan | None = None
    """What the recovery did; None before it."""
    recovery_s: float = 0.0
    """How long the recovery took, without what dispatchers then had to catch up."""

    @property
    def root(self) -> Path:
        """The store's folder."""
        return self.folder.root

    @property
    def quarantine(self) -> Path:
        """The folder that keeps what is taken out of the log."""
        return self.root / "flint" / "quarantine"

    @property
    def disk(self) -> Disk:
        """What the store reads, writes and syncs through."""
        return self.folder.disk

    @property
    def config(self) -> BrokerConfig:
        """The settings at the start."""
        return self.folder.config

    @property
    def started_clean(self) -> bool:
        """Whether the last broker on the store stopped in order."""
        return self.folder.was_stopped

    @property
    def watermarks(self) -> Watermarks:
        """How far the log is written, synced, dispatched."""
        return self.commit_log.watermarks

    def next_queue_offsets(self) -> dict[tuple[str, int], int]:
        """Return the logical offset of each queue's next message."""
        return {key: queue.max_queue_offset for key, queue in self.consume_queues.queues.items()}

    def begin_tags_codes(self) -> None:
        """Have the rules of tags codes note from where on they hold: before anything is dispatched or appended.

        Raises:
            StoreError: the disk refused; then the note is missing until the next start.
        """
        for rule in self.commit_log.tags_codes.values():
            rule.begin(self.watermarks.wrote)

    def build_lost_queues(self) -> None:
        """Make queues again that have lost something, once all have caught up with the log. Raises StoreError."""
        begin = self.recovery_plan.dispatched_from_offset_bytes if self.recovery_plan is not None else 0
        goes_on = self.config.store.compat == "safe"
        reach = (begin, self.watermarks.dispatched)
        self.notes.build_lost_queues(self.consume_queues, self.commit_log, reach, goes_on=goes_on)

    def plan(self) -> RecoveryPlan:
        """Return what a recovery of the files as they are would do."""
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
        """Return what changes the store's files in a recovery."""

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
        """Close the files as they are, and let others take the store; a crashed one is crashed still."""
        with store_errors(self.root), self.lock:
            self.files.close()


def recover(spec: StoreSpec) -> OpenedStore:
    """Lock a store's folder, map the files, plan the recovery and carry it out. The caller closes what is returned.

    Raises:
        StoreLockedError: another broker has it.
        StoreFormatError: files of another size or name.
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
    """Return what :func:`recover` would do, and close the store again.

    Finding out may remove what a crash left half made, so a caller that only reads passes a disk that drops what is written.

    Raises:
        StoreError: as :func:`recover` does.
    """
    with _mapped(spec) as (mapped, _kept):
        return mapped.plan()


@contextlib.contextmanager
def _mapped(spec: StoreSpec) -> Iterator[tuple[OpenedStore, contextlib.ExitStack]]:
    """Lock a store and map its files; at the end release all that the stack still holds."""
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
    """Map the files of a store, each queue ended where its valid units end."""
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
        background = ThreadPoolExecutor(1, thread_name_prefix="flintmq-allocate")
        files.callback(background.shutdown)
    queue = log_files(settings, commit_log_folders(settings), disk, spec.pool, background)
    parts.callback(queue.close)
    files.callback(setattr, queue, "closing", True)  # what waits in the background is not made any more
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
        MessageReader(commit_log, consume_queues, index, settings),
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
    """Return the folders where the commit log's files are made."""
    return tuple(map(Path, settings.commit_log_paths)) or (Path(settings.path) / "commitlog",)


def log_files(
    settings: StoreSection,
    folders: Sequence[Path],
    disk: Disk,
    pool: TransientStorePool | None,
    background: Executor | None,
) -> MappedFileQueue:
    """Return the files of a commit log, not mapped yet.

    Args:
        settings: sizes, and folders that are read only.
        folders: where files are made.
        disk: where they lie.
        pool: buffers that records are appended to first; None where they are appended to the maps.
        background: makes files ahead; None where none are.
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
