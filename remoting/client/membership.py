"""The state of one member of a consumer group, shared by the objects that make up a consumer."""

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
    """Counters of the pulled and consumed messages of one topic since the start of the consumer."""

    pulls: int = 0
    pulled: int = 0
    """Number of messages of the topic that pulls have returned."""
    pull_time_s: float = 0.0
    consumed: int = 0
    failed: int = 0
    consume_time_s: float = 0.0


@attrs.frozen(kw_only=True)
class Membership:
    """The state of one member of a consumer group, shared by the objects that make up a consumer.

    Used only on the event loop's thread.

    The objects that share this state, and the tasks in :attr:`tasks`, do not refer to the
    :class:`~flintmq.remoting.client.consumer.Consumer` itself. Therefore a consumer that a program drops without closing it can
    be garbage-collected, which closes it.
    """

    group: str
    settings: ConsumerSettings
    client: ClientInstance
    api: BrokerApi
    tracer: Tracer | None = None
    subscriptions: dict[str, SubscriptionData] = attrs.field(factory=dict)
    """The member's current subscriptions, keyed by topic."""
    troubles: Troubles = attrs.field(init=False)
    """Current failures that keep the member from consuming, keyed by topic or broker."""
    counts: defaultdict[str, Counts] = attrs.field(factory=lambda: defaultdict(Counts))
    """Counters of pulls and messages since the start of the consumer, keyed by topic."""
    tasks: set[asyncio.Task[None]] = attrs.field(factory=set)
    """Tasks that run until the member leaves its group."""

    @troubles.default
    def _no_troubles(self) -> Troubles:
        return Troubles(self.client.clock)

    @property
    def is_clustering(self) -> bool:
        """Whether the message model is CLUSTERING: the members of the group share the queues."""
        return self.settings.message_model == CLUSTERING

    @property
    def wrapped_group(self) -> str:
        """The name of the consumer group with its namespace, as brokers know the group."""
        return self.client.namespace.wrap(self.group)

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that runs until its coroutine ends or the member leaves its group; return the task."""
        task = self.client.start_task(work, f"{self.group}-{name}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def describe(self) -> ConsumerData:
        """Return the description of this member that heartbeats carry to brokers."""
        return ConsumerData(
            consume_from_where=begin_of(self.settings.consume_from)[0],
            consume_type="CONSUME_PASSIVELY",
            group_name=self.wrapped_group,
            message_model=self.settings.message_model,
            subscription_data_set=list(map(self.client.namespace.wrap_subscription, self.subscriptions.values())),
        )
