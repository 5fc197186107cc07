"""The message store: commit log, queues, index and checkpoint as one thing that is opened, written, read and closed.

Loop thread, except where said. Nothing here knows sockets or asyncio; the store's owner calls :meth:`MessageStore.put`,
:meth:`MessageStore.dispatch` and the reads of :attr:`MessageStore.reader`, and subscribes to ``progressed`` to learn when a
flush made more readable.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import (
    RefusedError,
    StoreError,
    StoreFencedError,
    store_errors,
)
from flintmq.core.event import Event
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import (
    CommitLogDispatcher,
    ConsumeQueues,
    FlushContext,
    FlushStrategy,
    IndexBuilder,
    MakeConsumeQueues,
    MakeIndexBuilder,
    StoreFolder,
    SupportsClose,
    TagsCodesFactory,
    TransientStorePool,
)
from flintmq.core.log.appender import Appendable
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.epochs import EpochFile, random_id
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.store_lock import StoreLock
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.recovery.log_walk import Recovered
from flintmq.core.recovery.plan import RecoveryPlan, plan_start
from flintmq.core.recovery.replay import replay, truncate
from flintmq.core.retention.retention import DiskFull
from flintmq.core.store.message_reader import MessageReader
from flintmq.core.store.message_writer import MessageWriter
from flintmq.core.store.opened_store import OpenedStore, StoreLoader
from flintmq.core.store.put import Put
from flintmq.core.store.reput_message_service import ReputMessageService
from flintmq.core.store.store_marks import StoreMarks
from flintmq.core.store.store_services import StoreServices
from flintmq.core.store.trouble import slave_refusal, trouble_of

log = logging.getLogger("flintmq.store")


class MessageStore:
    """A store in a folder. ``open`` recovers it; ``close`` leaves it clean.

    Args:
        config: sizes, paths, limits; ``update_config`` changes what may change while running.
        strategy: the flush strategy.
        tags_codes: by topic, what makes the rule of its tags codes where these are not the hashes of the tags.
        make_queues: makes the consume queues when the store is opened.
        make_index: makes the index builder then.
        settings: the settings of the flush strategy.
        pool: the transient store pool, when the strategy uses one; closed with the store.
        indexes: whether a dispatcher feeds the index builder; None takes ``index.enable``. Where none does, no record is
            handed to it again.
        take_lock: keeps other brokers off the store's folder.
        make_id: makes the ids of epochs.
        make_services: makes what flushes the log and the queues.
    """

    def __init__(
        self,
        config: BrokerConfig,
        strategy: FlushStrategy[Any],
        tags_codes: Mapping[str, TagsCodesFactory] = MappingProxyType({}),
        *,
        make_queues: MakeConsumeQueues,
        make_index: MakeIndexBuilder,
        settings: object = None,
        pool: TransientStorePool | None = None,
        disk: Disk = OS_DISK,
        clock: Clock = SYSTEM_CLOCK,
        indexes: bool | None = None,
        take_lock: Callable[[Path, Disk], StoreLock] = StoreLock,
        make_id: Callable[[int], str] = random_id,
        make_services: type[StoreServices] = StoreServices,
    ) -> None:
        self.config = config
        self._indexes = config.index.enable if indexes is None else indexes
        self.strategy = strategy
        self.root = Path(config.store.path)
        self.clock = clock
        self.disk = disk
        self._settings = settings
        self._pool = pool
        self._take_lock = take_lock
        self._make_services = make_services
        self._marks = StoreMarks(disk, self.root)
        self._loader = StoreLoader(config, disk, clock, self._marks, pool, tags_codes, make_queues, make_index, make_id)
        self._held = contextlib.ExitStack()
        """Gives back what was opened."""
        self._started = False
        self._is_clean = False
        """Whether the store may be left without the mark of a crash."""
        self.watermarks = Watermarks(synchronous=strategy.synchronous)
        self.progressed: Event[[]] = Event()
        """More became readable. Published on the flush service's thread."""
        self.fenced: Event[[str]] = Event()
        """A sync failed, for the given reason. Published once, on the flush service's thread."""
        self.appended: Event[[]] = Event()
        """Messages were appended. Published after each append, on the loop thread."""
        self.recovered: Recovered | None = None
        self.started_clean = True
        self.disk_full: DiskFull | None = None
        """Why writes are refused for want of space; set and taken back by the cleaner."""
        self.background: Executor | None = None
        """The thread for slow file work, in order; None without one."""
        self._opened: OpenedStore
        self.folder: StoreFolder
        self.commit_log: CommitLog
        self.consume_queues: ConsumeQueues
        self.checkpoint: StoreCheckpoint
        self.epochs: EpochFile
        self.index: IndexBuilder
        self.reader: MessageReader
        """Reads queues and records, from :meth:`open` on."""
        self.reput: ReputMessageService
        self.services: StoreServices
        self.writer: MessageWriter
        """Appends, from :meth:`start` on."""

    # life

    def open(self) -> None:
        """Lock the folder, map the files, plan the recovery and carry it out. Clients write only after :meth:`start`.

        Raises:
            StoreLockedError: another broker has it.
            StoreFormatError: files of another size or name.
            StoreError: the folder cannot be written.
        """
        with self._loaded() as opened:
            plan = plan_start(opened.found(self.config, indexes=self._indexes))
            self.recovered = opened.recovery(self._marks).run(plan)
            self.watermarks.dispatched = plan.dispatched_from_offset_bytes
            self.reput = ReputMessageService(self.commit_log)

    def plan(self) -> RecoveryPlan:
        """Return what :meth:`open` would do, and close the store again.

        Finding out may remove what a crash left half made, so a caller that only reads passes a disk that drops what is
        written.

        Raises:
            StoreError: as :meth:`open` does.
        """
        with self._loaded() as opened:
            plan = plan_start(opened.found(self.config, indexes=self._indexes))
        with store_errors(self.root):
            self._held.close()
        return plan

    @contextlib.contextmanager
    def _loaded(self) -> Iterator[OpenedStore]:
        """Lock the store and map its files; release everything that was opened if the work under it fails."""
        with store_errors(self.root), contextlib.ExitStack() as undo:
            self._is_clean = False
            self.disk.make_folder(self.root)
            undo.callback(self._take_lock(self.root, self.disk).release)
            undo.callback(self._remove_abort_if_clean)
            if self._pool is not None:
                undo.callback(self._pool.close)
            with self._marks.distrusting_memory():
                opened = self._loader.load(self.watermarks, on_progress=self.progressed.publish, on_fenced=self._fenced)
                undo.enter_context(opened.held)
                self._opened = opened
                self.folder, self.started_clean = opened.folder, opened.folder.was_stopped
                self.commit_log, self.checkpoint, self.epochs = opened.commit_log, opened.checkpoint, opened.epochs
                self.consume_queues, self.index = opened.consume_queues, opened.index
                self.background = opened.background
                self.reader = MessageReader(self.commit_log, self.consume_queues, self.index, self.config.store)
                yield opened
            self._held = undo.pop_all()

    def _remove_abort_if_clean(self) -> None:
        if self._is_clean:
            self._marks.remove_abort()

    def begin_tags_codes(self) -> None:
        """Have the rules of tags codes note from where on they hold; call it before :meth:`start`.

        Raises:
            StoreError: the disk refused; then the note is missing until the next start.
        """
        for rule in self.commit_log.tags_codes.values():
            rule.begin(self.watermarks.wrote)

    @property
    def free_pool_buffers(self) -> int | None:
        """Buffers of the transient store pool that no file has; None without a pool."""
        return self._pool.available_buffers if self._pool is not None else None

    def start(self, dispatchers: Sequence[CommitLogDispatcher]) -> None:
        """Let the dispatchers catch up, then start the flush services and mark the store as in use.

        Args:
            dispatchers: the receivers of records, in this order: among them :attr:`consume_queues`, and :attr:`index`
                where it is fed, or what wraps them. The store closes them, last one first.

        Raises:
            StoreError: a record cannot be read, an essential dispatcher gave up, or the disk is full.
        """
        opened = self._opened
        self.reput.dispatchers = tuple(dispatchers)
        for dispatcher in dispatchers:
            inner = getattr(dispatcher, "inner", dispatcher)
            if inner not in (self.consume_queues, self.index) and isinstance(dispatcher, SupportsClose):
                opened.dispatchers.callback(dispatcher.close)
        with store_errors(self.root):
            with self._marks.distrusting_memory():
                self._catch_up()
            self.commit_log.appender.next_queue_offset = opened.next_queue_offsets()
            self.services = self._make_services(
                opened,
                self.strategy,
                FlushContext(log=self.commit_log, clock=self.clock, settings=self._settings, pool=self._pool),
                self.config.store,
                self.clock,
                self._marks.forget_boot,
            )
            self.writer = MessageWriter(
                self.commit_log,
                self.reput,
                self.services,
                self.clock,
                check_writeable=self.check_writeable,
                fence=self._fence,
                appended=self.appended.publish,
            )
            self._marks.mark_boot()
            self._marks.mark_abort()
        if self.config.store.warm and not self.commit_log.queue.files:
            self.commit_log.queue.prepare(0)
        self._started = True
        self.services.start()

    def _catch_up(self) -> None:
        """Hand the dispatchers whatever they lack of the log, as :meth:`start` says."""
        self._replay()
        self.reput.catch_up()
        if self.reput.error is not None:
            raise self.reput.error
        if not self.started_clean or (self.recovered is not None and self.recovered.holes):
            self.consume_queues.correct_min_offsets(self.commit_log.min_offset_bytes)

    def _replay(self) -> None:
        """Have dispatchers forget what the log has lost, and hand them what they lack of what is dispatched."""
        truncate(self.reput.dispatchers, self.watermarks.wrote)
        replay(self.reput.dispatchers, self.commit_log, self.watermarks.dispatched)

    def close(self) -> None:
        """Make everything durable, release every file and the lock. Leaves ``abort`` behind only when something failed."""
        with store_errors(self.root), self._held:
            if self._started:
                self._started = False
                self.watermarks.replicated = None  # no reader is left, and what is in the log belongs into queues
                self.services.flush_service.stop()
                self._is_clean = self._settle()

    def end_writes(self) -> None:
        """Make everything that was appended durable, as far as that can be done. Nothing is appended any more. Blocks.

        Positions that stand for what is in the log can be written then, before :meth:`close`.

        Raises:
            StoreError: the disk refused something.
        """
        if self._started:
            with store_errors(self.root):
                self.services.flush_service.stop()

    def _settle(self) -> bool:
        """Make queues, index and checkpoint durable; return whether the store is clean."""
        services, marks = self.services, self.watermarks
        services.flusher.stop()
        if marks.fence_reason is not None:
            return False
        if getattr(services.flush_service, "failure", None) is not None or marks.flushed < marks.wrote:
            log.error("the log is on disk up to %d of %d only; the next start will recover", marks.flushed, marks.wrote)
            return False
        try:
            self.reput.run_all()
            self.index.flush()
            services.flusher.flush(0)
        except (OSError, StoreError) as error:
            log.error("the store could not be left clean; the next start will recover: %s", error)
            return False
        return self.reput.error is None and marks.dispatched >= marks.wrote

    def _fence(self, reason: str) -> None:
        if self.watermarks.fence_reason is None:
            self.watermarks.fence_reason = reason
            log.critical("%s", reason)
            self._fenced(reason)

    def _fenced(self, reason: str) -> None:
        self._marks.forget_boot()
        self.fenced.publish(reason)

    def update_config(self, config: BrokerConfig) -> None:
        """Take settings that may change while running (reads and limits)."""
        self.config = config
        self.reader.settings = config.store

    # write

    def check_writeable(self) -> None:
        """Raise RefusedError (SERVICE_NOT_AVAILABLE) when nothing may be written now; it says why and what to do."""
        if self.config.broker.is_slave and self.watermarks.fence_reason is None:
            raise slave_refusal()
        trouble = self.trouble
        if trouble is not None:
            raise trouble

    @property
    def trouble(self) -> RefusedError | None:
        """What is wrong with the store, a slave's copy included, so that nothing may be written to it; None when all is well.

        The gravest, if several things are.
        """
        return trouble_of(self.watermarks.fence_reason, self.disk_full, self.reput.error)

    def put(self, messages: Sequence[Appendable]) -> Put:
        """Append messages and ask for their durability; see :meth:`.MessageWriter.put`."""
        return self.writer.put(messages)

    def become_master(self) -> None:
        """Begin an epoch at the log's end, before anything is appended that slaves may get. Raises StoreError."""
        self.epochs.begin_as_master(self.watermarks.wrote, self.commit_log.min_offset_bytes)

    def truncate(self, end_offset_bytes: int) -> Path | None:
        """End the log of a slave earlier, for good; what is cut is kept in the quarantine. Loop thread; blocks on the disk.

        Queues and index are as if the rest had never been. The flush services are stopped meanwhile.

        Args:
            end_offset_bytes: where a record begins, or the log ends.

        Returns:
            Where the bytes are that were cut; None when there were none.

        Raises:
            StoreError: the disk refused something. The store is fenced then: a restart recovers it.
        """
        self.services.stop()
        if self.watermarks.fence_reason is not None:
            raise StoreFencedError(self.watermarks.fence_reason)
        try:
            with store_errors(self.root):
                self.index.flush()
                kept = self._opened.recovery(self._marks).cut_back(end_offset_bytes)
                self.watermarks.dispatched = min(self.watermarks.dispatched, end_offset_bytes)
                self.reput.forget()
                self.commit_log.appender.next_queue_offset = self._opened.next_queue_offsets()
                self._replay()
        except StoreError as error:
            self._fence(f"the log could not be cut: {error}; restart the broker to recover")
            raise
        self.services.renew(self.config.store)
        return kept

    def dispatch(self) -> bool:
        """Hand what is readable to the dispatchers; return whether more is left."""
        return self.reput.run()

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's queues, files and all; its records stay in the log until they expire."""
        self.reput.run_all()  # what is under way must not make the queues again
        for key in [key for key in self.consume_queues.queues if key[0] == topic]:
            self.consume_queues.delete_queue(*key)
        next_offsets = self.commit_log.appender.next_queue_offset
        for key in [key for key in next_offsets if key[0] == topic]:
            del next_offsets[key]

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete one queue; its next message, if one comes, has logical offset 0, as in RocketMQ."""
        self.reput.run_all()
        self.consume_queues.delete_queue(topic, queue_id)
        self.commit_log.appender.next_queue_offset.pop((topic, queue_id), None)
