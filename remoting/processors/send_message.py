"""Stores and answers the requests SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (10, 310, 320).

The code is optimized for speed, because it runs for every send. All sends that arrive in one iteration of the event loop, over
all connections, are stored with one append (:class:`SendQueue`). One waiter reports when the stored messages are durable. The
answers of each connection are sent in one write (:class:`SendAnswers`).

With ``admission.fast_failure``, sends that have waited too long are refused (docs/internals/algorithms.md, Flow control)::

    read ──► wait until all ready sockets are read ──► append ──► flush ──► answer
         └─ admission.send_wait_ms ─┘                  └─ admission.page_cache_busy_ms ─┘

RocketMQ checks its queue of sends every 10 ms. FlintMQ knows the time of each read, and checks the sends of the read before
they are stored. One thread both reads sockets and appends messages. Nothing is read during an append, so sends that arrive
during a long append wait in their sockets. Sends that waited too long, in the socket or in the event loop, are answered with
SYSTEM_BUSY. The remark says whether the sends waited in the socket or in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

from flintmq.config.sections.models import AdmissionSection
from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.sink import Incoming, Stored, not_durable, not_stored, told_durable
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.kernel.ports import AppendedBatch, AppendUnit, DispatchRequest, FlushStatus
from flintmq.core.kernel.ports.processor import Request, RequestChannel, Response, handles
from flintmq.core.kernel.ports.server import RequestPool
from flintmq.core.log.slow import SLOW_S, SlowLog
from flintmq.core.log_events import event_log
from flintmq.core.record.batch import MessageBatch, look_into_steps
from flintmq.core.record.host import batch_message_id, offset_message_id
from flintmq.core.record.java_number import number_or
from flintmq.core.record.properties import REAL_QUEUE_ID
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ONEWAY_FLAG, ResponseCode
from flintmq.remoting.processors import needs
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import JSON
from flintmq.remoting.wire.fast_json import make_batch_ok_encoder, make_send_ok_encoder
from flintmq.remoting.wire.headers_message import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from flintmq.remoting.wire.refusal import refusal_of

log = event_log("flintmq.remoting")

_SEND: Final = int(RequestCode.SEND_MESSAGE)
_SEND_V2: Final = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_MUCH_BYTES: Final = 1024 * 1024
"""Total size of sends above which the sends are decoded, checked, stored and dispatched in several iterations of the event
loop."""

_sends = partial(handles, answer=SendMessageResponseHeader, pool="send")

SHARE_BYTES: Final = 4 * 1024 * 1024
"""Maximum total size, in bytes, of the bodies of sends that are stored together. The value is the default of RocketMQ's
``maxMessageSize``, the limit of one batch. Further sends wait for the next iteration of the event loop."""

StoreShare = Callable[[list[Request], int], "Iterator[None] | None"]
"""Function that stores sends. Its arguments are the sends and the total size of their bodies. It returns None if the sends are
stored. If storing takes too long for one iteration of the event loop, it returns an iterator of the remaining steps, and each
iteration of the event loop does one step."""


class SendQueue:
    """Collects send requests and stores them in groups, one group after the other. The bodies of a group have at most
    ``SHARE_BYTES`` bytes in total.

    Used only on the event loop's thread.

    Args:
        store: a function that stores one group of requests. If the function raises an exception, the requests of this group get
            no answers, but the next groups are stored.
        loop: returns the broker's event loop.
        at_turn_end: a function that registers a callback. The callback is called once every socket that is ready in this
            iteration of the event loop has been read.
    """

    def __init__(
        self,
        store: StoreShare,
        loop: Callable[[], asyncio.AbstractEventLoop],
        at_turn_end: Callable[[Callable[[], None]], None],
    ) -> None:
        self._store = store
        self._at_turn_end = at_turn_end
        self._loop = loop
        self._pending: list[Request] = []
        self._is_draining = False
        """Whether the call that stores the pending sends is scheduled or running."""

    def __len__(self) -> int:
        """Return the number of send requests whose messages are not stored yet."""
        return len(self._pending)

    def add(self, batch: list[Request]) -> None:
        """Add the send requests of one read.

        The requests are stored when every socket that is ready in this iteration of the loop has been read.
        """
        if not self._is_draining:
            self._is_draining = True
            self._at_turn_end(self._drain)
        self._pending += batch

    def _drain(self) -> None:
        steps = None
        try:
            steps = self._store(*self._take())
        finally:
            if steps is None:
                self._go_on()
        if steps is not None:
            self._loop().call_soon(self._step, steps)

    def _step(self, steps: Iterator[None]) -> None:
        """Do one step of storing send requests with many bytes. Requests that arrive during the steps are stored after the last
        step."""
        is_done = True
        try:
            for _ in steps:
                is_done = False
                break
        finally:
            if is_done:
                self._go_on()
        if not is_done:
            self._loop().call_soon(self._step, steps)

    def _go_on(self) -> None:
        self._is_draining = bool(self._pending)
        if self._is_draining:
            self._loop().call_soon(self._drain)

    def _take(self) -> tuple[list[Request], int]:
        """Remove from the queue the oldest send requests, which are stored together. Their bodies have at most
        :data:`SHARE_BYTES` in total, unless the first body is larger.

        Return these requests and the total size of their bodies in bytes.
        """
        pending, self._pending = self._pending, []
        sizes = [len(request.body) for request in pending]
        size_bytes = sum(sizes)
        if size_bytes > SHARE_BYTES:
            while len(sizes) > 1 and size_bytes > SHARE_BYTES:
                size_bytes -= sizes.pop()
            self._pending = pending[len(sizes) :]
            del pending[len(sizes) :]
        return pending, size_bytes


_SOON_S: Final = 0.1
"""Time in seconds after the end of an append to the commit log. If send requests are read from a connection within this time,
they are assumed to have waited in the socket during the append, and fast failure checks the append's duration for them."""
_TEXT: Final = "broker busy, start flow control for a while, period in queue: %.0fms, size of queue: %d"


