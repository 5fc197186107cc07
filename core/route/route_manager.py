"""The name server's tables (docs/internals/protocol.md, Name server).

They map topics to queues by broker name, broker names to addresses, clusters to broker names, and addresses to live brokers. A
broker is alive while its connection is open and it registers at least every 120 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from flintmq.core.broker.address import HERE, Advertised, Viewpoint
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.kernel.ports.channel import Channel
from flintmq.core.limits import (
    REGISTERED_BROKERS_MAX,
    REGISTERED_BROKERS_PER_CONNECTION_MAX,
    REGISTERED_TOPICS_IN_ALL_MAX,
)
from flintmq.core.log_events import client_log
from flintmq.core.response_code import ResponseCode
from flintmq.core.route.route_data import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    RegisterResult,
    TopicQueueTable,
    TopicRouteData,
)

_log = client_log(__name__)


def _full(text: str, measured: int) -> RefusedError:
    return RefusedError(ResponseCode.SYSTEM_ERROR, text, reason="register.too_many", measured=str(measured))


BROKER_EXPIRY_S = 120.0
"""Seconds without a registration after which a name server removes a broker."""


LEFT_KEPT_S = 24 * 3600.0
"""Seconds for which the topics of a removed broker are remembered. A client that requests the route of one of these topics
also gets the names of the removed brokers (``flintLeftBrokers``)."""
LEFT_BROKERS_MAX = 100
LEFT_TOPICS_MAX = REGISTERED_TOPICS_IN_ALL_MAX
"""Maximum number of remembered topics of removed brokers. Beyond this number, the brokers that left first are dropped with
their topics."""


class _LeftBroker(msgspec.Struct, frozen=True):
    """A broker name without any registered process, with the time of its removal and its topics."""

    at_s: float
    topics: frozenset[str]


class _LiveBroker(msgspec.Struct):
    """A registered broker process."""

    last_update_s: float
    data_version: DataVersion
    channel: Channel
    ha_server_address: str
    broker_name: str
    broker_id: int
    advertised: Advertised


def _is_older(version: DataVersion, known: DataVersion) -> bool:
    """Return whether a version of a table is older than another version of the same table. An older version has a smaller
    counter, and a timestamp that is not later."""
    return version.counter < known.counter and version.timestamp_ms <= known.timestamp_ms


class RouteInfoManager:
    """The live brokers with their topics and addresses (``RouteInfoManager`` of RocketMQ). Used only on the event loop's
    thread.

    Args:
        clock: the clock, whose monotonic time decides expiry.
        expiry_s: seconds without a registration after which a broker is removed.
    """

    def __init__(self, clock: Clock, *, expiry_s: float = BROKER_EXPIRY_S) -> None:
        self._clock = clock
        self._expiry_s = expiry_s
        self.topics = TopicQueueTable()
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[str, _LiveBroker] = {}
        self._filter_servers: dict[str, list[str]] = {}
        self._left: dict[str, _LeftBroker] = {}

    # --- registration ---

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
        is_whole: bool = False,
    ) -> RegisterResult:
        """Register a broker, or renew its registration; return the answer for the broker.

        An address that is known under another id of the same name is moved, because a slave was promoted. An address that is
        known under another name is moved too, because the broker was renamed. Topics are taken only from the master, and only
        if their version or the address is new. Topics with an older version than an earlier registration on the same connection
        are ignored, because they were sent before the table changed.

        Args:
            cluster, broker_name, broker_id, broker_address: identify the broker.
            ha_server_address: the address from which slaves replicate.
            channel: the broker's connection.
            data_version: the version of the broker's topics.
            topics: the broker's topics; None if it sent none.
            filter_servers: the broker's filter servers; None: keep the known filter servers.
            advertised: further addresses by which clients reach the broker.
            is_whole: whether ``topics`` contains all topics of the broker. If True, the broker's other topics are removed, and
                on a new connection the topics are taken whatever their version. False for brokers of RocketMQ, which may send
                single topics.

        Raises:
            RefusedError: the name server's maximum number of brokers or topics would be exceeded.
        """
        topics = None if topics is None else list(topics)
        self._check_room(broker_name, broker_address, channel, 0 if topics is None else len(topics))
        before = self._live.get(broker_address)
        if before is not None and before.broker_name != broker_name:
            # A renamed broker's old name is removed here, because the expiry of a registration removes only the new name.
            self._remove_address(before.broker_name, broker_address)
            self._left.pop(before.broker_name, None)  # A renamed broker does not count as a removed broker.
        self._clusters.setdefault(cluster, {})[broker_name] = None
        addresses, is_new = self._enter_address(cluster, broker_name, broker_id, broker_address)
        self._left.pop(broker_name, None)
        live = self._live.get(broker_address)
        if live is None:
            _log.info(
                "route.registered",
                "broker %(broker)s (%(address)s, id %(broker_id)d) registered",
                broker=broker_name,
                address=broker_address,
                broker_id=broker_id,
            )
        if broker_id == MASTER_ID and (is_new or live is None):
            # Topics of a master that registers after an absence are writable again, even after WIPE_WRITE_PERM_OF_BROKER.
            self.topics.end_wipe(broker_name)
        is_same_channel = live is not None and live.channel is channel
        if live is not None and is_same_channel and _is_older(data_version, live.data_version):
            topics, data_version = None, live.data_version
        is_changed = is_new or live is None or live.data_version != data_version or (is_whole and not is_same_channel)
        if topics is not None and broker_id == MASTER_ID and is_changed:
            self._take_topics(broker_name, topics, is_whole=is_whole)
        self._live[broker_address] = _LiveBroker(
            self._clock.monotonic_s(), data_version, channel, ha_server_address, broker_name, broker_id, advertised
        )
        self._take_filter_servers(broker_address, filter_servers)
        return self._result_for(broker_id, addresses)

    def _enter_address(self, cluster: str, name: str, broker_id: int, address: str) -> tuple[dict[int, str], bool]:
        """Set the address of a broker id; return all addresses of the broker's name, keyed by id, and whether the address is
        new under this id."""
        known = self._brokers.get(name)
        addresses = dict(known.broker_addrs) if known is not None else {}
        for other_id in [i for i, other in addresses.items() if other == address and i != broker_id]:
            del addresses[other_id]
        is_new = addresses.get(broker_id) != address
        addresses[broker_id] = address
        self._leave_cluster(known, cluster)
        self._brokers[name] = BrokerData(
            cluster=cluster, broker_name=name, broker_addrs=dict(sorted(addresses.items()))
        )
        return addresses, is_new

    def _take_topics(self, broker_name: str, topics: Iterable[TopicConfig], *, is_whole: bool) -> None:
        table = {config.topic_name: config for config in topics}
        for config in table.values():
            self.topics.put(broker_name, config)
        if is_whole:
            self.topics.keep_only(broker_name, table.keys())

    def _take_filter_servers(self, broker_address: str, filter_servers: Sequence[str] | None) -> None:
        if filter_servers:
            self._filter_servers[broker_address] = list(filter_servers)
        elif filter_servers is not None:
            self._filter_servers.pop(broker_address, None)

    def _check_room(self, broker_name: str, broker_address: str, channel: Channel, topics: int) -> None:
        if broker_address not in self._live:
            if len(self._live) >= REGISTERED_BROKERS_MAX:
                text = f"{len(self._live)} brokers are registered; at most {REGISTERED_BROKERS_MAX}"
                raise _full(text, len(self._live))
            own = sum(live.channel is channel for live in self._live.values())
            if own >= REGISTERED_BROKERS_PER_CONNECTION_MAX:
                text = (
                    f"{own} brokers are registered by one connection; at most {REGISTERED_BROKERS_PER_CONNECTION_MAX}"
                )
                raise _full(text, own)
        size = self.topics.size
        if size + topics > REGISTERED_TOPICS_IN_ALL_MAX and topics > len(self.topics.topics_at((broker_name,))):
            text = f"{size} topics of all brokers are registered, and {topics} would come; at most"
            raise _full(f"{text} {REGISTERED_TOPICS_IN_ALL_MAX}", size)

    def _leave_cluster(self, known: BrokerData | None, cluster: str) -> None:
        """Remove a broker name from its earlier cluster, if the broker has moved to another cluster."""
        if known is not None and known.cluster != cluster:
            self._remove_from_cluster(known)

    def _remove_from_cluster(self, broker: BrokerData) -> None:
        names = self._clusters.get(broker.cluster, {})
        names.pop(broker.broker_name, None)
        if not names:
            self._clusters.pop(broker.cluster, None)

    def _result_for(self, broker_id: int, addresses: Mapping[int, str]) -> RegisterResult:
        if broker_id == MASTER_ID or MASTER_ID not in addresses:
            return RegisterResult()
        master_address = addresses[MASTER_ID]
        master = self._live.get(master_address)
        if master is None:
            return RegisterResult()
        return RegisterResult(master.ha_server_address, master_address)

    def is_data_version_changed(self, broker_address: str, data_version: DataVersion) -> bool:
        """Return whether the version of a broker's topics differs from that of the broker's last registration; True if the
        broker is not registered."""
        known = self.data_version(broker_address)
        return known is None or known != data_version

    def data_version(self, broker_address: str) -> DataVersion | None:
        """Return the version of the topics in a broker's last registration; None if the broker is not registered."""
        live = self._live.get(broker_address)
        return live.data_version if live is not None else None

    def touch(self, broker_address: str) -> None:
        """Renew the time of a broker's last registration, after a QUERY_DATA_VERSION request without a change."""
        live = self._live.get(broker_address)
        if live is not None:
            live.last_update_s = self._clock.monotonic_s()

    def unregister(self, *, cluster: str, broker_name: str, broker_id: int, broker_address: str) -> None:
        """Remove a broker that unregisters; entries of other broker names stay."""
        live = self._live.get(broker_address)
        if live is not None and live.broker_name == broker_name:
            self._forget(broker_address)
        else:
            self._remove_address(broker_name, broker_address)

    def close_channel(self, channel: Channel) -> list[str]:
        """Remove the brokers whose last registration came over a closed connection; return their addresses."""
        gone = [address for address, live in self._live.items() if live.channel is channel]
        for address in gone:
            self._forget(address)
        return gone

    def remove_expired(self) -> list[Channel]:
        """Remove the brokers that have not registered in time; return their connections, which the caller must close."""
        oldest_s = self._clock.monotonic_s() - self._expiry_s
        expired = [(address, live) for address, live in self._live.items() if live.last_update_s < oldest_s]
        for address, _ in expired:
            _log.warning(
                "route.expired",
                "broker at %(address)s did not register for %(expiry_s)d s and is removed",
                address=address,
                expiry_s=self._expiry_s,
            )
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
        had = frozenset(self.topics.topics_at((broker_name,)))
        self._left.pop(broker_name, None)
        self._left[broker_name] = _LeftBroker(self._clock.monotonic_s(), had)
        while (
            len(self._left) > LEFT_BROKERS_MAX
            or sum(len(left.topics) for left in self._left.values()) > LEFT_TOPICS_MAX
        ):
            del self._left[next(iter(self._left))]
        self.topics.remove_broker(broker_name)

    # --- queries ---

    def pick_up_topic_route_data(self, topic: str, viewpoint: Viewpoint = HERE) -> TopicRouteData | None:
        """Return the route of a topic, with addresses for a viewpoint (a client's network); None if no live broker has the
        topic."""
        queues = self.topics.queues(topic)
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

    def left_brokers(self, topic: str) -> list[str]:
        """Return the names of brokers that had a topic and were removed within the last :data:`LEFT_KEPT_S` seconds."""
        oldest_s = self._clock.monotonic_s() - LEFT_KEPT_S
        return sorted(name for name, left in self._left.items() if left.at_s >= oldest_s and topic in left.topics)

    def _seen(self, broker: BrokerData, viewpoint: Viewpoint) -> BrokerData:
        """Return a broker's data, with the addresses by which clients in a network (the viewpoint) reach the broker."""
        addresses = {number: self._address(address, viewpoint) for number, address in broker.broker_addrs.items()}
        return replace(broker, broker_addrs=addresses) if addresses != broker.broker_addrs else broker

    def _address(self, registered: str, viewpoint: Viewpoint) -> str:
        live = self._live.get(registered)
        return live.advertised.address(registered, viewpoint) if live is not None else registered

    def cluster_info(self, viewpoint: Viewpoint = HERE) -> ClusterInfo:
        """Return all brokers, with their addresses for a viewpoint (a client's network), and all clusters."""
        return ClusterInfo(
            broker_addr_table={name: self._seen(broker, viewpoint) for name, broker in self._brokers.items()},
            cluster_addr_table={cluster: list(names) for cluster, names in self._clusters.items()},
        )

    def topics_by_cluster(self, cluster: str) -> list[str]:
        """Return the topics that have queues at any broker of a cluster."""
        return self.topics.topics_at(self._clusters.get(cluster, {}))

    def system_topics(self, viewpoint: Viewpoint = HERE) -> tuple[list[str], str | None]:
        """Return the names of the system topics of the name server, and the address of a broker. As in RocketMQ, the names of
        all clusters and brokers are also names of system topics.

        The address is the registered address of the first broker; None if no broker has registered an address. A broker may
        have several addresses: ``viewpoint``, which says where the client reached the name server, selects the address that
        this client can use.
        """
        names = list(dict.fromkeys([*self._clusters, *self._brokers]))
        address = next((a for broker in self._brokers.values() if (a := broker.any_address())), None)
        return names, self._address(address, viewpoint) if address is not None else None

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic at all brokers, or at the brokers of one cluster."""
        self.topics.remove(topic, self._clusters.get(cluster, {}) if cluster else self.topics.queues(topic))
        self._left = {name: replace(left, topics=left.topics - {topic}) for name, left in self._left.items()}
