"""The routes of topics (their queues and brokers), which clients get from name servers and cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from flintmq.core.broker import perm
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import InvalidArgumentError, RefusedError, RemotingConnectError, RemotingError
from flintmq.core.io import chance
from flintmq.core.io.clock import Clock
from flintmq.core.limits import QUEUE_NUMS_MAX
from flintmq.core.log_events import client_log
from flintmq.core.record.java_hash import java_hash
from flintmq.core.route.route_data import TopicRouteData
from flintmq.remoting.client.namespace import NO_NAMESPACE, Namespace
from flintmq.remoting.client.transport import IN_PROCESS, InProcessServer, RemotingClient
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.headers_route import GetRouteInfoRequestHeader
from flintmq.remoting.wire.json_body import decode_body

DOUBT_S: Final = 0.5
"""Minimum age in seconds of a route that is fetched again after a failed request. Because of this limit, broken brokers do not
cause many requests for routes."""
ROUTE_MAX_AGE_S: Final = 30.0
"""Age in seconds at which a route is fetched again, as in RocketMQ's clients."""
MASTER_ID: Final = 0
NEW_TOPIC_QUEUES: Final = 4
"""Default number of queues of a new topic, whether a send or an administrator creates it."""
_COUNT_DIGITS_MAX: Final = 10
"""Maximum number of digits of a queue count in an order configuration. A longer text is not converted to a number."""

log = client_log("flintmq.client")