class FastFailure:
    """Finds send requests that have waited too long, so that the broker refuses them. Used only on the event loop's thread.

    There are two limits. First, the time since a request was read from its connection must not exceed
    ``admission.send_wait_ms``. Second, if a request was read directly after an append to the log, the request is assumed to
    have waited in the socket during the append. The append must then not have taken longer than
    ``admission.page_cache_busy_ms``.
    """

    def __init__(self) -> None:
        self._reads: list[tuple[float, int, float]] = []
        """Send requests that are not stored yet, as one tuple for each read from a connection: time of the read in seconds,
        number of send requests, and duration in seconds of the append that ended directly before the read. The duration is 0 if
        the last append had ended at least :data:`_SOON_S` seconds before the read."""
        self._append_s = 0.0
        self._append_end_s = -_SOON_S

    def arrived(self, now_s: float, count: int) -> None:
        """Record that send requests were read from a connection.

        Args:
            now_s: time of the read.
            count: number of send requests in the read.
        """
        self._reads.append((now_s, count, self._append_s if now_s - self._append_end_s < _SOON_S else 0.0))

    def appended(self, end_s: float, took_s: float) -> None:
        """Record the end and the duration, in seconds, of an append to the commit log."""
        self._append_end_s, self._append_s = end_s, took_s

    def overdue(
        self, pending: list[Request], now_s: float, admission: AdmissionSection, left: int = 0
    ) -> list[tuple[Request, RefusedError]]:
        """Return the send requests that have waited too long, each with its refusal. Each request is checked once.

        Args:
            pending: the sends to be stored now, in the order of their arrival.
            now_s: the current time.
            admission: the settings with the limits of waiting times.
            left: number of sends that arrived later and wait for the next iteration of the loop.
        """
        if sum(count for _, count, _ in self._reads) != len(pending) + left:
            # The times at which some sends were read are unknown, because fast failure was off. No send counts as overdue.
            self._reads.clear()
            return []
        found: list[tuple[Request, RefusedError]] = []
        at = 0
        while at < len(pending):
            read_s, count, append_s = self._reads[0]
            taken = min(count, len(pending) - at)
            error = self._why((now_s - read_s) * 1000, append_s * 1000, len(pending), admission)
            if error is not None:
                found += [(request, error) for request in pending[at : at + taken]]
            at += taken
            if taken == count:
                del self._reads[0]
            else:
                self._reads[0] = (read_s, count - taken, append_s)
        return found

    @staticmethod
    def _why(waited_ms: float, append_ms: float, size: int, admission: AdmissionSection) -> RefusedError | None:
        if append_ms > admission.page_cache_busy_ms:
            return RefusedError(
                ResponseCode.SYSTEM_BUSY,
                "[PCBUSY_CLEAN_QUEUE]" + _TEXT % (append_ms + waited_ms, size),
                reason="admission.page_cache_busy",
                measured=f"up to {append_ms:.0f} ms in its socket while an append ran, {waited_ms:.0f} ms in the "
                "event loop",
                key="admission.page_cache_busy_ms (osPageCacheBusyTimeOutMills)",
            )
        if waited_ms > admission.send_wait_ms:
            return RefusedError(
                ResponseCode.SYSTEM_BUSY,
                "[TIMEOUT_CLEAN_QUEUE]" + _TEXT % (waited_ms, size),
                reason="admission.send_wait",
                measured=f"{waited_ms:.0f} ms in the event loop between its read and its append, the append before took "
                f"{append_ms:.0f} ms",
                key="admission.send_wait_ms (waitTimeMillsInSendQueue)",
            )
        return None


