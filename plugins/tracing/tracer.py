"""Follows traced messages through the broker and creates their spans.

::

    producer's span ─┬─ store ─┬─ intake
                     │         ├─ append
                     │         ├─ flush, replicate    if senders wait for them
                     │         ├─ acknowledge
                     │         └─ dispatch            until consumers can see the message
                     └─ deliver                       one for each delivery to a group

A delayed message, a transactional message and a retried message are stored more than once, with the same properties. Each
storing adds another span ``store`` to the same trace.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from flintmq.core.kernel.ports import (
    AppendedBatch,
    DispatchRequest,
    FlushStatus,
    HandedOut,
    RecordBatch,
    StoredMessages,
)
from flintmq.core.record.batch import MessageBatch
from flintmq.plugins.tracing import spans
from flintmq.plugins.tracing.deliveries import TracedPlaces, deliveries, marked_pieces
from flintmq.plugins.tracing.spans import Attributes, Span, message_attributes, new_span_id
from flintmq.plugins.tracing.trace_context import TRACEPARENT, TraceContext, is_unsampled, sampled_context

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.record.record import MessageExtBrokerInner
    from flintmq.plugins.tracing.trace_step import Noted, TraceStep


class _Traced(msgspec.Struct, eq=False):
    """A stored message that is traced, and has unfinished spans."""

    context: TraceContext
    noted: Noted | None
    """Data for the message's trace that :class:`TraceStep` recorded before the broker stored the message. None if the broker
    itself put the message."""
    message: Attributes
    position_bytes: int
    """Physical offset of the message's record in the commit log."""
    is_answered: bool
    """Whether a client gets an answer to the message over a connection."""
    waits: bool
    """Whether the client gets its answer only when the message is durable."""
    span_id: int = 0
    """Id of the message's span ``store``."""
    begin_ns: int = 0
    appended_ns: int = 0
    settled_ns: int = 0
    """Time at which the message became durable or failed to become durable, in ns since 1970; 0 before this time."""
    visible_ns: int = 0
    """Time from which on consumers could see the message, in ns since 1970; 0 before this time."""
    error: str = ""


class _Promise(msgspec.Struct, eq=False):
    """The traced messages of one append, and the state of the flush and the replication that they wait for."""

    traced: list[_Traced]
    is_replicated: bool
    """Whether a message counts as durable only after a slave has a copy."""
    flushed_ns: int = 0
    """Time at which the flush of the messages ended, in ns since 1970; 0 before this time, and if no sender of the messages
    waits for a flush."""


