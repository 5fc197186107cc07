"""The message store (``DefaultMessageStore``): opens, writes, reads and closes commit log, queues, index and checkpoint.

Loop thread, unless a text says otherwise. The store uses neither sockets nor asyncio. The store's owner calls
:meth:`MessageStore.put`, :meth:`MessageStore.dispatch` and the methods of :attr:`MessageStore.reader`. The owner subscribes to
``progressed``, which is published when a flush has made more records readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import (
    RefusedError,
    StoreError,
    StoreFencedError,
    StoreFormatError,
    StoreFullError,
    store_errors,
)
from flintmq.core.event import Event
from flintmq.core.io.clock import stopwatch_of
from flintmq.core.kernel.ports import CommitLogDispatcher, FlushWaiter, RecordBatch, SupportsClose, SupportsDeleted
from flintmq.core.log.commit_log import Appendable
from flintmq.core.log.no_room import no_room
from flintmq.core.log.slow import SlowOperation
from flintmq.core.log_events import event_log
from flintmq.core.record.sys_flag import is_queued
from flintmq.core.record.topic_lives import deleted_topic, deleted_topics, deletion
from flintmq.core.response_code import ResponseCode
from flintmq.core.retention.retention import DiskFull
from flintmq.core.store.ends_noter import EndsNoter
from flintmq.core.store.message_writer import MessageWriter, Put
from flintmq.core.store.opened_store import OpenedStore, StoreSpec, recover
from flintmq.core.store.reput_message_service import ReputMessageService
from flintmq.core.store.store_services import StoreServices

log = event_log("flintmq.store")

MakeDispatchers = Callable[[OpenedStore], Iterable[CommitLogDispatcher]]
"""Function that returns the dispatchers of records, in the order of dispatch.