_SUCCESS: Final = int(ResponseCode.SUCCESS)
Owner = tuple[Request, int]
"""A send, and the queue id that its answer contains."""


class SendAnswers:
    """Answers the send requests that a pool has accepted. Used only on the event loop's thread.

    Args:
        api: the broker.
        pool: the pool. Each answer reduces the number of requests that wait in the pool.
    """

    def __init__(self, api: BrokerApi, pool: RequestPool) -> None:
        self._api = api
        self._server = api.server
        self._pool = pool
        self._broker = api.settings.current.broker
        self._make_encoders()

    def _make_encoders(self) -> None:
        said = self._broker.region, self._broker.trace_on, self._api.address.packed_hex
        self._encode, self._encode_batch = make_send_ok_encoder(*said), make_batch_ok_encoder(*said)

    def stored(
        self,
        owners: Sequence[Owner],
        results: Sequence[AppendUnit | RefusedError],
        status: FlushStatus,
        began_s: float = 0.0,
    ) -> None:
        """Answer send requests after their append and the wait for their durability. :meth:`flush` sends the answers.

        Successful answers in JSON are encoded directly to bytes, unless a plugin's hook reads every answer.

        Args:
            owners: the send requests, each with the queue id for its answer.
            results: for each send, the position of its message or batch in the log, or its refusal.
            status: the result of the wait. FLUSHED also stands for sends that did not have to wait.
            began_s: start of the latency measurement for sends that were read in an earlier iteration of the event loop; 0 for
                sends read in this iteration.
        """
        # The encoders contain values of the broker's settings, so they are made again after a change of the settings.
        if self._api.settings.current.broker is not self._broker:
            self._broker = self._api.settings.current.broker
            self._make_encoders()
        as_bytes = status is FlushStatus.FLUSHED and self._server.answers_as_bytes
        encode, encode_batch = self._encode, self._encode_batch
        singles: dict[RequestChannel, list[bytes | memoryview]] = {}
        batches: dict[RequestChannel, list[bytes | memoryview]] = {}
        answered: list[tuple[Request, list[bytes | memoryview]]] = []
        """Pairs of the first request of a connection and the encoded answers that the connection gets. A connection with single
        sends and batches has one pair for its single sends and another pair for its batches. All requests of a pair have the
        same request code, because a client uses only one code for single sends."""
        for (request, queue_id), result in zip(owners, results, strict=True):
            if not as_bytes or request.codec != JSON or request.flag & ONEWAY_FLAG:
                self._respond(request, queue_id, result, status, began_s)
                continue
            if type(result) is DispatchRequest:
                answer = encode(request.opaque, queue_id, result.commit_log_offset_bytes, result.queue_offset)
                of_kind = singles
            elif type(result) is AppendedBatch:
                answer = encode_batch(request.opaque, queue_id, result.positions, result.queue_offset)
                of_kind = batches
            else:
                self._respond(request, queue_id, result, status, began_s)
                continue
            channel = request.channel
            if channel in of_kind:
                of_kind[channel].append(answer)
            else:
                of_kind[channel] = [answer]
                answered.append((request, of_kind[channel]))
        latency = self._server.latency
        now_s = 0.0 if latency is None else self._api.clock.monotonic_s()
        for request, answers in answered:
            channel = request.channel
            self._pool.waiting -= len(answers)
            channel.gave(len(answers))
            channel.write_all(answers)
            if latency is not None:
                latency.note(request.code, now_s - (began_s or channel.read_s), len(answers))

    def _respond(
        self,
        request: Request,
        queue_id: int,
        unit: AppendUnit | RefusedError,
        status: FlushStatus,
        began_s: float,
    ) -> None:
        request.read_s = began_s
        if isinstance(unit, RefusedError):
            self.refuse(request, unit)
            return
        channel = request.channel
        self._pool.waiting -= 1
        channel.gave(1)
        if request.flag & ONEWAY_FLAG:
            if self._server.latency is not None:
                took_s = self._api.clock.monotonic_s() - (began_s or channel.read_s)
                self._server.latency.add(request.code, _SUCCESS, took_s, is_oneway=True)
            return
        refusal = not_durable(status)
        if status is FlushStatus.FENCED and refusal is not None:
            channel.refuse(request, refusal)
            return
        host, broker = self._api.address.packed_hex, self._broker
        if isinstance(unit, DispatchRequest):
            message_id = offset_message_id(host, unit.commit_log_offset_bytes)
        else:
            message_id = batch_message_id(host, unit.positions)
        fields = {
            "queueId": str(queue_id),
            "TRACE_ON": "true" if broker.trace_on else "false",
            "MSG_REGION": broker.region,
            "msgId": message_id,
            "queueOffset": str(unit.queue_offset),
        }
        code, remark = (0, None) if refusal is None else (refusal.code, refusal.remark)
        if refusal is not None:
            self._api.figures.counts.undurable(refusal.reason)
        channel.respond(request, Response(code, remark, fields))

    def refuse(self, request: Request, error: RefusedError) -> None:
        """Refuse a send request whose message is not stored, and count the refusal."""
        self._api.figures.counts.refused()
        self._pool.waiting -= 1
        request.channel.gave(1)
        request.channel.refuse(request, error)

    @staticmethod
    def flush(requests: Iterable[Request]) -> None:
        """Write the collected answers to send requests to their sockets, with one write for each connection."""
        for channel in {request.channel for request in requests}:
            channel.flush()


