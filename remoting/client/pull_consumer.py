"""Consuming by hand: which queue, from where, how much, and what is committed are the caller's business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flintmq.core.broker.subscription import TAG, build_subscription
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.broker_api import BrokerApi, PullResult, QueueOffsets
from flintmq.remoting.client.instance import ClientInstance, InstanceUser


class PullConsumer(QueueOffsets, InstanceUser):
    """Pulls messages on demand, without being a member of its group. Loop thread only; use ``async with``.

    Every method raises ``RemotingError`` when no server answers and ``RefusedError`` when a request is refused.

    Args:
        group: whose offsets are read and stored.
        name_servers, client, instance_options: see :class:`~flintmq.remoting.client.instance.InstanceUser`.
    """

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str] = (),
        *,
        client: ClientInstance | None = None,
        **instance_options: Any,
    ) -> None:
        super().__init__(name_servers, client=client, **instance_options)
        self.group = group
        self._api = BrokerApi(self.client, group)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read."""
        return (await self.client.routes.route(topic)).read_queues

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        max_messages: int = 32,
        suspend_ms: int = 0,
        expression: str = "*",
        expression_type: str = TAG,
    ) -> PullResult:
        """Messages of a queue from an offset on; ``suspend_ms`` lets the broker wait for some. See :class:`BrokerApi`."""
        subscription = build_subscription(queue.topic, expression, expression_type)
        return await self._api.pull(
            queue, queue_offset, subscription=subscription, max_messages=max_messages, suspend_ms=suspend_ms
        )

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset; None when there is none."""
        return await self._api.committed(queue)

    async def commit(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Store the group's offset: of the next message it wants."""
        await self._api.commit(queue, consumer_offset)
