"""A name server's data about brokers and topics, in the wire format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec
from msgspec import field
from msgspec.structs import replace

from flintmq.core.broker import perm
from flintmq.core.broker.topic_config import UNIT_FLAG, UNIT_SUB_FLAG, TopicConfig
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
    """The addresses of a master and its slaves, which share a broker name."""

    broker_addrs: dict[Long, str] = field(default_factory=dict)
    """Addresses of the master and the slaves with one broker name, keyed by broker id; id 0 is the master."""
    broker_name: str = ""
    cluster: str = ""

    def any_address(self) -> str | None:
        """Return the master's address, or a slave's address if no master is registered; None if no address is registered."""
        if MASTER_ID in self.broker_addrs:
            return self.broker_addrs[MASTER_ID]
        return next(iter(self.broker_addrs.values()), None)


class TopicRouteData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The route of a topic (its queues and brokers): the answer to GET_ROUTEINFO_BY_TOPIC (105)."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    """Addresses of filter servers, keyed by broker address."""
    order_topic_conf: str | None = None
    """Order configuration of an ordered topic, such as ``broker-a:4;broker-b:4``; None for other topics."""
    queue_datas: list[QueueData] = field(default_factory=list)


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All brokers and clusters: the answer to GET_BROKER_CLUSTER_INFO (106)."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class RegisterResult(msgspec.Struct, frozen=True):
    """The answer to a broker's registration: the addresses of the master, for a slave. A master gets an answer without
    addresses."""

    ha_server_address: str | None = None
    """Address from which a slave replicates its master's log; None for a master."""
    master_address: str | None = None


class TopicQueueTable:
    """The queues of all topics, keyed by topic and then by broker name (``topicQueueTable`` of RocketMQ). Used only on the
    event loop's thread."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, QueueData]] = {}
        self.size = 0
        """Number of pairs of a topic and a broker name in the table of queues."""
        self._wiped: set[str] = set()
        """Names of brokers whose topics have no write permission, whatever the brokers register."""

    def put(self, broker_name: str, config: TopicConfig) -> None:
        """Set the queues that a topic has at a broker."""
        queues = self._table.setdefault(config.topic_name, {})
        self.size += broker_name not in queues
        queues[broker_name] = QueueData(
            broker_name=broker_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm & ~perm.WRITE if broker_name in self._wiped else config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )

    def queues(self, topic: str) -> Mapping[str, QueueData]:
        """Return the queues of a topic, keyed by broker name; empty if the topic is unknown."""
        return self._table.get(topic, {})

    def topics(self) -> list[str]:
        """Return the names of all topics that have queues at one or more registered brokers."""
        return list(self._table)

    def topics_at(self, broker_names: Collection[str]) -> list[str]:
        """Return the topics that have queues at one or more of the given brokers."""
        wanted = set(broker_names)
        return [topic for topic, queues in self._table.items() if wanted & queues.keys()]

    def unit_topics(self) -> list[str]:
        """Return the topics that have RocketMQ's unit flag in their topicSysFlag at any broker."""
        return self._flagged(lambda flag: bool(flag & UNIT_FLAG))

    def unit_sub_topics(self) -> list[str]:
        """Return the topics that have RocketMQ's unit subscription flag in their topicSysFlag at any broker."""
        return self._flagged(lambda flag: bool(flag & UNIT_SUB_FLAG))

    def unit_sub_ununit_topics(self) -> list[str]:
        """Return the topics that have RocketMQ's unit subscription flag, but not its unit flag, in their topicSysFlag at any
        broker."""
        return self._flagged(lambda flag: bool(flag & UNIT_SUB_FLAG) and not flag & UNIT_FLAG)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission from every topic of a broker; return the number of its topics.

        Topics that the broker registers later have no write permission either, until :meth:`add_write_perm` or :meth:`end_wipe`
        is called.
        """
        topics = self._set_perm(broker_name, lambda before: before & ~perm.WRITE)
        if topics:
            self._wiped.add(broker_name)
        return topics

    def add_write_perm(self, broker_name: str) -> int:
        """Set the permission of every topic of a broker to read and write; return the number of its topics."""
        self.end_wipe(broker_name)
        return self._set_perm(broker_name, lambda before: perm.READ_WRITE)

    def end_wipe(self, broker_name: str) -> None:
        """Let topics that a broker registers after this call keep their write permission, although :meth:`wipe_write_perm` was
        called for the broker earlier."""
        self._wiped.discard(broker_name)

    def remove(self, topic: str, broker_names: Collection[str]) -> None:
        """Remove the queues of a topic at the given brokers; a topic without queues is removed too."""
        queues = self._table.get(topic, {})
        for broker_name in list(broker_names):
            self.size -= queues.pop(broker_name, None) is not None
        if not queues:
            self._table.pop(topic, None)

    def keep_only(self, broker_name: str, topics: Collection[str]) -> None:
        """Remove a broker's queues of all topics except the given topics."""
        for topic in self.topics_at((broker_name,)):
            if topic not in topics:
                self.remove(topic, (broker_name,))

    def remove_broker(self, broker_name: str) -> None:
        """Remove all queues of a broker."""
        self.end_wipe(broker_name)
        for topic in self.topics_at((broker_name,)):
            self.remove(topic, (broker_name,))

    def _flagged(self, wanted: Callable[[int], bool]) -> list[str]:
        return [
            topic
            for topic, queues in self._table.items()
            if any(wanted(queue.topic_sys_flag) for queue in queues.values())
        ]

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        topics = self.topics_at((broker_name,))
        for topic in topics:
            queues = self._table[topic]
            queues[broker_name] = replace(queues[broker_name], perm=change(queues[broker_name].perm))
        return len(topics)
