"""Messages that were pulled, handed to the listener: concurrently, or in the order of their queue.

See ``ConsumeMessageConcurrentlyService`` and ``ConsumeMessageOrderlyService`` of RocketMQ.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import attrs

from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError
from flintmq.core.record.properties import RETRY_TOPIC
from flintmq.remoting.client.consumer_settings import ConsumeResult, Listener
from flintmq.remoting.client.instance import log
from flintmq.remoting.client.membership import Membership
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.process_queue import ProcessQueue

StartTask = Callable[[Coroutine[Any, Any, None], str], None]
"""Start work that ends with the consumer, under a name."""


class ConsumeService:
    """Consumes the messages of one member. Loop thread only.

    Args:
        member: the member of the group.
        listener: consumes messages; None hands them to :meth:`messages`.
        start_task: starts the workers.
    """

    def __init__(self, member: Membership, listener: Listener | None, start_task: StartTask) -> None:
        self._member = member
        self._listener = listener
        self._start_task = start_task
        self._work: asyncio.Queue[tuple[ProcessQueue, MessageExt]] = asyncio.Queue(maxsize=1)
        self._hand_over: asyncio.Queue[tuple[MessageExt, asyncio.Future[None]]] = asyncio.Queue(maxsize=1)

    def start(self) -> None:
        """Start the workers; orderly messages are consumed by the tasks that pull them."""
        settings = self._member.settings
        if not settings.orderly:
            for number in range(settings.concurrency if self._listener is not None else 1):
                self._start_task(self._worker(), f"worker-{number}")

    async def submit(self, held: ProcessQueue, message: MessageExt) -> None:
        """Consume a message of a queue; return when it is consumed in order, or when a worker is free to take it."""
        if self._member.settings.orderly:
            await self._consume_orderly(held, message)
        else:
            await self._work.put((held, message))

    async def messages(self) -> AsyncIterator[MessageExt]:
        """Iterate over the messages; one counts as consumed when the next one is asked for.

        Raises:
            TypeError: there is a listener.
        """
        if self._listener is not None:
            raise TypeError("a consumer with a listener hands its messages to the listener")
        while True:
            message, consumed = await self._hand_over.get()
            yield message
            if not consumed.done():
                consumed.set_result(None)

    async def consume(self, message: MessageExt) -> ConsumeResult:
        """Hand one message to the listener, with its topic before any retry. Raises what the listener raises."""
        original = message.properties.get(RETRY_TOPIC)
        if original and message.topic == RETRY_PREFIX + self._member.group:
            message = attrs.evolve(message, topic=original)
        listener = self._listener or self._wait_for_iterator
        if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(type(listener).__call__):
            outcome = listener(message)
        else:
            outcome = await asyncio.to_thread(listener, message)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        return outcome or ConsumeResult.SUCCESS

    async def _wait_for_iterator(self, message: MessageExt) -> None:
        consumed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._hand_over.put((message, consumed))
        await consumed

    async def _succeeds(self, held: ProcessQueue, message: MessageExt) -> bool:
        held.last_consume_timestamp_ms = self._member.client.clock.now_ms()
        counts = self._member.counts[held.queue.topic]
        begin_s = self._member.client.clock.monotonic_s()
        try:
            succeeded = await self.consume(message) is ConsumeResult.SUCCESS
        except Exception:  # a failure of the listener means: again later
            log.exception("consuming %s of %s failed", message.msg_id, held.queue)
            succeeded = False
        counts.consume_time_s += self._member.client.clock.monotonic_s() - begin_s
        counts.consumed += succeeded
        counts.failed += not succeeded
        return succeeded

    async def _worker(self) -> None:
        while True:
            held, message = await self._work.get()
            if not held.dropped:
                await self._consume_concurrently(held, message)

    async def _consume_concurrently(self, held: ProcessQueue, message: MessageExt) -> None:
        if await self._succeeds(held, message) or not self._member.is_clustering:
            held.done(message)
            return
        limit = self._member.settings.max_reconsume_times
        try:
            await self._member.api.send_back(message, self._member.settings.delay_level, 16 if limit is None else limit)
        except FlintError as failure:
            log.warning("%s was not sent back, it is tried again here: %s", message.msg_id, failure)
            self._start_task(self._try_later(held, message), "retry")
            return
        held.done(message)

    async def _try_later(self, held: ProcessQueue, message: MessageExt) -> None:
        await asyncio.sleep(self._member.settings.error_delay_s)
        await self._work.put((held, message))

    async def _consume_orderly(self, held: ProcessQueue, message: MessageExt) -> None:
        limit = self._member.settings.max_reconsume_times
        while not held.dropped:
            if await self._succeeds(held, message):
                break
            if not self._member.is_clustering:
                break
            if limit is not None and message.reconsume_times >= limit:
                try:
                    await self._member.api.send_back(message, -1, limit)
                    break
                except FlintError as failure:
                    log.warning("%s was not made a dead letter: %s", message.msg_id, failure)
            message = attrs.evolve(message, reconsume_times=message.reconsume_times + 1)
            await asyncio.sleep(self._member.settings.retry_delay_s)
        else:
            return
        held.done(message)