@attrs.frozen
class TopicRoute:
    """A topic's queues and the addresses of the brokers that hold them."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    """Writable queues at brokers with a master, sorted by broker name and queue id.

    For an ordered topic, they are the queues that the topic's order configuration lists."""
    read_queues: tuple[MessageQueue, ...]
    broker_addrs: Mapping[str, Mapping[int, str]]
    """Addresses of the topic's brokers, keyed by broker name and by broker id. The master has the id 0."""
    data: TopicRouteData
    """The topic's route as the name server sent it."""

    def queue_by_key(self, sharding_key: str) -> MessageQueue:
        """Return the queue for a sharding key, which is the Java client's choice for the same text (SelectMessageQueueByHash).

        Raises as :meth:`queues_to_write`.
        """
        queues = self.queues_to_write()
        return queues[abs(java_hash(sharding_key)) % len(queues)]

    def queues_to_write(self) -> tuple[MessageQueue, ...]:
        """Return the topic's writable queues. Raises ``RefusedError`` if the topic has no writable queue."""
        if not self.write_queues:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"topic {self.topic} has no queue to write to", reason="route.no-queue"
            )
        return self.write_queues

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Return the address of a broker, found by its broker name and its id.

        If the id does not exist under this broker name, return the address with the lowest id under this name.

        Raises:
            RemotingConnectError: the broker is not in the route.
        """
        addrs = self.broker_addrs.get(broker_name)
        if not addrs:
            raise RemotingConnectError(f"broker {broker_name} is not in the route of topic {self.topic}")
        return addrs.get(broker_id) or addrs[min(addrs)]


def make_topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """Return the route of a topic from a name server's answer (MQClientInstance.topicRouteData2TopicPublishInfo).

    Raises:
        RefusedError: the order configuration has no entry of the form ``broker-a:4``.
    """
    addrs = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    queue_datas = sorted(data.queue_datas, key=lambda queue_data: queue_data.broker_name)
    write = _ordered_queues(topic, data.order_topic_conf) or tuple(
        MessageQueue(queue_data.broker_name, queue_id, topic)
        for queue_data in queue_datas
        if perm.is_writeable(queue_data.perm) and MASTER_ID in addrs.get(queue_data.broker_name, {})
        for queue_id in range(queue_data.write_queue_nums)
    )
    read = (
        MessageQueue(queue_data.broker_name, queue_id, topic)
        for queue_data in queue_datas
        if perm.is_readable(queue_data.perm) and addrs.get(queue_data.broker_name)
        for queue_id in range(queue_data.read_queue_nums)
    )
    return TopicRoute(topic, write, tuple(read), addrs, data)


def _ordered_queues(topic: str, order_topic_conf: str | None) -> tuple[MessageQueue, ...]:
    """Return the queues that a topic's order configuration lists; empty if the topic is not ordered.

    An invalid entry is skipped with a warning. The topic stays ordered, and sharding keys select only queues of valid entries.
    """
    counts: dict[str, int] = {}
    wrong: list[str] = []
    for entry in filter(None, (order_topic_conf or "").split(";")):
        broker_name, _, count = entry.partition(":")
        if broker_name and count.isdecimal() and len(count) <= _COUNT_DIGITS_MAX and int(count) <= QUEUE_NUMS_MAX:
            counts[broker_name] = int(count)
        else:
            wrong.append(entry)
    if wrong and not any(counts.values()):
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the order configuration of topic {topic} is {order_topic_conf!r}: write broker-a:4;broker-b:4, for example",
            reason="route.order-configuration",
        )
    if wrong:
        log.warning(
            "client.order_entry",
            "invalid entries in the order configuration of topic %(topic)s are ignored: %(entries)s; write broker-a:4",
            topic=topic,
            entries="; ".join(wrong),
        )
    return tuple(MessageQueue(name, queue_id, topic) for name, count in counts.items() for queue_id in range(count))


NameServers = str | Sequence[str] | InProcessServer
"""Name servers as ``host:port;host:port`` or as a sequence of addresses. An embedded broker is accepted instead, which needs no
name server."""


def parse_name_servers(name_servers: NameServers) -> tuple[str, ...]:
    """Return the addresses of name servers as a tuple. Raises ``ValueError`` if ``name_servers`` contains no address."""
    if isinstance(name_servers, InProcessServer):
        return (IN_PROCESS,)
    parts = name_servers.replace(",", ";").split(";") if isinstance(name_servers, str) else name_servers
    addresses = tuple(part.strip() for part in parts if part.strip())
    if not addresses:
        raise InvalidArgumentError("a client needs the address of at least one name server")
    return addresses


class RouteCache:
    """Fetches routes from a name server and caches them. Used only on the event loop's thread.

    One name server, chosen at random, is used until it fails, then the next one. Clients with the same list therefore share its
    servers evenly, as RocketMQ's clients do (NettyRemotingClient.getAndCreateNameserverChannel).

    Args:
        remoting: the transport for requests.
        name_servers: the addresses as ``host:port``, at least one.
        clock: measures the age of routes.
        timeout_ms: the timeout of a request to one name server.
        choose: called with the number of name servers; returns the index of the server to use first.
        max_age_s: the age at which a route is fetched again.
        namespace: the namespace that is added to topic names in requests.
    """

    def __init__(
        self,
        remoting: RemotingClient,
        name_servers: Sequence[str],
        clock: Clock,
        timeout_ms: int = 3_000,
        *,
        choose: Callable[[int], int] = chance.below,
        max_age_s: float = ROUTE_MAX_AGE_S,
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        self._namespace = namespace
        self._remoting = remoting
        self.name_servers: tuple[str, ...] = tuple(name_servers)
        self._chosen = choose(len(self.name_servers)) if self.name_servers else 0
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._max_age_s = max_age_s
        self._routes: dict[str, tuple[float, TopicRoute]] = {}

    async def route(self, topic: str, *, max_age_s: float | None = None, timeout_ms: float | None = None) -> TopicRoute:
        """Return the route of a topic, fetched if the cached one is older than ``max_age_s``.

        A cached route stays valid while no name server answers, or while a restarted name server does not know the topic yet
        (MQClientInstance.updateTopicRouteInfoFromNameServer). The cached route then counts as new, so that not every send waits
        for another request. With ``max_age_s=0`` the name server's answer that the topic does not exist is final.

        Args:
            topic: the topic.
            max_age_s: the age at which the cached route is fetched again; None: the default age.
            timeout_ms: the limit for all name servers together; None: the default timeout for each. If a route is cached, only
                half of the limit is used, which leaves time for the request that needs the route.

        Raises:
            RefusedError: the name server refuses, for example with TOPIC_NOT_EXIST, and no route is cached.
            RemotingError: no name server answers, and no route is cached.
        """
        fresh = self.fresh(topic, max_age_s=max_age_s)
        if fresh is not None:
            return fresh
        now_s = self._clock.monotonic_s()
        try:
            if timeout_ms is not None and topic in self._routes:
                timeout_ms /= 2
            route = make_topic_route(topic, await self.fetch(topic, timeout_ms=timeout_ms))
        except (RemotingError, RefusedError) as failure:
            is_gone = isinstance(failure, RefusedError) and (
                failure.code != ResponseCode.TOPIC_NOT_EXIST or max_age_s == 0
            )
            if is_gone or topic not in self._routes:
                raise
            route = self._routes[topic][1]
        self._routes[topic] = (now_s, route)
        return route

    def fresh(self, topic: str, *, max_age_s: float | None = None) -> TopicRoute | None:
        """Return the cached route of a topic if it is not older than ``max_age_s`` (None: the default age), else None."""
        known = self._routes.get(topic)
        if known is None or self._clock.monotonic_s() - known[0] >= (
            self._max_age_s if max_age_s is None else max_age_s
        ):
            return None
        return known[1]

    def doubt(self, topic: str) -> None:
        """Mark a topic's cached route as old, so that the next use fetches it again; called if a broker does not answer.

        A call within :data:`DOUBT_S` of the last fetch has no effect, so that unreachable brokers cause few requests.
        """
        known = self._routes.get(topic)
        now_s = self._clock.monotonic_s()
        if known is not None and now_s - known[0] >= DOUBT_S:
            self._routes[topic] = (now_s - self._max_age_s, known[1])

    async def fetch(self, topic: str, *, timeout_ms: float | None = None) -> TopicRouteData:
        """Fetch the topic's current route data from a name server, without the cache. Raises as :meth:`route`."""
        header = GetRouteInfoRequestHeader(topic=self._namespace.wrap(topic), accept_standard_json_only=True)
        answer = await self.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(answer.code, answer.remark or f"no route of topic {topic}", reason="route.missing")
        return decode_body(answer.body, TopicRouteData)

    async def ask(self, command: RemotingCommand, timeout_ms: float | None = None) -> RemotingCommand:
        """Send a request to the chosen name server, or, if it fails, to each next name server in turn; return the answer.

        Args:
            command: the request.
            timeout_ms: the limit for all servers together, divided equally among the servers not asked yet; None: the default
                timeout for each.

        Raises:
            RemotingError: no name server answered; the error is the last server's.
        """
        failure: RemotingError | None = None
        servers, first = self.name_servers, self._chosen
        ends_s = None if timeout_ms is None else self._clock.monotonic_s() + timeout_ms / 1000
        for step in range(len(servers)):
            at = (first + step) % len(servers)
            patience_ms: float = self._timeout_ms
            if ends_s is not None:
                left_ms = (ends_s - self._clock.monotonic_s()) * 1000
                patience_ms = min(patience_ms, max(1.0, left_ms / (len(servers) - step)))
            try:
                return await self._remoting.invoke(servers[at], command, patience_ms)
            except RemotingError as error:
                failure = error
                # After a failure, ``_chosen`` moves to the next name server, unless a concurrent request has moved it.
                if self._chosen == at:
                    self._chosen = (at + 1) % len(servers)
        assert failure is not None
        raise failure

    def known(self) -> tuple[TopicRoute, ...]:
        """Return the cached routes of all topics."""
        return tuple(route for _, route in self._routes.values())

    def broker_addresses(self, *, masters_only: bool = False) -> tuple[str, ...]:
        """Return the distinct addresses of all brokers (or only masters) in the cached routes."""
        return tuple(
            dict.fromkeys(
                address
                for route in self.known()
                for addrs in route.broker_addrs.values()
                for broker_id, address in addrs.items()
                if broker_id == MASTER_ID or not masters_only
            )
        )
