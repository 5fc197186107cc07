"""A little of everything that figures are about, sent by the client to any broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from flintmq.core.errors import RefusedError
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.remoting.client.consumer_settings import FROM_FIRST, ConsumeResult

T = TypeVar("T")
TOPIC = "Orders"
GROUP = "billing"
COUNT = 40


async def send_and_consume(address: str, then: Callable[[], T], *, dead: int = 2) -> T:
    """Send messages, and consume them all but some that become dead letters.

    Args:
        address: of the name server.
        then: called in a thread while the consumer is still connected and everything is committed; its result is returned.
        dead: how many become dead letters.
    """
    async with AdminClient(address) as admin:
        await admin.create_topic(TOPIC, queues=4)
    async with Producer("shop", address) as producer:
        for number in range(COUNT):
            await producer.send(Message(TOPIC, b"%03d" % number + b"x" * 200, keys=f"k{number}"))
        await producer.send(Message(TOPIC, b"later", delay_level=1))
    done, seen = asyncio.Event(), 0

    def listener(message: MessageExt) -> ConsumeResult:
        nonlocal seen
        seen += 1
        if seen >= COUNT:
            done.set()
        return ConsumeResult.LATER if message.body[:3] < b"%03d" % dead else ConsumeResult.SUCCESS

    settings = ConsumerSettings(consume_from=FROM_FIRST, max_reconsume_times=0, commit_interval_s=0.1)
    async with Consumer(GROUP, address, listener, settings=settings) as consumer:
        await consumer.subscribe(TOPIC)
        async with asyncio.timeout(120):  # RocketMQ's broker begins slowly on a busy machine
            await done.wait()
            async with AdminClient(address) as admin:
                while not await _is_settled(admin, dead):  # noqa: ASYNC110 - another process is waited for
                    await asyncio.sleep(0.05)
        return await asyncio.to_thread(then)


async def _is_settled(admin: AdminClient, dead: int) -> bool:
    """Return whether all is committed and the dead letters are stored."""
    try:
        letters = sum(one.max_queue_offset for one in (await admin.topic_stats(f"%DLQ%{GROUP}")).values())
    except RefusedError:  # there are none yet
        letters = 0
    stats = await admin.consume_stats(GROUP, TOPIC)
    return letters == dead and all(
        one.consumer_offset == one.broker_queue_offset for one in stats.offset_table.values()
    )
