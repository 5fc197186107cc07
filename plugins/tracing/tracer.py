"""Follows traced messages through the broker and makes their spans.

::

    producer's span ─┬─ store ─┬─ intake
                     │         ├─ append
                     │         ├─ flush, replicate    where senders wait for them
                     │         ├─ acknowledge
                     │         └─ dispatch            until consumers can see it
                     └─ deliver                       each time that a group is given it

A delayed message, a transaction and a retry are put again, with their properties: each put is another ``store`` of the
same trace.
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
    """A traced message that was stored, and is not done with."""

    context: TraceContext
    noted: Noted | None
    """What intake knows of it; None for one that the broker put."""
    message: Attributes
    position_bytes: int
    """Of its record in the log."""
    is_answered: bool
    """Whether a client gets an answer over a connection."""
    waits: bool
    """Whether that answer waits for durability."""
    span_id: int = 0
    """Of its ``store``."""
    begin_ns: int = 0
    appended_ns: int = 0
    settled_ns: int = 0
    """When it was as durable as promised, or was known not to become so; 0 before."""
    visible_ns: int = 0
    """When consumers could see it; 0 before."""
    error: str = ""


class _Promise(msgspec.Struct, eq=False):
    """What the traced messages of one append wait for."""

    traced: list[_Traced]
    is_replicated: bool
    """Whether a slave is waited for, too."""
    flushed_ns: int = 0
    """0 where nobody waits for a flush."""


class MessageTracer:
    """Makes spans of what a broker tells of its messages (:class:`flintmq.core.kernel.ports.FollowsMessages`). Loop thread.

    Times are the machine's, not those of the broker's clock: spans stand beside those of other processes.

    Args:
        api: the broker.
        step: knows which messages clients have just sent.
        put: takes a span.
        under_way_max: messages that are followed at once, at most.
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
        """Traced messages that were stored."""
        self.passed_over = 0
        """Those for which there was no room."""

    def on_stored(self, stored: StoredMessages) -> None:
        """Follow what is traced of an append, and make the spans that have ended with it."""
        now_ns = 0
        followed: list[_Traced] = []
        for at, message in enumerate(stored.messages):
            if type(message) is MessageBatch:
                if not self._step.has_batches:
                    continue
            elif message.about is not None:  # type: ignore[union-attr]
                continue  # its properties ask for nothing, and so for no trace
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
        """End what has its answer by now."""
        if self._to_answer:
            now_ns = time.time_ns()
            for one in self._taken_to_answer(lambda one: one.settled_ns > 0 or not one.waits):
                self._child(one, spans.ACKNOWLEDGE, one.settled_ns or one.appended_ns, now_ns)
                self._end(one, now_ns)

    def on_arrived(self, _batch: RecordBatch) -> None:
        """Make the spans of what consumers can see from now on."""
        if self._to_dispatch:
            self._dispatched(time.time_ns())

    def on_handed_out(self, handed_out: HandedOut) -> None:
        """Make a span of each traced message that a group is given."""
        if not handed_out.records or not self._places.may_be_in(handed_out.records):
            return
        for piece in marked_pieces(handed_out.records):
            end_ns = time.time_ns()
            begin_ns = end_ns - int(handed_out.took_s * 1e9)
            self._dispatched(begin_ns)  # a held pull is woken before ``on_arrived`` is called
            for span in deliveries(handed_out, piece, begin_ns, end_ns, self._api.clock.now_ms()):
                self._put(span)

    def end_overdue(self, until_ns: int) -> None:
        """End what was settled before a time: it was answered otherwise than a send."""
        for one in self._taken_to_answer(lambda one: 0 < one.settled_ns <= until_ns):
            self._end(one, one.settled_ns)

    def close(self) -> None:
        """End what is under way: what becomes of it is not followed any more."""
        now_ns = time.time_ns()
        for one in self._taken_to_answer(lambda _one: True):
            self._end(one, one.settled_ns or now_ns)
        self._to_dispatch.clear()

    def role_changed(self) -> None:
        """Follow the messages of the new role: those that a slave copies from its master are not followed."""
        self._to_dispatch.clear()
        self._places = self._places_from_now_on()

    # parts

    def _places_from_now_on(self) -> TracedPlaces:
        """Return the places of what is stored from now on; on a slave they are not known."""
        return TracedPlaces(self._api.log.marks.wrote if self._api.role.takes_writes else None)

    def _traced(self, message: MessageExtBrokerInner | MessageBatch, result: object) -> Iterator[_Traced]:
        """Return the traced ones of what was put together, if they are stored."""
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
            # What the program puts that the broker lives in is answered over no connection; the broker's host is its sender's.
            is_answered = noted_one is not None and message.born_host != message.store_host
            yield _Traced(context, noted_one, about, result.commit_log_offset_bytes, is_answered, message.wait)

    def _appended(self, one: _Traced, now_ns: int, took_ns: int) -> None:
        """Begin to follow a message: its intake and its append have ended."""
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
        """Note when the log was on disk. On the flush service's thread."""
        promise.flushed_ns = time.time_ns()

    def _durable(self, promise: _Promise, status: FlushStatus) -> None:
        """Note when all was as durable as promised. On the thread of the flush service, or on that of replication."""
        self._api.work.from_thread(self._settled, promise, time.time_ns(), status)

    def _settled(self, promise: _Promise, now_ns: int, status: FlushStatus) -> None:
        error = "" if status is FlushStatus.FLUSHED else status.value
        is_synchronous = self._api.log.marks.synchronous
        for one in promise.traced:
            one.settled_ns, one.error = now_ns, error
            durable_ns, flushed_ns = now_ns, promise.flushed_ns
            if one.visible_ns:  # what had to come before was told later, by another thread
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
        """Return those that wait for an answer and are done with, which wait no more."""
        done = [one for one in self._to_answer if is_done(one)]
        if done:
            self._to_answer = [one for one in self._to_answer if not is_done(one)]
        return done

    def _child(self, one: _Traced, operation: str, begin_ns: int, end_ns: int, error: str = "") -> None:
        end_ns = max(begin_ns, end_ns)
        self._put(Span(operation, one.context, new_span_id(), one.span_id, begin_ns, end_ns, one.message, {}, error))

    def _end(self, one: _Traced, now_ns: int) -> None:
        """Make the span of the whole: from intake to the answer."""
        is_first = one.span_id == one.context.parent_id
        parent_id, end_ns = 0 if is_first else one.context.parent_id, max(now_ns, one.begin_ns)
        place = {"flintmq.log_position": one.position_bytes}
        self._put(
            Span(spans.STORE, one.context, one.span_id, parent_id, one.begin_ns, end_ns, one.message, place, one.error)
        )
