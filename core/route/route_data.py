"""What a name server knows of brokers and topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

MASTER_ID = 0


@attrs.frozen
class QueueData:
    """A topic's queues at one broker."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    def to_wire(self) -> dict[str, Any]:
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }


@attrs.frozen
class BrokerData:
    """A master and its slaves, which share a name."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str] = attrs.field(factory=dict)
    """Address by broker id; 0 is the master."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "brokerAddrs": dict(sorted(self.broker_addrs.items())),
            "brokerName": self.broker_name,
            "cluster": self.cluster,
        }

    def any_address(self) -> str | None:
        """The master's address, else a slave's."""
        if MASTER_ID in self.broker_addrs:
            return self.broker_addrs[MASTER_ID]
        return next(iter(self.broker_addrs.values()), None)


@attrs.frozen
class TopicRouteData:
    """Where a topic is: what GET_ROUTEINFO_BY_TOPIC answers."""

    queue_datas: tuple[QueueData, ...]
    broker_datas: tuple[BrokerData, ...]
    filter_server_table: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Filter servers by broker address."""
    order_topic_conf: str | None = None
    """``broker-a:4;broker-b:4`` of an ordered topic; None without."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "brokerDatas": [broker.to_wire() for broker in self.broker_datas],
            "filterServerTable": {address: list(servers) for address, servers in self.filter_server_table.items()},
            "orderTopicConf": self.order_topic_conf,
            "queueDatas": [queue.to_wire() for queue in self.queue_datas],
        }


@attrs.frozen
class RegisterResult:
    """What a broker is told when it registers; both are None for a master."""

    ha_server_address: str | None = None
    """Where a slave replicates from."""
    master_address: str | None = None
