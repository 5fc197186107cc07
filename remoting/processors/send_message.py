"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (10, 310, 320): the hot path from a read to the acknowledgement.

All sends that arrive in one iteration of the loop, over all connections, are stored with one append
(:mod:`flintmq.remoting.processors.send_queue`); one waiter stands for their durability; and the answers of each connection
leave in one write (:mod:`flintmq.remoting.processors.send_answers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.sink import Incoming, Stored, not_stored, told_durable
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.kernel.ports import AppendUnit, FlushStatus
from flintmq.core.kernel.ports.processor import Request, handles
from flintmq.core.log.slow import SLOW_S, SlowLog
from flintmq.core.log_events import event_log
from flintmq.core.record.batch import MessageBatch, look_into_steps
from flintmq.core.record.java_number import number_or
from flintmq.core.record.properties import REAL_QUEUE_ID
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.send_answers import Owner, SendAnswers
from flintmq.remoting.processors.send_queue import FastFailure, SendQueue
from flintmq.remoting.wire.codes import RequestCode
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
"""Sends with more bytes than this are taken apart, looked into, stored and dispatched in several iterations of the loop."""

_sends = partial(handles, answer=SendMessageResponseHeader, pool="send")


class SendMessageProcessor:
    """Takes sends in batches. Loop thread; only the flush waiter's callback comes from another."""

    may_wait: ClassVar = False

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._pool = pool = api.server.pool("send")
        self._holding = api.topics.holding_topics
        """The topics where a message may lie instead of the queue it was sent to, which is the queue that its answer names."""
        self._queue = SendQueue(self._store_share, lambda: api.work.loop, api.server.at_turn_end)
        self._answers = SendAnswers(api, pool)
        self._fast_failure = FastFailure()
        self._slow_puts = SlowLog(api.clock)

    @_sends(RequestCode.SEND_MESSAGE, header=SendMessageRequestHeader, needs=needs.send("topic"))
    @_sends(RequestCode.SEND_MESSAGE_V2, header=SendMessageRequestHeaderV2, needs=needs.send("b"))
    @_sends(RequestCode.SEND_BATCH_MESSAGE, header=SendMessageRequestHeaderV2, needs=needs.send("b"))
    def process(self, batch: list[Request]) -> None:
        """Store the messages of sends and answer each; all sends of one loop iteration share one append."""
        self._queue.add(batch)
        self._pool.waiting += len(batch)
        batch[0].channel.took(len(batch))
        if self._api.settings.current.admission.fast_failure:
            self._fast_failure.arrived(self._api.clock.monotonic_s(), len(batch))

    def _store_share(self, pending: list[Request], size_bytes: int) -> Iterator[None] | None:
        """Check sends, make messages of them, and store these; of many bytes return the steps of that."""
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
            except StoreError as error:  # a topic was to be made, and the disk refused it
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
            if message.topic in self._holding and isinstance(message, MessageExtBrokerInner):  # not a batch
                queue_id = number_or(message.properties.get(REAL_QUEUE_ID), queue_id)
            owners.append((request, queue_id))
        if size_bytes > _MUCH_BYTES:
            return self._in_steps(pending, messages, owners)
        self._store(messages, owners)
        self._answered(pending)
        self._api.log.dispatch()
        return None

    def _in_steps(self, pending: list[Request], messages: list[Incoming], owners: list[Owner]) -> Iterator[None]:
        """Look into large batches part by part, then store everything."""
        began_s = pending[0].channel.read_s
        try:
            for message in messages:
                if isinstance(message, MessageBatch):
                    for step in look_into_steps(message):
                        step()
                        yield
        except Exception as error:  # a defect; nothing of these sends is stored
            log.exception("send.intake_failed", "looking into %(sends)d sends failed", sends=len(owners))
            for request, _ in owners:
                self._answers.refuse(request, refusal_of(error))
            self._answers.flush(pending)
            return
        self._store(messages, owners, began_s)
        self._answered(pending)
        self._api.log.dispatch_soon()

    def _refuse_all(self, pending: list[Request]) -> None:
        """Refuse the sends to a slave, which takes no messages and makes no topics for them."""
        try:
            self._api.log.check_writeable()
        except RefusedError as error:
            for request in pending:
                self._answers.refuse(request, error)
        self._answers.flush(pending)

    def _in_time(self, pending: list[Request]) -> list[Request]:
        """Refuse the sends that have waited too long; return the others."""
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
        """Append and answer; ``began_s`` is when the sends of earlier iterations were read."""
        if not messages:
            return
        api = self._api
        try:
            stored = api.put(messages, dispatch=False)
        except Exception as error:
            if not isinstance(error, RefusedError):
                # A defect must not leave clients without an answer; nothing of this append is acknowledged.
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
        """Answer now what does not wait for durability, and the rest when the waiter is done."""
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
        """Answer sends whose durability is settled. On the flush service's thread."""
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
        """Hand answers to their sockets."""
        self._answers.flush(requests)
        self._api.intake.answered()

    def _message(self, request: Request) -> Incoming:
        header = request.header(SendMessageRequestHeader if request.code == _SEND else SendMessageRequestHeaderV2)
        if header.batch or request.code == _SEND_BATCH:
            return self._api.intake.batch(header, request.body, request.channel)
        return self._api.intake.single(header, request.body, request.channel, request.version)
