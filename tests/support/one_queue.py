"""One broker with one queue, in memory, for the tests of what consumers do with single messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import FROM_FIRST, ConsumerSettings
from flintmq.remoting.client.message import MessageExt

FAST: Final = ConsumerSettings(
    consume_from=FROM_FIRST, rebalance_interval_s=0.05, error_delay_s=0.01, retry_delay_s=0.005
)
Q0: Final = MessageQueue("broker-a", 0, "T")


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Any], Awaitable[None]]) -> None:
    """Run a test with such a broker; it may take 20 s."""

    async def with_broker() -> None:
        async with fake_peer() as peer, asyncio.timeout(20):
            broker = fake_broker(peer)
            broker.queue_nums = 1
            await test(broker)

    asyncio.run(with_broker())


async def until_committed(broker: Any, consumer: Consumer, queue_offset: int) -> None:
    """Return once the consumer would commit this offset of the queue."""
    await broker.peer.until(lambda: Q0 in consumer.process_queues)
    await broker.peer.until(lambda: consumer.process_queues[Q0].commit_offset == queue_offset)


class NeverReturns:
    """A listener that begins with a message and does not end. Made inside the running loop."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        """Set when the listener has its first message."""

    async def __call__(self, _message: MessageExt) -> None:
        self.begun.set()
        await asyncio.Event().wait()
