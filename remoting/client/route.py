"""Where topics are: routes from the name servers, remembered and refreshed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from flintmq.core.broker import perm
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import InvalidArgumentError, RefusedError, RemotingConnectError, RemotingError
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
"""A route that is younger is not doubted: a broker that comes back is registered within this time, or a while later."""
ROUTE_MAX_AGE_S: Final = 30.0
"""RocketMQ's clients ask again every 30 s."""
MASTER_ID: Final = 0
NEW_TOPIC_QUEUES: Final = 4
"""Queues of a topic that is made without a number, whether by sending to it or by an administrator."""
_COUNT_DIGITS_MAX: Final = 10
"""Of a number of queues: one that is longer is not even converted."""

log = client_log("flintmq.client")


@attrs.frozen
class TopicRoute:
    """A topic's queues and the addresses of the brokers that hold them."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    """Queues at brokers with a master, in the order of broker name and queue id; of an ordered topic those that its order
    configuration lists."""
    read_queues: tuple[MessageQueue, ...]
    broker_addrs: Mapping[str, Mapping[int, str]]
    """Broker name → broker id → address; id 0 is the master."""
    data: TopicRouteData
    """As received."""

    def queue_by_key(self, sharding_key: str) -> MessageQueue:
        """Return the queue of all messages with a key: the one that the Java client chooses for the same text
        (SelectMessageQueueByHash). Raises as :meth:`queues_to_write`."""
        queues = self.queues_to_write()
        return queues[abs(java_hash(sharding_key)) % len(queues)]

    def queues_to_write(self) -> tuple[MessageQueue, ...]:
        """Return the queues that can be written to, at least one. Raises ``RefusedError`` where there is none."""
        if not self.write_queues:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"topic {self.topic} has no queue to write to", reason="route.no-queue"
            )
        return self.write_queues

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Return the address of a broker: of that id, else of any that is left.

        Raises:
            RemotingConnectError: the broker is not in the route.
        """
        addrs = self.broker_addrs.get(broker_name)
        if not addrs:
            raise RemotingConnectError(f"broker {broker_name} is not in the route of topic {self.topic}")
        return addrs.get(broker_id) or addrs[min(addrs)]


def make_topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """Return a route of what a name server answered (MQClientInstance.topicRouteData2TopicPublishInfo).

    Raises:
        RefusedError: no entry of the order configuration is of the form ``broker-a:4``.
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
    """Return the queues of an ordered topic as its configuration lists them; none of another topic.

    An entry that cannot be read is left out: the other brokers' queues stay those of their keys.
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
            f"the order configuration of topic {topic} is {order_topic_conf!r}: write broker-a:4;broker-b:4",
            reason="route.order-configuration",
        )
    if wrong:
        log.warning(
            "client.order_entry",
            "order configuration of topic %(topic)s: left out is %(entries)s; write broker-a:4",
            topic=topic,
            entries="; ".join(wrong),
        )
    return tuple(MessageQueue(name, queue_id, topic) for name, count in counts.items() for queue_id in range(count))


NameServers = str | Sequence[str] | InProcessServer
"""``host:port;host:port``, a sequence of addresses, or an embedded broker, which needs no name server."""


def parse_name_servers(name_servers: NameServers) -> tuple[str, ...]:
    """``host:port;host:port`` as a tuple. Raises ``ValueError`` when there is none."""
    if isinstance(name_servers, InProcessServer):
        return (IN_PROCESS,)
    parts = name_servers.replace(",", ";").split(";") if isinstance(name_servers, str) else name_servers
    addresses = tuple(part.strip() for part in parts if part.strip())
    if not addresses:
        raise InvalidArgumentError("a client needs the address of at least one name server")
    return addresses


class RouteCache:
    """Asks one of the name servers, the first one chosen at random, and stays with it until it fails; then the next is asked.

    So many clients that are given the same list share its servers evenly, as RocketMQ's do
    (NettyRemotingClient.getAndCreateNameserverChannel). Loop thread only.

    Args:
        remoting: asks.
        name_servers: ``host:port`` each, at least one.
        clock: how old a route is.
        timeout_ms: how long a name server may take.
        choose: gives a number below the one it is given: where to begin.
        max_age_s: an older route is asked for again.
        namespace: of the topics.
    """

    def __init__(
        self,
        remoting: RemotingClient,
        name_servers: Sequence[str],
        clock: Clock,
        timeout_ms: int = 3_000,
        *,
        choose: Callable[[int], int] = random.randrange,
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
        """Return the topic's route, asked for when the one known is older than ``max_age_s`` (None: the usual age).

        A known route outlives name servers that do not answer, and those that have just begun and were not told of the topic
        yet (MQClientInstance.updateTopicRouteInfoFromNameServer); it counts as new then, so that not every send asks again,
        and waits. With an age of 0 the name server's word counts.

        Args:
            topic: the topic.
            max_age_s: an older route is asked for again.
            timeout_ms: how long all name servers together may take; None: the usual time each. Where a route is known, half
                of it: the rest is for what the route is needed for.

        Raises:
            RefusedError: TOPIC_NOT_EXIST, or what else the name server says; no route is known.
            RemotingError: no name server answers, and no route is known.
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
        """Return the topic's route where :meth:`route` would return it without asking; else None."""
        known = self._routes.get(topic)
        if known is None or self._clock.monotonic_s() - known[0] >= (
            self._max_age_s if max_age_s is None else max_age_s
        ):
            return None
        return known[1]

    def doubt(self, topic: str) -> None:
        """Have the topic's route asked for again when it is needed next: its broker does not answer where it was.

        Nothing happens within :data:`DOUBT_S` of the last time: brokers that are away for long cost name servers little.
        """
        known = self._routes.get(topic)
        now_s = self._clock.monotonic_s()
        if known is not None and now_s - known[0] >= DOUBT_S:
            self._routes[topic] = (now_s - self._max_age_s, known[1])

    async def fetch(self, topic: str, *, timeout_ms: float | None = None) -> TopicRouteData:
        """Return the topic's route as a name server knows it now. Raises as :meth:`route`."""
        header = GetRouteInfoRequestHeader(topic=self._namespace.wrap(topic), accept_standard_json_only=True)
        answer = await self.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(answer.code, answer.remark or f"no route of topic {topic}", reason="route.missing")
        return decode_body(answer.body, TopicRouteData)

    async def ask(self, command: RemotingCommand, timeout_ms: float | None = None) -> RemotingCommand:
        """Ask the chosen name server, and where it fails the next ones in turn. Raises the last one's ``RemotingError``.

        Args:
            command: the request.
            timeout_ms: for all of them together, in equal parts of what is left; None: the usual time for each.
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
                if self._chosen == at:  # else another request has found out before
                    self._chosen = (at + 1) % len(servers)
        assert failure is not None
        raise failure

    def known(self) -> tuple[TopicRoute, ...]:
        """Return every route known now."""
        return tuple(route for _, route in self._routes.values())

    def broker_addresses(self, *, masters_only: bool = False) -> tuple[str, ...]:
        """Addresses of all brokers in known routes, each once."""
        return tuple(
            dict.fromkeys(
                address
                for route in self.known()
                for addrs in route.broker_addrs.values()
                for broker_id, address in addrs.items()
                if broker_id == MASTER_ID or not masters_only
            )
        )
