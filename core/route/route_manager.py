"""The name server's tables (docs/internals/protocol.md, Name server).

Topic to queues by broker name, broker name to addresses, cluster to broker names, and per address who is alive. A broker
is alive while its connection is open and it registers at least every 120 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
from msgspec.structs import replace

from flintmq.core.broker import perm
from flintmq.core.broker.data_version import DataVersion
from flintmq.core.broker.topic_config import UNIT_FLAG, UNIT_SUB_FLAG, TopicConfig
from flintmq.core.client_log import client_log
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports.channel import Channel
from flintmq.core.route.advertised import HERE, Advertised, Viewpoint
from flintmq.core.route.route_data import MASTER_ID, BrokerData, ClusterInfo, QueueData, RegisterResult, TopicRouteData

_log = client_log(__name__)

BROKER_EXPIRY_S = 120.0
"""A broker that did not register for so long is forgotten."""


@attrs.define
class _LiveBroker:
    """A broker process that registered."""

    last_update_s: float
    data_version: DataVersion
    channel: Channel
    ha_server_address: str
    broker_name: str
    broker_id: int
    advertised: Advertised


class RouteInfoManager:
    """Who is where. Loop thread.

    Args:
        clock: its monotonic side decides expiry.
        expiry_s: how long a silent broker is kept.
    """

    def __init__(self, clock: Clock, *, expiry_s: float = BROKER_EXPIRY_S) -> None:
        self._clock = clock
        self._expiry_s = expiry_s
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[str, _LiveBroker] = {}
        self._filter_servers: dict[str, list[str]] = {}

    # --- brokers come and go ---

    def register(
        self,
        *,
        cluster: str,
        broker_name: str,
        broker_id: int,
        broker_address: str,
        ha_server_address: str,
        channel: Channel,
        data_version: DataVersion,
        topics: Iterable[TopicConfig] | None,
        filter_servers: Sequence[str] | None = None,
        advertised: Advertised = Advertised(),
    ) -> RegisterResult:
        """Takes over what a broker says of itself.

        An address known under another id of the same name is moved: a slave was promoted. Topics count only from the
        master, and only when their version or the address is new; topics it no longer has are not removed here.

        Args:
            topics: the broker's topics; None when it sent none.
            filter_servers: None leaves those known, an empty list removes them.
            advertised: by which other addresses clients reach it.
        """
        self._clusters.setdefault(cluster, {})[broker_name] = None
        known = self._brokers.get(broker_name)
        addresses = dict(known.broker_addrs) if known is not None else {}
        for other_id in [i for i, address in addresses.items() if address == broker_address and i != broker_id]:
            del addresses[other_id]
        is_new = addresses.get(broker_id) != broker_address
        addresses[broker_id] = broker_address
        self._leave_cluster(known, cluster)
        self._brokers[broker_name] = BrokerData(
            cluster=cluster, broker_name=broker_name, broker_addrs=dict(sorted(addresses.items()))
        )
        is_changed = is_new or self.is_data_version_changed(broker_address, data_version)
        if topics is not None and broker_id == MASTER_ID and is_changed:
            for config in topics:
                self._put_queue_data(broker_name, config)
        if broker_address not in self._live:
            _log.info("broker %s (%s, id %d) registered", broker_name, broker_address, broker_id)
        self._live[broker_address] = _LiveBroker(
            self._clock.monotonic_s(), data_version, channel, ha_server_address, broker_name, broker_id, advertised
        )
        if filter_servers is not None:
            if filter_servers:
                self._filter_servers[broker_address] = list(filter_servers)
            else:
                self._filter_servers.pop(broker_address, None)
        return self._result_for(broker_id, addresses)

    def _leave_cluster(self, known: BrokerData | None, cluster: str) -> None:
        """A broker name that moved to another cluster is in one only."""
        if known is not None and known.cluster != cluster:
            self._remove_from_cluster(known)

    def _remove_from_cluster(self, broker: BrokerData) -> None:
        names = self._clusters.get(broker.cluster, {})
        names.pop(broker.broker_name, None)
        if not names:
            self._clusters.pop(broker.cluster, None)

    def _put_queue_data(self, broker_name: str, config: TopicConfig) -> None:
        self._topics.setdefault(config.topic_name, {})[broker_name] = QueueData(
            broker_name=broker_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )

    def _result_for(self, broker_id: int, addresses: Mapping[int, str]) -> RegisterResult:
        if broker_id == MASTER_ID or MASTER_ID not in addresses:
            return RegisterResult()
        master_address = addresses[MASTER_ID]
        master = self._live.get(master_address)
        if master is None:
            return RegisterResult()
        return RegisterResult(master.ha_server_address, master_address)

    def is_data_version_changed(self, broker_address: str, data_version: DataVersion) -> bool:
        """True when this is not the version the broker last registered with, or it never did."""
        known = self.data_version(broker_address)
        return known is None or known != data_version

    def data_version(self, broker_address: str) -> DataVersion | None:
        """The version a broker last registered with."""
        live = self._live.get(broker_address)
        return live.data_version if live is not None else None

    def touch(self, broker_address: str) -> None:
        """Notes that a broker lives (QUERY_DATA_VERSION without a change)."""
        live = self._live.get(broker_address)
        if live is not None:
            live.last_update_s = self._clock.monotonic_s()

    def unregister(self, *, cluster: str, broker_name: str, broker_id: int, broker_address: str) -> None:
        """A broker leaves. What is not registered under exactly these names stays."""
        live = self._live.get(broker_address)
        if live is not None and live.broker_name == broker_name:
            self._forget(broker_address)
        else:
            self._remove_address(broker_name, broker_address)

    def close_channel(self, channel: Channel) -> list[str]:
        """Forgets the brokers that registered last over a connection that closed. Returns their addresses."""
        gone = [address for address, live in self._live.items() if live.channel is channel]
        for address in gone:
            self._forget(address)
        return gone

    def remove_expired(self) -> list[Channel]:
        """Forgets brokers that did not register in time. Returns their connections, which the caller closes."""
        oldest_s = self._clock.monotonic_s() - self._expiry_s
        expired = [(address, live) for address, live in self._live.items() if live.last_update_s < oldest_s]
        for address, _ in expired:
            _log.warning("broker at %s did not register for %d s: forgotten", address, self._expiry_s)
            self._forget(address)
        return list({id(live.channel): live.channel for _, live in expired}.values())

    def _forget(self, broker_address: str) -> None:
        live = self._live.pop(broker_address)
        self._filter_servers.pop(broker_address, None)
        self._remove_address(live.broker_name, broker_address)

    def _remove_address(self, broker_name: str, broker_address: str) -> None:
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        left = {i: address for i, address in broker.broker_addrs.items() if address != broker_address}
        if left:
            self._brokers[broker_name] = replace(broker, broker_addrs=left)
            return
        del self._brokers[broker_name]
        self._remove_from_cluster(broker)
        for topic in [topic for topic, queues in self._topics.items() if broker_name in queues]:
            self._remove_queue_data(topic, broker_name)

    def _remove_queue_data(self, topic: str, broker_name: str) -> None:
        queues = self._topics[topic]
        queues.pop(broker_name, None)
        if not queues:
            del self._topics[topic]

    # --- questions ---

    def pick_up_topic_route_data(self, topic: str, viewpoint: Viewpoint = HERE) -> TopicRouteData | None:
        """Where a topic is, for a client who asks from there; None when no broker that lives has it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        addresses = [address for broker in brokers for address in broker.broker_addrs.values()]
        filters = {address: self._filter_servers[address] for address in addresses if address in self._filter_servers}
        return TopicRouteData(
            queue_datas=list(queues.values()),
            broker_datas=[self._seen(broker, viewpoint) for broker in brokers],
            filter_server_table=filters,
        )

    def _seen(self, broker: BrokerData, viewpoint: Viewpoint) -> BrokerData:
        """The broker with the addresses by which a client reaches it who asks from there."""
        addresses = {number: self._address(address, viewpoint) for number, address in broker.broker_addrs.items()}
        return replace(broker, broker_addrs=addresses) if addresses != broker.broker_addrs else broker

    def _address(self, registered: str, viewpoint: Viewpoint) -> str:
        live = self._live.get(registered)
        return live.advertised.address(registered, viewpoint) if live is not None else registered

    def cluster_info(self, viewpoint: Viewpoint = HERE) -> ClusterInfo:
        """Return every broker, with the addresses for a client who asks from there, and every cluster."""
        return ClusterInfo(
            broker_addr_table={name: self._seen(broker, viewpoint) for name, broker in self._brokers.items()},
            cluster_addr_table={cluster: list(names) for cluster, names in self._clusters.items()},
        )

    def all_topics(self) -> list[str]:
        return list(self._topics)

    def topics_by_cluster(self, cluster: str) -> list[str]:
        """Topics that a broker of the cluster has."""
        names = self._clusters.get(cluster, {}).keys()
        return [topic for topic, queues in self._topics.items() if names & queues.keys()]

    def system_topics(self, viewpoint: Viewpoint = HERE) -> tuple[list[str], str | None]:
        """Names of clusters and brokers, which are topics too, and the address of some broker."""
        names = list(dict.fromkeys([*self._clusters, *self._brokers]))
        address = next((a for broker in self._brokers.values() if (a := broker.any_address())), None)
        return names, self._address(address, viewpoint) if address is not None else None

    def unit_topics(self) -> list[str]:
        """Topics with the unit flag at some broker."""
        return self._flagged(lambda flag: bool(flag & UNIT_FLAG))

    def unit_sub_topics(self) -> list[str]:
        """Topics with the unit subscription flag at some broker."""
        return self._flagged(lambda flag: bool(flag & UNIT_SUB_FLAG))

    def unit_sub_ununit_topics(self) -> list[str]:
        """Topics with the unit subscription flag and without the unit flag at some broker."""
        return self._flagged(lambda flag: bool(flag & UNIT_SUB_FLAG) and not flag & UNIT_FLAG)

    def _flagged(self, wanted: Callable[[int], bool]) -> list[str]:
        return [
            topic
            for topic, queues in self._topics.items()
            if any(wanted(queue.topic_sys_flag) for queue in queues.values())
        ]

    # --- administration ---

    def wipe_write_perm(self, broker_name: str) -> int:
        """Takes the write permission from every topic of a broker; returns how many topics it has.

        It lasts until the broker registers a changed table.
        """
        return self._set_perm(broker_name, lambda before: before & ~perm.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Gives every topic of a broker read and write permission and no other; returns how many topics it has."""
        return self._set_perm(broker_name, lambda before: perm.READ_WRITE)

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queues[broker_name] = replace(queue, perm=change(queue.perm))
                count += 1
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forgets a topic, everywhere or at the brokers of one cluster."""
        if topic in self._topics:
            names = self._clusters.get(cluster, {}) if cluster else self._topics[topic]
            for broker_name in list(names):
                if topic in self._topics:
                    self._remove_queue_data(topic, broker_name)
