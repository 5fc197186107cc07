"""A broker's state for tests, with whatever parts they bring."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.address import BrokerAddress
from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.role import Role
from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.io.clock import Clock
from flintmq.testing.clock import ManualClock


def state_of(config: BrokerConfig | None = None, clock: Clock | None = None, **parts: Any) -> BrokerState:
    """A broker's state; what is not given is empty, and kept in memory."""
    clock = clock if clock is not None else ManualClock()
    boot = boot_topics(cluster="DefaultCluster", broker_name="broker-a")
    defaults: dict[str, Any] = {
        "loop": None,
        "address": BrokerAddress.of("127.0.0.1", 10911),
        "store": SimpleNamespace(
            reader=SimpleNamespace(max_queue_offset=lambda _topic, _queue_id: 0), dispatch=lambda: False
        ),
        "topics": TopicConfigManager(None, clock, boot),
        "groups": SubscriptionGroupManager(None, clock),
        "offsets": ConsumerOffsetManager(),
        "stats": BrokerStats(clock),
        "filters": {},
        "timers": None,
    }
    config = config if config is not None else BrokerConfig()
    role = Role(config.broker.role, config.broker.id)
    return BrokerState(config, clock, **defaults | {"role": role} | parts)
