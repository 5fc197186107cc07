"""SEND_MESSAGE and its kin (10, 310, 320): the hot path from a read to the acknowledgement.

All sends that arrive in one turn of the loop, over all connections, become one append; one waiter stands for their
durability; and each connection's answers leave in one write.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from flintmq.core.broker.durability import not_durable
from flintmq.core.broker.state import BrokerState
from flintmq.core.command_flag import ONEWAY_FLAG
from flintmq.core.errors import RefusedError, StoreError, StoreFullError
from flintmq.core.kernel.ports import AppendedBatch, DispatchRequest, FlushStatus
from flintmq.core.kernel.ports.processor import Request, RequestChannel, Response, handles
from flintmq.core.log.commit_log import Appended
from flintmq.core.log.no_room import no_room
from flintmq.core.log.slow import SLOW_S, SlowLog
from flintmq.core.record.batch import MessageBatch, look_into_steps
from flintmq.core.record.message_id import batch_message_id
from flintmq.core.record.properties import REAL_QUEUE_ID
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.fast_failure import FastFailure
from flintmq.remoting.server.server import Pool
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import JSON
from flintmq.remoting.wire.fast_answers import make_batch_ok_encoder, make_send_ok_encoder
from flintmq.remoting.wire.headers_message import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from flintmq.remoting.wire.refusal import refusal_of

log = logging.getLogger("flintmq.remoting")

_SEND_V2: Final = int(RequestCode.SEND_MESSAGE_V2)
_TURN_BYTES: Final = 4 * 1024 * 1024
"""Bodies taken in one turn of the loop; a largest batch has as many, and takes some 30 ms. What is left waits for the next."""
_MUCH_BYTES: Final = 1024 * 1024
"""More than this is not worked off in one go: taking it apart, looking into it, storing and dispatching have a turn each."""

_REDIRECTED: Final = frozenset({SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TIMER_TOPIC})
"""Where a send may lie instead of the queue it was meant for, which is what its answer names."""

Incoming = MessageExtBrokerInner | MessageBatch

Owner = tuple[Request, int]
"""A send, and the queue id that its answer names."""


class SendMessageProcessor:
    """Takes sends in batches. Loop thread; only the flush waiter's callback comes from another."""

    may_wait: ClassVar = False

    def __init__(self, state: BrokerState, pool: Pool) -> None:
        self._state = state
        self._pool = pool
        self._pending: list[Request] = []
        self._draining = False
        """Whether somebody will come for what is pending."""
        self._config = state.config
        self._make_encoders()
        self._fast_failure = FastFailure()
        self._slow_puts = SlowLog(state.clock)

    def _make_encoders(self) -> None:
        broker = self._config.broker
        said = broker.region, broker.trace_on, self._state.store_host_hex
        self._encode_ok, self._encode_batch_ok = make_send_ok_encoder(*said), make_batch_ok_encoder(*said)

    @handles(
        RequestCode.SEND_MESSAGE,
        header=SendMessageRequestHeader,
        answer=SendMessageResponseHeader,
        pool="send",
        needs=needs.send("topic"),
    )
    @handles(
        RequestCode.SEND_MESSAGE_V2,
        header=SendMessageRequestHeaderV2,
        answer=SendMessageResponseHeader,
        pool="send",
        needs=needs.send("b"),
    )
    @handles(
        RequestCode.SEND_BATCH_MESSAGE,
        header=SendMessageRequestHeaderV2,
        answer=SendMessageResponseHeader,
        pool="send",
        needs=needs.send("b"),
    )
    def process(self, batch: list[Request]) -> None:
        """Store the messages of sends and answer each; all sends of one loop iteration share one append."""
        if not self._draining:
            self._draining = True
            batch[0].channel.at_turn_end(self._drain)
        self._pending += batch
        self._pool.waiting += len(batch)
        batch[0].channel.took(len(batch))
        if self._config.admission.fast_failure:
            self._fast_failure.arrived(self._state.clock.monotonic_s(), len(batch))

    def _drain(self) -> None:
        try:
            self._work()
        except BaseException:
            self._go_on()  # a defect costs these sends their answers, and nobody else's
            raise

    def _work(self) -> None:
        pending, size_bytes = self._take()
        if self._state.config is not self._config:  # changed while running
            self._config = self._state.config
            self._make_encoders()
        if self._state.config.broker.is_slave:
            self._refuse_all(pending)
            self._go_on()
            return
        messages: list[Incoming] = []
        owners: list[Owner] = []
        single = self._state.intake.single
        for request in self._in_time(pending) if self._config.admission.fast_failure else pending:
            message: Incoming
            try:
                header = request.typed
                if type(header) is SendMessageRequestHeaderV2 and request.code == _SEND_V2 and not header.batch:
                    message = single(header, request.body, request.channel, request.version)
                else:
                    message = self._message(request)
            except RefusedError as error:
                self._refuse(request, error)
                continue
            except StoreError as error:  # a topic was to be made, and the disk refused it
                self._refuse(request, _refusal(error))
                continue
            except Exception as error:
                log.exception("a send of %s failed", request.channel.remote_address)
                self._refuse(request, refusal_of(error))
                continue
            messages.append(message)
            queue_id = message.queue_id if message.topic not in _REDIRECTED else self._meant_queue_id(message)
            owners.append((request, queue_id))
        if size_bytes > _MUCH_BYTES:
            steps = deque(
                step for message in messages if isinstance(message, MessageBatch) for step in look_into_steps(message)
            )
            self._state.loop.call_soon(self._step, steps, pending, messages, owners)
            return
        self._finish(pending, messages, owners)
        self._state.dispatch()

    def _step(
        self, steps: deque[Callable[[], None]], pending: list[Request], messages: list[Incoming], owners: list[Owner]
    ) -> None:
        """One turn's work on what is much; what arrives meanwhile comes behind it."""
        if steps:
            try:
                steps.popleft()()
            except Exception as error:  # a defect; nothing of these sends is stored
                log.exception("looking into %d sends failed", len(owners))
                for request, _ in owners:
                    self._refuse(request, refusal_of(error))
                self._flush(pending)
                self._go_on()
            else:
                self._state.loop.call_soon(self._step, steps, pending, messages, owners)
            return
        try:
            self._finish(pending, messages, owners)
            self._state.dispatch_soon()
        except BaseException:
            self._go_on()
            raise

    def _finish(self, pending: list[Request], messages: list[Incoming], owners: list[Owner]) -> None:
        if messages:
            self._store(messages, owners)
        self._flush(pending)
        self._go_on()

    def _go_on(self) -> None:
        self._draining = bool(self._pending)
        if self._draining:
            self._state.loop.call_soon(self._drain)

    def _take(self) -> tuple[list[Request], int]:
        """The sends of this turn, and the bytes of their bodies."""
        pending, self._pending = self._pending, []
        sizes = [len(request.body) for request in pending]
        size_bytes = sum(sizes)
        if size_bytes > _TURN_BYTES:
            while len(sizes) > 1 and size_bytes > _TURN_BYTES:
                size_bytes -= sizes.pop()
            self._pending = pending[len(sizes) :]
            del pending[len(sizes) :]
        return pending, size_bytes

    def _refuse_all(self, pending: list[Request]) -> None:
        """A slave takes no messages, and makes no topics for them."""
        try:
            self._state.store.check_writeable()
        except RefusedError as error:
            for request in pending:
                self._refuse(request, error)
        self._flush(pending)

    def _in_time(self, pending: list[Request]) -> list[Request]:
        """Refuses those that have waited too long; returns the others."""
        overdue = self._fast_failure.overdue(
            pending, self._state.clock.monotonic_s(), self._config.admission, len(self._pending)
        )
        if not overdue:
            return pending
        for request, error in overdue:
            self._refuse(request, error)
        refused = {id(request) for request, _ in overdue}
        return [request for request in pending if id(request) not in refused]

    def _store(self, messages: list[Incoming], owners: list[Owner]) -> None:
        state = self._state
        try:
            put = state.store.put(messages)
        except RefusedError as error:
            for request, _ in owners:
                self._refuse(request, error)
            return
        except Exception as error:
            # A defect must not leave clients without an answer; nothing of this batch is acknowledged.
            log.exception("an append of %d sends failed", len(owners))
            refusal = refusal_of(error)
            for request, _ in owners:
                self._refuse(request, refusal)
            return
        state.stats.stored(put.records, put.took_s, put.messages)
        if self._config.admission.fast_failure:
            self._fast_failure.appended(state.clock.monotonic_s(), put.took_s)
        waiter = put.waiter
        if waiter.status is FlushStatus.FLUSHED:
            self._answer_stored(owners, put.results)
            return
        late: list[tuple[Owner, Appended]] = []
        for owner, message, result in zip(owners, messages, put.results, strict=True):
            if message.wait or isinstance(result, Exception):
                late.append((owner, result))
            else:
                self._answer(owner, result, FlushStatus.FLUSHED)
        if late:
            waiter.add_done_callback(partial(self._flushed, late, state.clock.monotonic_s() - put.took_s))

    def _flushed(self, late: list[tuple[Owner, Appended]], began_s: float, status: FlushStatus) -> None:
        """On the flush service's thread."""
        self._state.loop.call_soon_threadsafe(self._answer_late, late, began_s, status)

    def _answer_late(self, late: list[tuple[Owner, Appended]], began_s: float, status: FlushStatus) -> None:
        entire_s = self._state.clock.monotonic_s() - began_s
        self._state.stats.waited(entire_s)
        if entire_s > SLOW_S:
            self._slow_puts.warn(
                f"putMessage not in lock elapsed time(ms)={entire_s * 1000:.0f}: {len(late)} sends waited for their "
                f"durability, the first at {_position(late[0][1])}, and are answered {status.name}"
            )
        if status is FlushStatus.FLUSHED:
            self._answer_stored([owner for owner, _ in late], [result for _, result in late])
        else:
            for owner, result in late:
                self._answer(owner, result, status)
        self._flush([owner[0] for owner, _ in late])
        self._state.dispatch()

    def _answer_stored(self, owners: list[Owner], results: list[Appended]) -> None:
        """Answers sends that are as durable as promised; the ordinary ones with as little work per message as there is."""
        if not self._state.answers_as_bytes:
            for owner, result in zip(owners, results, strict=True):
                self._answer(owner, result, FlushStatus.FLUSHED)
            return
        encode, encode_batch = self._encode_ok, self._encode_batch_ok
        answered: dict[RequestChannel, list[bytes | memoryview]] = {}
        for owner, result in zip(owners, results, strict=True):
            request, queue_id = owner
            if request.codec != JSON or request.flag & ONEWAY_FLAG:
                self._answer(owner, result, FlushStatus.FLUSHED)
                continue
            if type(result) is DispatchRequest:
                answer = encode(request.opaque, queue_id, result.commit_log_offset_bytes, result.queue_offset)
            elif type(result) is AppendedBatch:
                answer = encode_batch(request.opaque, queue_id, result.positions, result.queue_offset)
            else:
                self._answer(owner, result, FlushStatus.FLUSHED)
                continue
            channel = request.channel
            if channel in answered:
                answered[channel].append(answer)
            else:
                answered[channel] = [answer]
        for channel, answers in answered.items():
            self._pool.waiting -= len(answers)
            channel.gave(len(answers))
            channel.write_all(answers)

    @staticmethod
    def _flush(requests: list[Request]) -> None:
        for channel in {request.channel for request in requests}:
            channel.flush()

    # one message

    def _message(self, request: Request) -> Incoming:
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2
        if request.code == RequestCode.SEND_MESSAGE:
            header = request.header(SendMessageRequestHeader)
        else:
            header = request.header(SendMessageRequestHeaderV2)
        channel = request.channel
        intake = self._state.intake
        if header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
            return intake.batch(header, request.body, channel)
        return intake.single(header, request.body, channel, request.version)

    @staticmethod
    def _meant_queue_id(message: Incoming) -> int:
        assert isinstance(message, MessageExtBrokerInner)  # a batch is stored where it was sent
        return int(message.properties[REAL_QUEUE_ID])

    def _answer(self, owner: Owner, result: Appended, status: FlushStatus) -> None:
        request, queue_id = owner
        host = self._state.store_host_hex
        if type(result) is DispatchRequest:
            queue_offset = result.queue_offset
            message_id = f"{host}{result.commit_log_offset_bytes:016X}"
        elif type(result) is AppendedBatch:
            queue_offset = result.queue_offset
            message_id = batch_message_id(host, result.positions)
        else:
            assert isinstance(result, StoreError | RefusedError)
            self._refuse(request, _refusal(result))
            return
        channel = request.channel
        self._pool.waiting -= 1
        channel.gave(1)
        if request.flag & ONEWAY_FLAG:
            return
        refusal = not_durable(status)
        fields = self._fields(queue_id, message_id, queue_offset)
        if refusal is None:
            channel.respond(request, Response(0, None, fields))
        elif status is FlushStatus.FENCED:
            channel.refuse(request, refusal)
        else:
            channel.respond(request, Response(refusal.code, refusal.remark, fields))

    def _fields(self, queue_id: int, message_id: str, queue_offset: int) -> dict[str, str]:
        broker = self._state.config.broker
        return {
            "queueId": str(queue_id),
            "TRACE_ON": "true" if broker.trace_on else "false",
            "MSG_REGION": broker.region,
            "msgId": message_id,
            "queueOffset": str(queue_offset),
        }

    def _refuse(self, request: Request, error: RefusedError) -> None:
        self._state.stats.put_failed += 1
        self._pool.waiting -= 1
        request.channel.gave(1)
        request.channel.refuse(request, error)


def _position(result: Appended) -> int:
    return result.commit_log_offset_bytes if isinstance(result, DispatchRequest | AppendedBatch) else -1


def _refusal(error: StoreError | RefusedError) -> RefusedError:
    """What a client is told when the store could not take its message."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, StoreFullError):
        return no_room(error)
    return RefusedError(
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed",
        reason="store.file",
        measured=str(error),
        key="store.path",
    )
