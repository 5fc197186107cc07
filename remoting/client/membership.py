"""A member of a consumer group: what the parts of one consumer share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

import attrs

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.remoting.client.consume_from import begin_of
from flintmq.remoting.client.consumer_settings import CLUSTERING, ConsumerSettings
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.trace import Tracer
from flintmq.remoting.client.troubles import Troubles
from flintmq.remoting.wire.bodies import ConsumerData


@attrs.define
class Counts:
    """Counters of one topic since the start of the consumer."""

    pulls: int = 0
    pulled: int = 0
    """Messages that pulls brought."""
    pull_time_s: float = 0.0
    consumed: int = 0
    failed: int = 0
    consume_time_s: float = 0.0


@attrs.frozen(kw_only=True)
class Membership:
    """A member of a group, as the parts of a consumer share it. Loop thread only.

    No part, and no task of it, knows the consumer itself: one that a program has dropped is collected, and closed.
    """

    group: str
    settings: ConsumerSettings
    client: ClientInstance
    api: BrokerApi
    tracer: Tracer | None = None
    subscriptions: dict[str, SubscriptionData] = attrs.field(factory=dict)
    """By topic."""
    troubles: Troubles = attrs.field(init=False)
    """What keeps the member from consuming, by topic or by broker."""
    counts: defaultdict[str, Counts] = attrs.field(factory=lambda: defaultdict(Counts))
    """By topic."""
    tasks: set[asyncio.Task[None]] = attrs.field(factory=set)
    """What runs until the member leaves its group."""

    @troubles.default
    def _no_troubles(self) -> Troubles:
        return Troubles(self.client.clock)

    @property
    def is_clustering(self) -> bool:
        """Return whether the members share the queues."""
        return self.settings.message_model == CLUSTERING

    @property
    def wrapped_group(self) -> str:
        """Return the group as servers know it."""
        return self.client.namespace.wrap(self.group)

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run work, under a name, until it ends or the member leaves its group."""
        task = self.client.start_task(work, f"{self.group}-{name}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def describe(self) -> ConsumerData:
        """Return what heartbeats say of the member."""
        return ConsumerData(
            consume_from_where=begin_of(self.settings.consume_from)[0],
            consume_type="CONSUME_PASSIVELY",
            group_name=self.wrapped_group,
            message_model=self.settings.message_model,
            subscription_data_set=list(map(self.client.namespace.wrap_subscription, self.subscriptions.values())),
        )
