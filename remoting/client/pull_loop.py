"""Pulls the messages of the queues that a member holds (``PullMessageService`` of RocketMQ)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.errors import FlintError
from flintmq.remoting.client.broker_api import PullStatus
from flintmq.remoting.client.instance import log
from flintmq.remoting.client.membership import Membership
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.process_queue import ProcessQueue


class PullLoop:
    """Pulls for one member, one task a queue. Loop thread only.

    Args:
        member: the member of the group.
        consume: takes each message; what is pulled next waits for it.
    """

    def __init__(self, member: Membership, consume: Callable[[ProcessQueue, MessageExt], Awaitable[None]]) -> None:
        self._member = member
        self._consume = consume

    async def run(self, held: ProcessQueue) -> None:
        """Pull until the queue is given up, or its topic is not subscribed to any more."""
        while not held.dropped:
            await held.has_room()
            subscription = self._member.subscriptions.get(held.queue.topic)
            if subscription is None:
                return
            held.pulling = True
            try:
                messages = await self._pull(held, subscription)
            except (FlintError, ValueError) as failure:  # ValueError: an answer that does not decode
                log.warning("pulling %s failed: %s", held.queue, failure)
                await asyncio.sleep(self._member.settings.error_delay_s)
                continue
            finally:
                held.pulling = False
            await self._consume_all(held, messages)

    async def _consume_all(self, held: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            if held.dropped:
                return
            await self._consume(held, message)

    async def _pull(self, held: ProcessQueue, subscription: SubscriptionData) -> tuple[MessageExt, ...]:
        """Pull once, and enter the messages among those that are held."""
        held.last_pull_timestamp_ms = self._member.client.clock.now_ms()
        begin_s = self._member.client.clock.monotonic_s()
        result = await self._member.api.pull(
            held.queue,
            held.pull_queue_offset,
            subscription=subscription,
            max_messages=self._member.settings.pull_batch_size,
            suspend_ms=self._member.settings.suspend_ms,
        )
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "offset %d of %s is illegal: going on at %d",
                held.pull_queue_offset,
                held.queue,
                result.next_begin_queue_offset,
            )
        held.pull_queue_offset = result.next_begin_queue_offset
        held.put(result.messages)
        counts = self._member.counts[held.queue.topic]
        counts.pulls += 1
        counts.pulled += len(result.messages)
        counts.pull_time_s += self._member.client.clock.monotonic_s() - begin_s
        return result.messages
