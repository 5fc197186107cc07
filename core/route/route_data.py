"""What a name server knows of brokers and topics, in the form of the wire."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import field

from flintmq.core.io.typed_json import Int, Long

MASTER_ID: Final = 0


class QueueData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queues of a topic at one broker."""

    broker_name: str = ""
    perm: Int = 0
    read_queue_nums: Int = 0
    topic_sys_flag: Int = 0
    write_queue_nums: Int = 0


class BrokerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A master and its slaves, which share a name."""

    broker_addrs: dict[Long, str] = field(default_factory=dict)
    """Address by broker id; 0 is the master."""
    broker_name: str = ""
    cluster: str = ""

    def any_address(self) -> str | None:
        """Return the master's address, or a slave's when no master is registered."""
        if MASTER_ID in self.broker_addrs:
            return self.broker_addrs[MASTER_ID]
        return next(iter(self.broker_addrs.values()), None)


class TopicRouteData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which brokers hold a topic: the answer to GET_ROUTEINFO_BY_TOPIC (105)."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    """Filter servers by broker address."""
    order_topic_conf: str | None = None
    """``broker-a:4;broker-b:4`` of an ordered topic; None of others."""
    queue_datas: list[QueueData] = field(default_factory=list)


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Every broker and cluster: the answer to GET_BROKER_CLUSTER_INFO (106)."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class RegisterResult(msgspec.Struct, frozen=True):
    """The answer to a broker that registers; both are None for a master."""

    ha_server_address: str | None = None
    """Where a slave replicates from."""
    master_address: str | None = None
