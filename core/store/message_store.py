"""The message store: commit log, queues, index and checkpoint as one thing that is opened, written, read and closed.

Loop thread, except where said. Nothing here knows sockets or asyncio; the store's owner calls :meth:`MessageStore.put`,
:meth:`MessageStore.dispatch` and the reads, and subscribes to ``progressed`` to learn when a flush made more readable.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import (
    RefusedError,
    StoreError,
    StoreFencedError,
    store_error_kind,
)
from flintmq.core.event import Event
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import (
    AppendedBatch,
    AppendUnit,
    CommitLogDispatcher,
    ConsumeQueues,
    DispatchRequest,
    FlushCommitLogService,
    FlushContext,
    FlushStrategy,
    FlushWaiter,
    IndexBuilder,
    MakeConsumeQueues,
    MakeIndexBuilder,
    MessageFilter,
    ReplicationGate,
    StoreFolder,
    SupportsClose,
    TagsCodesFactory,
    TransientStorePool,
    count_messages,
)
from flintmq.core.log.appender import Appendable
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.epochs import MASTER, RECOVERED, EpochFile, epochs_path, random_id
from flintmq.core.log.log_chunk import LogChunk
from flintmq.core.log.slow import SLOW_S, SlowLog
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.store_lock import StoreLock
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.record import record as rec
from flintmq.core.recovery.boot import boot_path, is_same_boot
from flintmq.core.recovery.log_walk import Recovered
from flintmq.core.recovery.plan import FoundStore, LastStop, RecoveryPlan, plan_start
from flintmq.core.recovery.recovery import Recovery
from flintmq.core.recovery.replay import replay, truncate
from flintmq.core.response_code import ResponseCode
from flintmq.core.retention.retention import DiskFull
from flintmq.core.steps import run_steps
from flintmq.core.store.get_message import GetMessageResult
from flintmq.core.store.key_query import find_by_key
from flintmq.core.store.log_files import log_files
from flintmq.core.store.message_reader import MessageReader
from flintmq.core.store.put import Put
from flintmq.core.store.queue_flusher import QueueFlusher
from flintmq.core.store.reput_message_service import ReputMessageService
from flintmq.core.store.trouble import trouble_of

log = logging.getLogger("flintmq.store")


class MessageStore:
    """A store in a folder. ``open`` recovers it; ``close`` leaves it clean.

    Args:
        config: sizes, paths, limits; ``update_config`` changes what may change while running.
        strategy: the flush strategy.
        tags_codes: by topic, what makes the rule of its tags codes where these are not the hashes of the tags.
        pool: the transient store pool, when the strategy uses one; closed with the store.
        make_queues: makes the consume queues when the store is opened.
        make_index: makes the index builder then.
        indexes: whether a dispatcher feeds the index builder; None takes ``index.enable``. Where none does, no record is
            handed to it again.
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
    ) -> None:
        self.config = config
        self._make_queues = make_queues
        self._make_index = make_index
        self._indexes = config.index.enable if indexes is None else indexes
        self.strategy = strategy
        self.root = Path(config.store.path)
        self.clock = clock
        self.disk = disk
        self._tags_codes = tags_codes
        self._settings = settings
        self._pool = pool
        self._reader: MessageReader
        self._lock: StoreLock | None = None
        self._allocator: ThreadPoolExecutor | None = None
        self._opened: list[Callable[[], None]] = []
        """What closes what was opened, in the order of opening."""
        self._started = False
        self.watermarks = Watermarks(synchronous=strategy.synchronous)
        self.progressed: Event[[]] = Event()
        """More became readable. Published on the flush service's thread."""
        self.fenced: Event[[str]] = Event()
        """A sync failed, for the given reason. Published once, on the flush service's thread."""
        self.appended: Event[[]] = Event()
        """Messages were appended. Published after each append, on the loop thread."""
        self.recovered: Recovered | None = None
        self.started_clean = True
        self._slow_appends = SlowLog(clock)
        self.disk_full: DiskFull | None = None
        """Why writes are refused for want of space; set and taken back by the cleaner."""
        self.folder: StoreFolder
        self.commit_log: CommitLog
        self.consume_queues: ConsumeQueues
        self.checkpoint: StoreCheckpoint
        self.epochs: EpochFile
        self.index: IndexBuilder
        self.reput: ReputMessageService
        self.flush_service: FlushCommitLogService
        self._flusher: QueueFlusher
        self._gate: ReplicationGate | None = None

    # life

    def open(self) -> None:
        """Lock the folder, map the files, plan the recovery and carry it out. Clients write only after :meth:`start`.

        Raises:
            StoreLockedError: another broker has it.
            StoreFormatError: files of another size or name.
            StoreError: the folder cannot be written.
        """
        with self._locked():
            plan = plan_start(self._find())
            self.recovered = self._recovery().run(plan)
            self.watermarks.dispatched = plan.dispatched_from_offset_bytes
            self.reput = ReputMessageService(self.commit_log)

    def plan(self) -> RecoveryPlan:
        """Return what :meth:`open` would do, and close the store again.

        Finding out may remove what a crash left half made, so a caller that only reads passes a disk that drops what is
        written.

        Raises:
            StoreError: as :meth:`open` does.
        """
        with self._locked():
            plan = plan_start(self._find())
        with self._disk_errors():
            self._release()
        return plan

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Take the store's lock; release everything that was opened if the work under it fails."""
        with self._disk_errors():
            self.disk.make_folder(self.root)
            self._lock = self._take_lock()
            try:
                yield
            except BaseException as error:
                if isinstance(error, OSError):
                    self._forget_boot()  # it may have been a sync
                self._release()
                raise

    def _take_lock(self) -> StoreLock:
        return StoreLock(self.root, self.disk)

    def _make_id(self, length_bytes: int) -> str:
        return random_id(length_bytes)

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Makes errors of the operating system errors of the store."""
        try:
            yield
        except OSError as error:
            kind = store_error_kind(error)
            raise kind(f"{error.filename or self.root}: {error.strerror or error}") from error

    @property
    def abort_file(self) -> Path:
        """Exists while a broker runs on the store; found at a start it tells of a crash."""
        return self.root / "abort"

    @property
    def boot_file(self) -> Path:
        """Says under which boot of the kernel the store was last in use."""
        return boot_path(self.root)

    def _same_boot(self) -> bool:
        """Whether everything that a crashed process wrote is still there, because the machine did not stop with it."""
        return is_same_boot(self.disk, self.root)

    def _find(self) -> FoundStore:
        """Map the store's files, end each queue where its valid units end, and return what a recovery is planned from."""
        settings = self.config.store
        self.started_clean = not self.disk.exists(self.abort_file)
        crashed = not self.started_clean
        same_boot = crashed and self._same_boot()
        if crashed:
            self.disk.sync_folder(self.root)
        if settings.preallocate or settings.warm:
            self._allocator = ThreadPoolExecutor(1, thread_name_prefix="flintmq-allocate")
        queue = log_files(settings, self.commit_log_folders, self.disk, self._pool, self._allocator)
        self._opened.append(queue.close)
        queue.load(crashed=crashed)
        self.checkpoint = StoreCheckpoint(self.disk, self.root / "checkpoint")
        self._opened.append(self.checkpoint.close)
        tags_codes = {topic: make(self.config, self.disk) for topic, make in self._tags_codes.items()}
        self.commit_log = CommitLog(
            queue,
            self.watermarks,
            self.checkpoint,
            self.clock,
            tags_codes,
            on_progress=self.progressed.publish,
            on_fenced=self._fenced,
        )
        self.epochs = EpochFile(self.disk, epochs_path(self.root), queue.min_offset_bytes, self._make_id)
        self.folder = StoreFolder(
            self.root,
            self.config,
            self.disk,
            self.clock,
            self.checkpoint,
            self.started_clean,
            same_boot,
            queue.min_offset_bytes,
            self._forget_boot,
        )
        self.consume_queues = self._make_queues(self.folder)
        self._opened.append(self.consume_queues.close)
        self.index = self._make_index(self.folder)
        self._opened.append(self.index.close)
        self._reader = MessageReader(self.commit_log, self.consume_queues, settings)
        last_stop = LastStop.CLEAN if self.started_clean else LastStop.KILLED if same_boot else LastStop.CRASHED
        return FoundStore(
            last_stop,
            self.commit_log,
            self.consume_queues,
            self.index if self._indexes else None,
            self.checkpoint.min_timestamp_ms,
            self.epochs.epochs.current.start_offset_bytes,
            check_crc=settings.check_crc_on_recover,
            skips_damage=settings.compat == "safe",
        )

    def _recovery(self) -> Recovery:
        return Recovery(
            self.disk,
            self.root / "flint" / "quarantine",
            self.commit_log,
            self.consume_queues,
            self.index,
            self.checkpoint,
            self.epochs,
            self._mark_abort,
        )

    def begin_tags_codes(self) -> None:
        """Have the rules of tags codes note from where on they hold; call it before :meth:`start`.

        Raises:
            StoreError: the disk refused; then the note is missing until the next start.
        """
        for rule in self.commit_log.tags_codes.values():
            rule.begin(self.watermarks.wrote)

    @property
    def commit_log_folders(self) -> tuple[Path, ...]:
        """Where the commit log's files are made."""
        paths = self.config.store.commit_log_paths
        return tuple(Path(path) for path in paths) if paths else (self.root / "commitlog",)

    @property
    def free_pool_buffers(self) -> int | None:
        """Buffers of the transient store pool that no file has; None without a pool."""
        return self._pool.available_buffers if self._pool is not None else None

    @property
    def background(self) -> Executor | None:
        """The thread for slow file work, in order; None without one."""
        return self._allocator

    def _mark_abort(self) -> None:
        """A crash from here on must be noticed, also where the store had been stopped."""
        if self.started_clean:
            self.disk.write_file(self.abort_file, b"")

    def start(self, dispatchers: Sequence[CommitLogDispatcher]) -> None:
        """Let the dispatchers catch up, then start the flush services and mark the store as in use.

        Args:
            dispatchers: the receivers of records, in this order: among them :attr:`consume_queues`, and :attr:`index`
                where it is fed, or what wraps them. The store closes them, last one first.

        Raises:
            StoreError: a record cannot be read, an essential dispatcher gave up, or the disk is full.
        """
        self.reput.dispatchers = tuple(dispatchers)
        with self._disk_errors():
            try:
                self._catch_up()
            except BaseException as error:
                if isinstance(error, OSError):
                    self._forget_boot()  # it may have been a sync
                raise
            self.commit_log.appender.next_queue_offset = self._next_queue_offsets()
            self._make_services()
            self._mark_boot()
            self.disk.write_file(self.abort_file, b"")
        if self.config.store.warm and not self.commit_log.queue.files:
            self.commit_log.queue.prepare(0)
        self._started = True
        self._start_services()

    def _catch_up(self) -> None:
        """Hands the dispatchers whatever they lack of the log, as :meth:`start` says."""
        self._replay()
        self.reput.catch_up()
        if self.reput.error is not None:
            raise self.reput.error
        if not self.started_clean or (self.recovered is not None and self.recovered.holes):
            self.consume_queues.correct_min_offsets(self.commit_log.min_offset_bytes)

    def _replay(self) -> None:
        """Has dispatchers forget what the log has lost, and hands them what they lack of what is dispatched."""
        truncate(self.reput.dispatchers, self.watermarks.wrote)
        replay(self.reput.dispatchers, self.commit_log, self.watermarks.dispatched)

    def _next_queue_offsets(self) -> dict[tuple[str, int], int]:
        return {key: queue.max_queue_offset for key, queue in self.consume_queues.queues.items()}

    def _make_services(self) -> None:
        settings = self.config.store
        self._flusher = QueueFlusher(
            self.consume_queues,
            self.checkpoint,
            self.clock,
            interval_ms=settings.flush_consume_queue_interval_ms,
            least_pages=settings.flush_consume_queue_least_pages,
            thorough_interval_ms=settings.flush_consume_queue_thorough_interval_ms,
            sync_failed=self._forget_boot,
        )
        self.flush_service = self.strategy.factory(
            FlushContext(log=self.commit_log, clock=self.clock, settings=self._settings, pool=self._pool)
        )

    def _start_services(self) -> None:
        self.flush_service.start()
        self._flusher.start()

    def _forget_boot(self) -> None:
        """After a failed sync the kernel may drop pages: the next start must not take those in memory for what is on disk."""
        with contextlib.suppress(OSError, StoreError):
            self.disk.remove(self.boot_file)

    def _mark_boot(self) -> None:
        now = self.disk.incarnation(self.root).encode()
        if not self._same_boot() and now:
            self.disk.make_folder(self.boot_file.parent)
            self.disk.write_file(self.boot_file, now)

    def close(self) -> None:
        """Makes everything durable, releases every file and the lock. Leaves ``abort`` behind only when something failed."""
        if self._lock is None:
            return
        clean = False
        with self._disk_errors():
            try:
                if self._started:
                    self.watermarks.replicated = None  # no reader is left, and what is in the log belongs into queues
                    self.flush_service.stop()
                    clean = self._settle()
            finally:
                self._release(clean=clean)

    def end_writes(self) -> None:
        """Make everything that was appended durable, as far as that can be done. Nothing is appended any more. Blocks.

        Positions that stand for what is in the log can be written then, before :meth:`close`.

        Raises:
            StoreError: the disk refused something.
        """
        if self._started:
            with self._disk_errors():
                self.flush_service.stop()

    def _release(self, *, clean: bool = False) -> None:
        """Gives back what was opened, however far that went."""
        with contextlib.ExitStack() as stack:
            if self._lock is not None:
                stack.callback(self._lock.release)
                self._lock = None
            if clean:
                stack.callback(self.disk.remove, self.abort_file)
            if self._pool is not None:
                stack.callback(self._pool.close)
            stack.callback(self._close_files)
            stack.callback(self._close_dispatchers)
            if self._allocator is not None:
                if hasattr(self, "commit_log"):
                    self.commit_log.queue.closing = True
                stack.callback(self._allocator.shutdown, wait=True)
                self._allocator = None

    def _close_dispatchers(self) -> None:
        """Whatever they still do with the store's files comes before those are closed."""
        dispatchers = self.reput.dispatchers if hasattr(self, "reput") else ()
        for dispatcher in reversed(dispatchers):
            inner = getattr(dispatcher, "inner", dispatcher)
            if inner not in (self.consume_queues, self.index) and isinstance(dispatcher, SupportsClose):
                dispatcher.close()

    def _close_files(self) -> None:
        for close in reversed(self._opened):
            close()
        self._opened.clear()

    def _settle(self) -> bool:
        self._flusher.stop()
        marks = self.watermarks
        if marks.fence_reason is not None:
            return False
        if getattr(self.flush_service, "failure", None) is not None or marks.flushed < marks.wrote:
            log.error("the log is on disk up to %d of %d only; the next start will recover", marks.flushed, marks.wrote)
            return False
        try:
            while self.reput.run():
                pass
            self.index.flush()
            self._flusher.flush(0)
        except (OSError, StoreError) as error:
            log.error("the store could not be left clean; the next start will recover: %s", error)
            return False
        return self.reput.error is None and self.watermarks.dispatched >= self.watermarks.wrote

    def _fence(self, reason: str) -> None:
        if self.watermarks.fence_reason is None:
            self.watermarks.fence_reason = reason
            log.critical("%s", reason)
            self._fenced(reason)

    def _fenced(self, reason: str) -> None:
        self._forget_boot()
        self.fenced.publish(reason)

    def update_config(self, config: BrokerConfig) -> None:
        """Takes settings that may change while running (reads and limits)."""
        self.config = config
        self._reader.settings = config.store

    # write

    def check_writeable(self) -> None:
        """Raises RefusedError (SERVICE_NOT_AVAILABLE) when nothing may be written now; says why and what to do."""
        if self.config.broker.is_slave and self.watermarks.fence_reason is None:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now: the broker is a slave; send to its master",
                reason="store.slave",
                key="broker.role (brokerRole)",
            )
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
        """Appends messages and asks for their durability: one waiter for all of them.

        Raises:
            RefusedError: the store is not writeable.
        """
        self.check_writeable()
        began_s, began_bytes = self.clock.monotonic_s(), self.watermarks.wrote
        try:
            results = self.commit_log.append(messages)
        except StoreFencedError as error:
            raise RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, str(error), reason="store.fenced") from error
        except Exception as error:
            # What is written and which offsets are given away is unknown now: only a restart can tell.
            self._fence(f"an append failed: {type(error).__name__}: {error}; restart the broker to recover")
            raise
        took_s = self.clock.monotonic_s() - began_s
        units: list[AppendUnit] = []
        batches: list[AppendedBatch] = []
        for result in results:
            if type(result) is DispatchRequest:
                units.append(result)
            elif type(result) is AppendedBatch:
                units.append(result)
                batches.append(result)
            elif type(result) is list:
                units += result
        self.reput.appended(units, batches)
        waiter = self.promise()
        self.appended.publish()
        stored = len(units) - len(batches) + count_messages(batches) if batches else len(units)
        if took_s > SLOW_S:
            self._tell_slow_append(took_s, stored, began_bytes)
        return Put(results, units, stored, waiter, took_s)

    def promise(self) -> FlushWaiter:
        """Ask for the durability of everything that was appended so far, here and at a slave where one is waited for.

        Returns:
            What becomes of it.
        """
        wrote = self.watermarks.wrote
        waiter = self.flush_service.submit(wrote)
        return waiter if self._gate is None else self._gate.promise(wrote, waiter)

    def wait_for_slaves(self, gate: ReplicationGate) -> None:
        """From now on acknowledge an append when it is durable here and a slave holds it."""
        self._gate = gate

    def _tell_slow_append(self, took_s: float, messages: int, began_bytes: int) -> None:
        file = self.commit_log.queue.last()
        self._slow_appends.warn(
            f"[NOTIFYME]putMessage in lock cost time(ms)={took_s * 1000:.0f}, {messages} messages, "
            f"{self.watermarks.wrote - began_bytes} bytes at {began_bytes}, file {file.path if file is not None else 'none'}"
        )

    def append_raw(self, chunks: Sequence[LogChunk]) -> FlushWaiter:
        """Appends checked pieces of a master's log and asks for their durability: one waiter for all of them.

        Raises:
            StoreError: the store is fenced, full, or the pieces do not follow its end. What came before that was appended.
        """
        began_s, began_bytes = self.clock.monotonic_s(), self.watermarks.wrote
        for chunk in chunks:
            self.commit_log.append_raw(chunk.offset_bytes, chunk.data, chunk.store_timestamp_ms)
        took_s = self.clock.monotonic_s() - began_s
        if took_s > SLOW_S:
            self._tell_slow_append(took_s, sum(chunk.messages for chunk in chunks), began_bytes)
        return self.flush_service.submit(self.watermarks.wrote)

    def become_master(self) -> None:
        """Begins an epoch at the log's end, before anything is appended that slaves may get. Raises StoreError."""
        epochs, end = self.epochs.epochs, self.watermarks.wrote
        # What the recovery of this start or the last one found out is still true, and slaves must know of it.
        recovered = epochs.current.start_offset_bytes == end and epochs.current.cause == RECOVERED
        self.epochs.begin(end, RECOVERED if recovered else MASTER, self.commit_log.min_offset_bytes)

    def truncate(self, end_offset_bytes: int) -> Path | None:
        """Ends the log of a slave earlier, for good; what is cut is kept in the quarantine. Loop thread; blocks on the disk.

        Queues and index are as if the rest had never been. The flush services are stopped meanwhile.

        Args:
            end_offset_bytes: where a record begins, or the log ends.

        Returns:
            Where the bytes are that were cut; None when there were none.

        Raises:
            StoreError: the disk refused something. The store is fenced then: a restart recovers it.
        """
        self.flush_service.stop()
        self._flusher.stop()
        if self.watermarks.fence_reason is not None:
            raise StoreFencedError(self.watermarks.fence_reason)
        try:
            with self._disk_errors():
                kept = self._truncate(end_offset_bytes)
        except StoreError as error:
            self._fence(f"the log could not be cut: {error}; restart the broker to recover")
            raise
        self._make_services()
        self._start_services()
        return kept

    def _truncate(self, end_offset_bytes: int) -> Path | None:
        self.index.flush()
        kept = self._recovery().cut_back(end_offset_bytes)
        self.watermarks.dispatched = min(self.watermarks.dispatched, end_offset_bytes)
        self.reput.forget()
        self.commit_log.appender.next_queue_offset = self._next_queue_offsets()
        self._replay()
        return kept

    def dispatch(self) -> bool:
        """Hands what is readable to the dispatchers; returns whether more is left."""
        return self.reput.run()

    # read

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """The next message's logical offset; 0 for a queue that does not exist."""
        queue = self.consume_queues.find(topic, queue_id)
        return queue.max_queue_offset if queue is not None else 0

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """The oldest message's logical offset; 0 for a queue that does not exist."""
        queue = self.consume_queues.find(topic, queue_id)
        return queue.min_queue_offset if queue is not None else 0

    def queue_offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The message nearest in time (docs/internals/algorithms.md, Offset by time); binary search."""
        queue = self.consume_queues.find(topic, queue_id)
        if queue is None:
            return 0
        return queue.queue_offset_by_time(
            timestamp_ms, self.commit_log.min_offset_bytes, self.commit_log.store_timestamp_ms
        )

    def message_store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time in ms of a message, -1 when there is none at that offset."""
        queue = self.consume_queues.find(topic, queue_id)
        unit = queue.unit(queue_offset) if queue is not None else None
        return self.commit_log.store_timestamp_ms(unit[0]) if unit is not None else -1

    def earliest_message_store_time(self, topic: str, queue_id: int) -> int:
        """Store time in ms of a queue's oldest message, -1 for an empty one."""
        return self.message_store_time(topic, queue_id, self.min_queue_offset(topic, queue_id))

    def check_in_mem_by_consume_offset(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message still counts as in memory; also true where there is none.

        See docs/internals/algorithms.md, Offset by time.
        """
        queue = self.consume_queues.find(topic, queue_id)
        unit = queue.unit(queue_offset) if queue is not None else None
        return unit is None or self._reader.is_in_memory(unit[0])

    def message_at(self, commit_log_offset_bytes: int) -> rec.Record | None:
        """The record at a physical offset, or None when no whole record begins there."""
        return self.commit_log.record(commit_log_offset_bytes)

    def get_message(
        self, topic: str, queue_id: int, queue_offset: int, max_num: int, message_filter: MessageFilter | None
    ) -> GetMessageResult:
        """Read a queue from an offset on; see :meth:`.MessageReader.get_message`."""
        return self._reader.get_message(topic, queue_id, queue_offset, max_num, message_filter)

    def query_message(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[memoryview], int, int]:
        """Records of a topic with a key (KEYS or UNIQ_KEY), with the index's last time and offset.

        The newest ``max_num`` candidates, in the order of the log, as RocketMQ answers them.
        The index only knows hashes, so each candidate is checked against the record: topic, key and store time.
        """
        return run_steps(self.query_message_steps(topic, key, max_num, begin_timestamp_ms, end_timestamp_ms))

    def query_message_steps(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> Generator[None, None, tuple[list[memoryview], int, int]]:
        """Find messages by key; yields after some milliseconds of work, so that a server can do other things in between."""
        return find_by_key(self.commit_log, self.index, topic, key, max_num, begin_timestamp_ms, end_timestamp_ms)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic's queues, files and all; its records stay in the log until they expire."""
        self._dispatch_all()  # what is under way must not make the queue again
        for key in [key for key in self.consume_queues.queues if key[0] == topic]:
            self.consume_queues.delete_queue(*key)
        next_offsets = self.commit_log.appender.next_queue_offset
        for key in [key for key in next_offsets if key[0] == topic]:
            del next_offsets[key]

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Deletes one queue; its next message, if one comes, has logical offset 0, as in RocketMQ."""
        self._dispatch_all()
        self.consume_queues.delete_queue(topic, queue_id)
        self.commit_log.appender.next_queue_offset.pop((topic, queue_id), None)

    def _dispatch_all(self) -> None:
        while self.reput.run():
            pass

    def topics(self) -> set[str]:
        """Topics that have queues."""
        return {topic for topic, _queue in self.consume_queues.queues}


def _nothing() -> None:
    """Do nothing before a repair."""


__all__ = ["MessageStore"]