class MessageTracer:
    """Creates spans from the broker's message events (:class:`flintmq.core.kernel.ports.FollowsMessages`). Used only on the
    event loop's thread.

    Times come from the machine's clock instead of the broker's, because spans are compared with those of other processes.

    Args:
        api: the broker.
        step: the intake step, which has recorded the messages that clients just sent.
        put: called with each finished span.
        under_way_max: maximum number of messages to follow at the same time.
    """

    def __init__(self, api: BrokerApi, step: TraceStep, put: Callable[[Span], object], under_way_max: int) -> None:
        self._api = api
        self._step = step
        self._put = put
        self._under_way_max = under_way_max
        self._to_answer: list[_Traced] = []
        self._to_dispatch: deque[_Traced] = deque()
        self._places = self._places_from_now_on()
        self.followed = 0
        """Number of stored messages that were traced."""
        self.passed_over = 0
        """Number of stored messages that were not traced because too many traced messages had unfinished spans."""

    def on_stored(self, stored: StoredMessages) -> None:
        """Begin to follow the traced messages of an append, and create their spans ``intake`` and ``append``."""
        now_ns = 0
        followed: list[_Traced] = []
        for at, message in enumerate(stored.messages):
            if type(message) is MessageBatch:
                if not self._step.has_batches:
                    continue
            elif message.about is not None:  # type: ignore[union-attr]
                # ``about`` (cached tags and keys) is set only if no plugin handles a property, so the message is not traced.
                continue
            now_ns = now_ns or time.time_ns()
            for one in self._traced(message, stored.results[at]):
                self._places.add(one.position_bytes)
                if max(len(self._to_answer), len(self._to_dispatch)) >= self._under_way_max:
                    self.passed_over += 1
                    continue
                self._appended(one, now_ns, int(stored.took_s * 1e9))
                followed.append(one)
        if not followed:
            return
        self.followed += len(followed)
        promise = _Promise(followed, stored.durable is not stored.flushed)
        status = stored.durable.status
        if status is not None:
            self._settled(promise, now_ns, status)
            return
        if stored.flushed.status is None:
            stored.flushed.add_done_callback(partial(self._flushed, promise))
        stored.durable.add_done_callback(partial(self._durable, promise))

    def on_answered(self) -> None:
        """Finish the spans of the messages whose answers have been sent."""
        if self._to_answer:
            now_ns = time.time_ns()
            for one in self._taken_to_answer(lambda one: one.settled_ns > 0 or not one.waits):
                self._child(one, spans.ACKNOWLEDGE, one.settled_ns or one.appended_ns, now_ns)
                self._end(one, now_ns)

    def on_arrived(self, _batch: RecordBatch) -> None:
        """Create the spans ``dispatch`` of the messages that consumers can see from now on."""
        if self._to_dispatch:
            self._dispatched(time.time_ns())

    def on_handed_out(self, handed_out: HandedOut) -> None:
        """Create a span ``deliver`` for each traced message in a pull's answer."""
        if not handed_out.records or not self._places.may_be_in(handed_out.records):
            return
        for piece in marked_pieces(handed_out.records):
            end_ns = time.time_ns()
            begin_ns = end_ns - int(handed_out.took_s * 1e9)
            # A held pull may be answered before on_arrived() is called, which usually creates the spans ``dispatch``.
            self._dispatched(begin_ns)
            for span in deliveries(handed_out, piece, begin_ns, end_ns, self._api.clock.now_ms()):
                self._put(span)

    def end_overdue(self, until_ns: int) -> None:
        """Finish the spans of traced messages whose flush and replication ended at or before a time.

        Call this method periodically. It finishes the spans of messages that were not stored by a send request, because
        :meth:`on_answered` is called only for the answers to send requests.

        Args:
            until_ns: the time, in ns since 1970.
        """
        for one in self._taken_to_answer(lambda one: 0 < one.settled_ns <= until_ns):
            self._end(one, one.settled_ns)

    def close(self) -> None:
        """Finish the spans of all traced messages under way, and stop following these messages."""
        now_ns = time.time_ns()
        for one in self._taken_to_answer(lambda _one: True):
            self._end(one, one.settled_ns or now_ns)
        self._to_dispatch.clear()

    def role_changed(self) -> None:
        """Stop following the traced messages under way, and follow the messages that are stored in the broker's new role. A
        slave's copies are never followed."""
        self._to_dispatch.clear()
        self._places = self._places_from_now_on()

    # parts

    def _places_from_now_on(self) -> TracedPlaces:
        """Return an empty table of the physical offsets of traced messages that are stored from now on. On a slave, the table
        stays empty."""
        return TracedPlaces(self._api.log.marks.wrote if self._api.role.takes_writes else None)

    def _traced(self, message: MessageExtBrokerInner | MessageBatch, result: object) -> Iterator[_Traced]:
        """Yield an object for each message that is to be traced. The broker has just tried to store ``message``, which is a
        single message or a batch of messages. If storing failed, nothing is yielded."""
        if isinstance(message, MessageBatch):
            members = self._step.noted_of_batch(message)
            if not isinstance(result, AppendedBatch):
                return
            topic, queue_id = message.topic, message.queue_id
            for at, noted in members.items():
                if noted.context is not None:
                    stored, body_bytes = message.stored_properties[at], len(message.bodies[at])
                    about = message_attributes(topic, queue_id, body_bytes, stored, is_held=False)
                    about["flintmq.queue_offset"] = result.queue_offset + at
                    yield _Traced(noted.context, noted, about, result.positions[at], True, message.wait)
            return
        value = message.properties.get(TRACEPARENT)
        if value is None or is_unsampled(value):
            return
        noted_one, stored = self._step.noted(message), message.properties_bytes
        context = sampled_context(stored) if noted_one is None else noted_one.context
        if context is not None and isinstance(result, DispatchRequest):
            topic, queue_id = message.topic, message.queue_id
            is_held = topic in self._api.topics.holding_topics
            about = message_attributes(topic, queue_id, len(message.body), stored, is_held=is_held)
            about["flintmq.queue_offset"] = result.queue_offset
            # If a message's born host is the broker, the embedding program has put the message, and no client gets an answer.
            is_answered = noted_one is not None and message.born_host != message.store_host
            yield _Traced(context, noted_one, about, result.commit_log_offset_bytes, is_answered, message.wait)

    def _appended(self, one: _Traced, now_ns: int, took_ns: int) -> None:
        """Create the spans ``intake`` and ``append`` of a stored message, and follow the message from now on."""
        noted, append_ns = one.noted, now_ns - took_ns
        one.span_id = one.context.parent_id if noted is not None and noted.is_first else new_span_id()
        one.begin_ns = append_ns if noted is None else min(noted.began_ns, append_ns)
        one.appended_ns = now_ns
        if noted is not None:
            self._child(one, spans.INTAKE, one.begin_ns, append_ns)
        self._child(one, spans.APPEND, append_ns, now_ns)
        self._to_answer.append(one)
        self._to_dispatch.append(one)

    def _flushed(self, promise: _Promise, _status: FlushStatus) -> None:
        """Record the time at which the log was flushed. Called on the flush service's thread."""
        promise.flushed_ns = time.time_ns()

    def _durable(self, promise: _Promise, status: FlushStatus) -> None:
        """Pass the result of flush and replication to the loop's thread.

        Called on the thread of the flush service or of replication.
        """
        self._api.work.from_thread(self._settled, promise, time.time_ns(), status)

    def _settled(self, promise: _Promise, now_ns: int, status: FlushStatus) -> None:
        error = "" if status is FlushStatus.FLUSHED else status.value
        is_synchronous = self._api.log.marks.synchronous
        for one in promise.traced:
            one.settled_ns, one.error = now_ns, error
            durable_ns, flushed_ns = now_ns, promise.flushed_ns
            if one.visible_ns:
                # The thread that reports a message as durable may report after consumers could already see the message.
                # Consumers see only durable messages, so the durable time is limited to the time of visibility to consumers.
                durable_ns = min(durable_ns, one.visible_ns)
                flushed_ns = min(flushed_ns, one.visible_ns) if is_synchronous else flushed_ns
            if flushed_ns:
                self._child(one, spans.FLUSH, one.appended_ns, flushed_ns, "" if promise.is_replicated else error)
            if promise.is_replicated:
                self._child(one, spans.REPLICATE, flushed_ns or one.appended_ns, durable_ns, error)
        for one in self._taken_to_answer(lambda one: one.settled_ns > 0 and not one.is_answered):
            self._end(one, now_ns)

    def _dispatched(self, now_ns: int) -> None:
        waiting, until_bytes = self._to_dispatch, self._api.log.marks.dispatched
        while waiting and waiting[0].position_bytes < until_bytes:
            one = waiting.popleft()
            one.visible_ns = now_ns
            self._child(one, spans.DISPATCH, one.appended_ns, now_ns)

    def _taken_to_answer(self, is_done: Callable[[_Traced], bool]) -> list[_Traced]:
        """Remove and return the messages that wait for an answer and satisfy a condition."""
        done = [one for one in self._to_answer if is_done(one)]
        if done:
            self._to_answer = [one for one in self._to_answer if not is_done(one)]
        return done

    def _child(self, one: _Traced, operation: str, begin_ns: int, end_ns: int, error: str = "") -> None:
        end_ns = max(begin_ns, end_ns)
        self._put(Span(operation, one.context, new_span_id(), one.span_id, begin_ns, end_ns, one.message, {}, error))

    def _end(self, one: _Traced, now_ns: int) -> None:
        """Create the span ``store``, which lasts from intake to the answer."""
        is_first = one.span_id == one.context.parent_id
        parent_id, end_ns = 0 if is_first else one.context.parent_id, max(now_ns, one.begin_ns)
        place = {"flintmq.log_position": one.position_bytes}
        self._put(
            Span(spans.STORE, one.context, one.span_id, parent_id, one.begin_ns, end_ns, one.message, place, one.error)
        )