class SendMessageProcessor:
    """Stores the messages of send requests and answers the requests. It corresponds to RocketMQ's ``SendMessageProcessor``.

    Used only on the event loop's thread, except the callback of the flush waiter, which runs on the flush thread.
    """

    may_wait: ClassVar = False

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._pool = pool = api.server.pool("send")
        self._holding = api.topics.holding_topics
        """Topics that keep messages until the broker delivers them to other topics, for example after a delay. The answer to a
        send to one of these topics contains the id of the queue in which the message will be delivered."""
        self._queue = SendQueue(self._store_share, lambda: api.work.loop, api.server.at_turn_end)
        self._answers = SendAnswers(api, pool)
        self._fast_failure = FastFailure()
        self._slow_puts = SlowLog(api.clock)

    @_sends(RequestCode.SEND_MESSAGE, header=SendMessageRequestHeader, needs=needs.send("topic"))
    @_sends(RequestCode.SEND_MESSAGE_V2, header=SendMessageRequestHeaderV2, needs=needs.send("b"))
    @_sends(RequestCode.SEND_BATCH_MESSAGE, header=SendMessageRequestHeaderV2, needs=needs.send("b"))
    def process(self, batch: list[Request]) -> None:
        """Store the messages of send requests and answer each request.

        All send requests that arrive in one iteration of the event loop share one append.
        """
        self._queue.add(batch)
        self._pool.waiting += len(batch)
        batch[0].channel.took(len(batch))
        if self._api.settings.current.admission.fast_failure:
            self._fast_failure.arrived(self._api.clock.monotonic_s(), len(batch))

    def _store_share(self, pending: list[Request], size_bytes: int) -> Iterator[None] | None:
        """Check send requests, store their messages and answer the requests.

        If the requests have many bytes, return an iterator; each of its steps does a part of the remaining work.
        """
        if not self._api.role.takes_writes:
            self._refuse_all(pending)
            return None
        messages: list[Incoming] = []
        owners: list[Owner] = []
        single = self._api.intake.single
        for request in self._in_time(pending) if self._api.settings.current.admission.fast_failure else pending:
            message: Incoming
            try:
                header = request.typed
                if type(header) is SendMessageRequestHeaderV2 and request.code == _SEND_V2 and not header.batch:
                    message = single(header, request.body, request.channel, request.version)
                else:
                    message = self._message(request)
            except RefusedError as error:
                self._answers.refuse(request, error)
                continue
            except StoreError as error:
                # A send is refused if its topic does not exist and the broker cannot create the topic because the disk failed.
                refused = not_stored(error)
                self._api.figures.counts.faults.refused(refused)
                self._answers.refuse(request, refused)
                continue
            except Exception as error:
                log.exception("send.failed", "a send of %(client)s failed", client=request.channel.remote_address)
                self._answers.refuse(request, refusal_of(error))
                continue
            messages.append(message)
            queue_id = message.queue_id
            # The answer contains the queue id that the client chose. A delayed or half message has this id in REAL_QUEUE_ID.
            if message.topic in self._holding and isinstance(message, MessageExtBrokerInner):
                queue_id = number_or(message.properties.get(REAL_QUEUE_ID), queue_id)
            owners.append((request, queue_id))
        if size_bytes > _MUCH_BYTES:
            return self._in_steps(pending, messages, owners)
        self._store(messages, owners)
        self._answered(pending)
        self._api.log.dispatch()
        return None

    def _in_steps(self, pending: list[Request], messages: list[Incoming], owners: list[Owner]) -> Iterator[None]:
        """Check large batches of messages in several steps. The last step stores and answers all send requests."""
        began_s = pending[0].channel.read_s
        try:
            for message in messages:
                if isinstance(message, MessageBatch):
                    for step in look_into_steps(message):
                        step()
                        yield
        except Exception as error:
            # An exception in the check of sends is a defect of the broker.
            # If the check of one send raises an exception, all sends checked with it are refused, and no message is stored.
            log.exception("send.intake_failed", "the check of %(sends)d sends failed", sends=len(owners))
            for request, _ in owners:
                self._answers.refuse(request, refusal_of(error))
            self._answers.flush(pending)
            return
        self._store(messages, owners, began_s)
        self._answered(pending)
        self._api.log.dispatch_soon()

    def _refuse_all(self, pending: list[Request]) -> None:
        """Refuse send requests to a slave, which neither stores clients' messages nor creates topics for them."""
        try:
            self._api.log.check_writeable()
        except RefusedError as error:
            for request in pending:
                self._answers.refuse(request, error)
        self._answers.flush(pending)

    def _in_time(self, pending: list[Request]) -> list[Request]:
        """Refuse the send requests that have waited too long, and return the remaining requests."""
        overdue = self._fast_failure.overdue(
            pending, self._api.clock.monotonic_s(), self._api.settings.current.admission, len(self._queue)
        )
        if not overdue:
            return pending
        for request, error in overdue:
            self._api.figures.counts.faults.refused(error)
            self._answers.refuse(request, error)
        refused = {id(request) for request, _ in overdue}
        return [request for request in pending if id(request) not in refused]

    def _store(self, messages: list[Incoming], owners: list[Owner], began_s: float = 0.0) -> None:
        """Append messages to the log, and answer their send requests at once or when the messages are durable.

        Args:
            messages: the messages.
            owners: the send requests of the messages.
            began_s: the monotonic time in seconds at which the requests were read from the connection, for measuring their
                latency. 0 if the requests were read in the current iteration of the event loop. The connection's last read is
                then used.
        """
        if not messages:
            return
        api = self._api
        try:
            stored = api.put(messages, dispatch=False)
        except Exception as error:
            if not isinstance(error, RefusedError):
                # An exception other than RefusedError is a defect of the broker.
                # If an append to the log fails, the sends of its messages are refused, so that no client waits for an answer.
                log.exception("send.append_failed", "an append of %(sends)d sends failed", sends=len(owners))
            for request, _ in owners:
                self._answers.refuse(request, refusal_of(error))
            return
        if api.settings.current.admission.fast_failure:
            self._fast_failure.appended(api.clock.monotonic_s(), stored.took_s)
        if stored.waiter.status is FlushStatus.FLUSHED:
            if api.figures.counts.faults.are_some:
                api.figures.counts.faults.durable()
            self._answers.stored(owners, stored.results, FlushStatus.FLUSHED, began_s)
        else:
            self._answer_when_flushed(messages, owners, stored)

    def _answer_when_flushed(self, messages: list[Incoming], owners: list[Owner], stored: Stored) -> None:
        """Answer at once the send requests that need not wait for a flush. Answer the other send requests when the flush waiter
        has ended."""
        waiting = [message.wait for message in messages]
        late, results = owners, stored.results
        if not all(waiting):
            now = [at for at, waits in enumerate(waiting) if not waits]
            self._answers.stored([owners[at] for at in now], [results[at] for at in now], FlushStatus.FLUSHED)
            late = [owner for owner, waits in zip(owners, waiting, strict=True) if waits]
            results = [result for result, waits in zip(results, waiting, strict=True) if waits]
        if late:
            began_s = self._api.clock.monotonic_s() - stored.took_s
            stored.waiter.add_done_callback(partial(self._flushed, late, results, began_s))

    def _flushed(
        self, late: list[Owner], results: Sequence[AppendUnit | RefusedError], began_s: float, status: FlushStatus
    ) -> None:
        """Schedule the answers of send requests whose wait for durability has ended. Called on the flush service's thread."""
        self._api.work.from_thread(self._answer_late, late, results, began_s, status)

    def _answer_late(
        self, late: list[Owner], results: Sequence[AppendUnit | RefusedError], began_s: float, status: FlushStatus
    ) -> None:
        entire_s = self._api.clock.monotonic_s() - began_s
        self._api.figures.counts.waited(entire_s)
        told_durable(status, self._api.figures.counts.faults, len(late))
        if entire_s > SLOW_S:
            first = results[0]
            at = -1 if isinstance(first, RefusedError) else first.commit_log_offset_bytes
            self._slow_puts.warn(
                entire_s,
                f"putMessage not in lock elapsed time(ms)={entire_s * 1000:.0f}: {len(late)} sends waited for their "
                f"durability, the first at {at}, and are answered {status.name}",
            )
        self._answers.stored(late, results, status, began_s)
        self._answered([request for request, _ in late])
        self._api.log.dispatch()

    def _answered(self, requests: list[Request]) -> None:
        """Write the answers of send requests to their sockets. Then notify the services that follow messages
        (``FollowsMessages``)."""
        self._answers.flush(requests)
        self._api.intake.answered()

    def _message(self, request: Request) -> Incoming:
        header = request.header(SendMessageRequestHeader if request.code == _SEND else SendMessageRequestHeaderV2)
        if header.batch or request.code == _SEND_BATCH:
            return self._api.intake.batch(header, request.body, request.channel)
        return self._api.intake.single(header, request.body, request.channel, request.version)
