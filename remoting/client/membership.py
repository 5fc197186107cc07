"""A member of a consumer group: what the parts of one consumer share."""

from __future__ import annotations

from collections import defaultdict

import attrs

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.remoting.client.consumer_settings import CLUSTERING, ConsumerSettings
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.trace import Tracer
from flintmq.remoting.client.troubles import Troubles


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
    """A member of a group, as the parts of a consumer share it. Loop thread only."""

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

    @troubles.default
    def _no_troubles(self) -> Troubles:
        return Troubles(self.client.clock)

    @property
    def is_clustering(self) -> bool:
        """Return whether the members share the queues."""
        return self.settings.message_model == CLUSTERING
