"""A broker's state for tests, with whatever parts they bring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import attrs

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.address import address_of
from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.role import Role
from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import Authenticator
from flintmq.core.kernel.ports.processor import Request, RequestChannel
from flintmq.core.kernel.ports.server import RequestLatency
from flintmq.remoting.server.pool import Pool
from flintmq.testing.clock import ManualClock
from flintmq.testing.service_kit import TimersByHand


@attrs.define
class FakeServer:
    """A server without sockets."""

    pools: dict[str, Pool] = attrs.field(factory=dict)
    authenticators: tuple[Authenticator, ...] = ()
    answers_as_bytes: bool = True
    latency: RequestLatency | None = None
    busy: bool = False
    """Whether requests have to be postponed."""
    postponed: list[Request] = attrs.field(factory=list)

    def measure(self, latency: RequestLatency) -> None:
        self.latency = latency

    def pool(self, name: str) -> Pool:
        return self.pools.setdefault(name, Pool(name, 100))

    def at_turn_end(self, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)

    def must_wait(self, _channel: RequestChannel) -> bool:
        return self.busy

    def postpone(self, requests: Sequence[Request]) -> None:
        self.postponed += requests

    def flush_soon(self, _channel: RequestChannel) -> None:
        """Do nothing: what is written counts as sent."""


def state_of(config: BrokerConfig | None = None, clock: Clock | None = None, **parts: Any) -> BrokerState:
    """A broker's state; what is not given is empty, and kept in memory."""
    clock = clock if clock is not None else ManualClock()
    boot = boot_topics(cluster="DefaultCluster", broker_name="broker-a")
    defaults: dict[str, Any] = {
        "loop": None,
        "address": address_of("127.0.0.1", 10911),
        "store": SimpleNamespace(
            reader=SimpleNamespace(max_queue_offset=lambda _topic, _queue_id: 0), dispatch=lambda: False
        ),
        "topics": TopicConfigManager(None, clock, boot),
        "groups": SubscriptionGroupManager(None, clock),
        "offsets": ConsumerOffsetManager(),
        "stats": BrokerStats(clock),
        "filters": {},
        "timers": TimersByHand(),
        "server": FakeServer(),
    }
    config = config if config is not None else BrokerConfig()
    role = Role(config.broker.role, config.broker.id)
    return BrokerState(config, clock, **defaults | {"role": role} | parts)