The dispatchers include the store's ``consume_queues``, and the store's ``index`` if it is used, or wrappers of these objects.
The store closes the dispatchers in reverse order.
"""


def open_store(spec: StoreSpec, make_dispatchers: MakeDispatchers) -> MessageStore:
    """Recover a store, let its dispatchers catch up, mark the store as in use, and start its flush services.

    Args:
        spec: the specification of the store: its settings, factories and folder.
        make_dispatchers: makes the dispatchers; called when the store is recovered.

    Raises:
        StoreLockedError: another broker has locked the store.
        StoreFormatError: a file has an unexpected size or name.
        StoreError: the folder cannot be written, a record cannot be read, an essential dispatcher failed, or the disk is full.
    """
    opened = recover(spec)
    try:
        with store_errors(opened.root):
            return _started(opened, tuple(make_dispatchers(opened)))
    except BaseException:
        opened.close()
        raise


def _started(opened: OpenedStore, dispatchers: Sequence[CommitLogDispatcher]) -> MessageStore:
    for dispatcher in dispatchers:
        inner = getattr(dispatcher, "inner", dispatcher)
        if inner not in (opened.consume_queues, opened.index) and isinstance(dispatcher, SupportsClose):
            opened.dispatchers.callback(dispatcher.close)
    commit_log, reput = (
        opened.commit_log,
        ReputMessageService(opened.commit_log, dispatchers, stopwatch_of(opened.spec.clock)),
    )
    began_s = opened.spec.clock.monotonic_s()
    with opened.marks.distrusting_memory():
        reput.replay()
        reput.catch_up()
        if reput.error is not None:
            raise reput.error
        if not opened.started_clean or (opened.recovered is not None and opened.recovered.holes):
            opened.consume_queues.correct_min_offsets(commit_log.min_offset_bytes)
        opened.build_lost_queues()
    commit_log.appender.next_queue_offset = opened.next_queue_offsets()
    store = MessageStore(opened, reput, opened.spec.clock.monotonic_s() - began_s)
    opened.marks.mark_boot()
    opened.marks.mark_abort()
    store.noter.begin()
    if opened.config.store.warm and not commit_log.queue.files:
        commit_log.queue.prepare(0)
    store.services.start()
    return store


class MessageStore:
    """A recovered store that is in use, created by :func:`open_store`.

    Args:
        opened: the parts of the store.
        reput: the service that passes appended records to the dispatchers, which have caught up with the log.
        catch_up_s: the time that the dispatchers took to catch up.
    """

    def __init__(self, opened: OpenedStore, reput: ReputMessageService, catch_up_s: float) -> None:
        assert opened.recovery_plan is not None, "a store is recovered before it is in use"
        self._opened = opened
        self._closed = False
        self.config = opened.config
        """The broker's current settings."""
        self.root = opened.root
        self.clock = opened.spec.clock
        self.disk = opened.disk
        self.commit_log = opened.commit_log
        self.watermarks = opened.watermarks
        self.checkpoint = opened.checkpoint
        self.epochs = opened.epochs
        self.consume_queues = opened.consume_queues
        self.index = opened.index
        self.reader = opened.reader
        self.background = opened.background
        """The executor with one thread for slow file work; None if no file work runs in the background."""
        self.started_clean = opened.started_clean
        self.recovered = opened.recovered
        """Findings of the recovery; None if the recovery did not scan the log."""
        self.recovery_plan = opened.recovery_plan
        """Steps of the recovery, and the reasons for these steps."""
        self.recovery_s = opened.recovery_s
        """Duration of the recovery, in seconds."""
        self.catch_up_s = catch_up_s
        """Time that the dispatchers took at the start to catch up with the log, in seconds."""
        self.quarantine = opened.quarantine
        """The folder that keeps the bytes removed from the log."""
        self.progressed = opened.progressed
        """Event published on the flush service's thread when more records have become readable."""
        self.fenced = opened.fenced
        """Event published with the reason when a sync has failed; published once, on the flush service's thread."""
        self.appended: Event[[]] = Event()
        """Event published on the loop thread after each append of messages."""
        self.disk_full: DiskFull | None = None
        """Reason why writes are refused for lack of disk space; None if the space suffices. The cleaner of retention sets and
        clears the reason."""
        self.noted = opened.notes.noted
        """Ends of the store's files that were recorded before this start; None if no ends were recorded."""
        self.changed = opened.notes.changed
        """Names of small files of the store, such as tables, that differed from their recorded size or checksum when the store
        was opened."""
        self.mended = opened.notes.mended
        """Files of the store that this start found damaged or missing. The start rebuilt these files, or continued without
        them."""
        self.reput = reput
        self.noter = EndsNoter(opened)
        queues = self.consume_queues
        self._takes_writes = opened.spec.takes_writes
        self._tells_deleted = isinstance(queues, SupportsDeleted)
        if isinstance(queues, SupportsDeleted):
            queues.deleted.subscribe(self.noter.note_deleted)
            queues.deleted.subscribe(self._queue_deleted)
        self.services = StoreServices(opened, self.noter)
        self.writer = MessageWriter(
            self.commit_log,
            reput,
            self.services,
            self.clock,
            check_writeable=self.check_writeable,
            fence=self._fence,
            appended=self.appended.publish,
        )

    def _queue_deleted(self, topic: str, queue_id: int) -> None:
        """Remove a deleted queue's next queue offset on a slave. On a master, the call that deletes the queue removes it."""
        if not self._takes_writes():
            self.commit_log.appender.next_queue_offset.pop((topic, queue_id), None)

    @property
    def free_pool_buffers(self) -> int | None:
        """Number of free buffers of the transient store pool; None without a pool."""
        pool = self._opened.spec.pool
        return pool.available_buffers if pool is not None else None

    @property
    def slow_operations(self) -> dict[str, SlowOperation]:
        """The store's last slow operations, keyed by their kind: ``append``, ``flush`` or ``commit``."""
        durability = self.commit_log.durability
        logs = {
            "append": self.writer.slow_appends,
            "flush": durability.slow_flushes,
            "commit": durability.slow_commits,
        }
        return {kind: told.last for kind, told in logs.items() if told.last is not None}

    def close(self) -> None:
        """Make the whole store durable, and release all its files and its lock.

        The file ``abort`` stays only if a step failed.
        """
        if self._closed:
            return
        self._closed = True
        ends = None
        with store_errors(self.root), self._opened.lock:
            with self._opened.files:
                # No client reads while the store closes, so even records that have not reached a slave are dispatched.
                self.watermarks.replicated = None
                self.services.flush_service.stop()
                if self._settle():
                    ends = self.noter.at_stop()
            if ends is not None:
                self.noter.stopped(ends)
                self._opened.marks.remove_abort()

    def end_writes(self) -> None:
        """Make all appended records durable, if possible, and stop the flush service; no append may follow. Blocks.

        After this call and before :meth:`close`, the caller can write files that contain positions in the log.

        Raises:
            StoreError: the disk refused an operation.
        """
        if not self._closed:
            with store_errors(self.root):
                self.services.flush_service.stop()

    def _settle(self) -> bool:
        """Make the store's queues, index and checkpoint durable; return whether the next start can do without a recovery."""
        services, marks = self.services, self.watermarks
        services.flusher.stop()
        if marks.fence_reason is not None:
            return False
        if getattr(services.flush_service, "failure", None) is not None or marks.flushed < marks.wrote:
            log.error(
                "store.not_flushed",
                "the log is on disk only up to %(flushed_position)d of %(written_position)d; the next start will "
                "recover it",
                flushed_position=marks.flushed,
                written_position=marks.wrote,
            )
            return False
        try:
            self.reput.run_all()
            self.index.flush()
            services.flusher.flush(0)
        except (OSError, StoreError) as error:
            log.error(
                "store.not_clean",
                "the store could not be closed cleanly; the next start will recover it: %(error)s",
                error=error,
            )
            return False
        return self.reput.error is None and marks.dispatched >= marks.wrote

    def _fence(self, reason: str) -> None:
        if self.watermarks.fence_reason is None:
            self.watermarks.fence_reason = reason
            log.critical("store.fenced", "%(reason)s", reason=reason)
            self.fenced.publish(reason)

    def update_config(self, config: BrokerConfig) -> None:
        """Apply the settings of a new configuration that may change while the store is open: those of reads, and the limits."""
        self.config = config
        self.reader.settings = config.store

    # --- writes ---

    def check_writeable(self) -> None:
        """Raise RefusedError (SERVICE_NOT_AVAILABLE), with the reason and the remedy, if the store accepts no messages now."""
        if not self._takes_writes() and self.watermarks.fence_reason is None:
            why = "the broker is a slave; send to its master"
            raise _refusal(why, "store.slave", key="broker.role (brokerRole)")
        trouble = self.trouble
        if trouble is not None:
            raise trouble

    @property
    def trouble(self) -> RefusedError | None:
        """The gravest problem that forbids writes to the store, on a master or a slave; None without a problem."""
        fence_reason, full = self.watermarks.fence_reason, self.disk_full
        if fence_reason is not None:
            return _refusal("a sync failed and the store is fenced", "store.fenced", measured=fence_reason)
        if full is not None:
            return _refusal("the broker's disk is full", "store.disk_full", measured=full.measured, key=full.key)
        return _standing_still(self.reput.error) if self.reput.error is not None else None

    def put(self, messages: Sequence[Appendable]) -> Put:
        """Append messages and request that they be made durable; see :meth:`.MessageWriter.put`."""
        return self.writer.put(messages)

    def number_messages(self) -> None:
        """Set the next queue offset of each queue from the log, whose last messages were numbered by another master.

        Called when the store of a slave begins to accept writes. The call dispatches all readable records, and blocks.
        """
        self.reput.run_all()
        marks, numbers = self.watermarks, self._opened.next_queue_offsets()
        for batch in self.commit_log.batches(marks.dispatched, marks.wrote) if marks.dispatched < marks.wrote else ():
            for request in batch.requests():
                if is_queued(request.sys_flag):
                    numbers[request.topic, request.queue_id] = request.queue_offset + 1
                if deleted := deleted_topic(request):
                    numbers = {key: number for key, number in numbers.items() if key[0] != deleted}
        self.commit_log.appender.next_queue_offset = numbers

    def become_master(self) -> None:
        """Begin a new epoch at the log's end, before a new master's first append. Raises StoreError if the disk fails."""
        self.epochs.begin_as_master(self.watermarks.wrote, self.commit_log.min_offset_bytes)

    def truncate(self, end_offset_bytes: int) -> Path | None:
        """Truncate the log of a slave, and move the removed bytes to the quarantine. Loop thread; blocks on the disk.

        Queues and index are truncated accordingly. The flush services are stopped during the operation.

        Args:
            end_offset_bytes: the new physical end of the log: the start of a record, or the current end.

        Returns:
            The path of the removed bytes in the quarantine; None if no bytes were removed.

        Raises:
            StoreError: the disk refused an operation. The store then refuses all writes until a restart recovers it.
        """
        self.services.stop()
        if self.watermarks.fence_reason is not None:
            raise StoreFencedError(self.watermarks.fence_reason)
        try:
            with store_errors(self.root):
                self.index.flush()
                cut = self.commit_log.batches(end_offset_bytes, max(end_offset_bytes, self.watermarks.dispatched))
                undeleted = {topic for batch in cut for topic in deleted_topics(batch)}
                self.noter.forget()
                kept = self._opened.recovery().cut_back(end_offset_bytes)
                self.watermarks.dispatched = min(self.watermarks.dispatched, end_offset_bytes)
                self.reput.forget()
                if undeleted:
                    self._make_queues_again(undeleted)
                self.commit_log.appender.next_queue_offset = self._opened.next_queue_offsets()
                self.reput.replay()
        except StoreError as error:
            self._fence(f"the log could not be cut: {error}; restart the broker to recover")
            raise
        self.services.renew(self.config.store)
        return kept

    def _make_queues_again(self, topics: Set[str]) -> None:
        """Rebuild the queues of topics from the whole log, because a truncation removed the records of the topics' deletion."""
        for key in [key for key in self.consume_queues.queues if key[0] in topics]:
            self.consume_queues.delete_queue(*key)
        for batch in self.commit_log.batches(self.commit_log.min_offset_bytes, self.watermarks.dispatched):
            theirs = [one for one in batch.requests() if one.topic in topics or deleted_topic(one) in topics]
            self.consume_queues.dispatch(RecordBatch.of_requests(theirs))

    def dispatch(self) -> bool:
        """Pass readable records to the dispatchers, for a limited time; return whether readable records are left."""
        return self.reput.run()

    def delete_topic(self, topic: str) -> FlushWaiter:
        """Append a record of a topic's deletion to the log. The topic's queues are dropped when that record is dispatched.

        The topic's messages stay in the log. A new topic of the same name begins at queue offset 0, also on slaves and after a
        recovery, and does not contain the old messages.

        Returns:
            The waiter for the durability of the deletion record. The queues are deleted when the waiter is done and
            :meth:`dispatch` has no records left.

        Raises:
            RefusedError: the store is not writeable; nothing has changed.
            StoreError: no file could be created; nothing has changed.
        """
        keys = self._queues_of(topic)
        put = self.put([deletion(topic, self.clock.now_ms())])
        (stored,) = put.results
        if isinstance(stored, StoreFullError):
            raise no_room(stored)
        if isinstance(stored, Exception):
            raise stored
        for key in keys:
            if not self._tells_deleted:
                self.noter.note_deleted(*key)
            self.commit_log.appender.next_queue_offset.pop(key, None)
        self.reput.run_all()
        return put.waiter

    def _queues_of(self, topic: str) -> set[tuple[str, int]]:
        """Return the keys of a topic's queues, including queues that only appear in records not dispatched yet."""
        queues = self.consume_queues
        if isinstance(queues, SupportsDeleted):
            known = queues.queues_of(topic)
        else:
            known = [key for key in queues.queues if key[0] == topic]
        marks = self.watermarks
        waiting = self.commit_log.batches(marks.dispatched, marks.wrote) if marks.dispatched < marks.wrote else ()
        return {*known, *(key for batch in waiting for key in batch.queues() if key[0] == topic)}

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete a consume queue. If the queue gets another message, that message has queue offset 0, as in RocketMQ."""
        self.reput.run_all()
        if not self._tells_deleted:
            self.noter.note_deleted(topic, queue_id)
        self.consume_queues.delete_queue(topic, queue_id)
        self.commit_log.appender.next_queue_offset.pop((topic, queue_id), None)


def _refusal(why: str, reason: str, *, measured: str = "", key: str = "") -> RefusedError:
    text = f"service not available now: {why}"
    return RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, text, reason=reason, measured=measured, key=key)


def _standing_still(error: StoreError) -> RefusedError:
    if isinstance(error, StoreFullError):
        return no_room(error)
    if isinstance(error, StoreFormatError):
        why = "a record of the log cannot be read, and dispatch stands still; restart the broker"
        return _refusal(why, "store.damaged", measured=str(error))
    return _refusal("dispatch stands still", "store.dispatch", measured=str(error), key="dispatchers")
