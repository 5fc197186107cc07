"""Which name server a client asks: with three of them each should have a third of the clients, and keep them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingConnectError, RemotingError
from flintmq.core.route.route_data import BrokerData, QueueData, TopicRouteData
from flintmq.remoting.client import AdminClient, Consumer, Producer, PullConsumer
from flintmq.remoting.client.route import RouteCache, TopicRoute, make_topic_route
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand, request, response
from flintmq.testing.clock import ManualClock

SERVERS = ("a:1", "b:1", "c:1")


class Servers:
    """Stands for the wire: notes whom a request goes to; some addresses are down."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down: set[str] = set()
        self.gate: asyncio.Event | None = None

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        self.asked.append(address)
        if self.gate is not None:
            await self.gate.wait()
        if address in self.down:
            raise RemotingConnectError(f"{address} is down")
        return RemotingCommand(code=0)


def cache(servers: Servers, first: int, addresses: Sequence[str] = SERVERS) -> RouteCache:
    choose: Callable[[int], int] = lambda count: first % count  # noqa: E731
    return RouteCache(servers, addresses, ManualClock(), choose=choose)  # type: ignore[arg-type]


def ask(routes: RouteCache, times: int = 1) -> None:
    async def run() -> None:
        for _ in range(times):
            await routes.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))

    asyncio.run(run())


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_client_keeps_using_a_name_server_until_that_name_server_fails(first: int) -> None:
    """It then changes to the next of the list, and stays there when the first server is back."""
    servers = Servers()
    routes = cache(servers, first)
    ask(routes, 3)
    assert servers.asked == [SERVERS[first]] * 3
    servers.down = {SERVERS[first]}
    servers.asked.clear()
    ask(routes, 2)
    following = SERVERS[(first + 1) % 3]
    assert servers.asked == [SERVERS[first], following, following]
    servers.down = set()
    servers.asked.clear()
    ask(routes, 2)
    assert servers.asked == [following] * 2
    assert routes.name_servers == SERVERS, "told as they were given"


def test_every_name_server_is_tried_once_before_a_request_fails() -> None:
    """The next request begins at the server where this request began."""
    servers = Servers()
    servers.down = set(SERVERS)
    routes = cache(servers, 1)
    for _ in range(2):
        servers.asked.clear()
        with pytest.raises(RemotingError, match="a:1 is down"):
            ask(routes)
        assert servers.asked == ["b:1", "c:1", "a:1"]


def test_the_client_switches_name_servers_only_once_if_several_requests_fail_at_the_same_time() -> None:
    """Ten requests that were under way when the server died must not go round in a circle."""
    servers = Servers()
    servers.down = {"a:1"}
    routes = cache(servers, 0)

    async def run() -> None:
        servers.gate = asyncio.Event()
        waiting = [asyncio.create_task(routes.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))) for _ in range(10)]
        await asyncio.sleep(0)  # each runs as far as the gate
        assert len(servers.asked) == 10
        servers.gate.set()
        await asyncio.gather(*waiting)

    asyncio.run(run())
    assert Counter(servers.asked) == {"a:1": 10, "b:1": 10}
    servers.asked.clear()
    ask(routes)
    assert servers.asked == ["b:1"]


@pytest.mark.parametrize(
    "make",
    [
        lambda servers: Producer("p", servers),
        lambda servers: Consumer("c", servers, lambda message: None),
        lambda servers: PullConsumer("c", servers),
        lambda servers: AdminClient(servers),
    ],
    ids=["producer", "consumer", "pull consumer", "administration"],
)
def test_every_kind_of_client_begins_at_a_random_name_server(make: Any) -> None:
    """Each of three servers gets some 100 of 300 clients; fewer than 50 cannot be chance."""

    async def run() -> Counter[str]:
        begun: Counter[str] = Counter()
        for _ in range(300):
            client = make(";".join(SERVERS))
            servers = Servers()
            client.client.routes._remoting = servers
            await client.client.routes.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
            begun.update(servers.asked)
        return begun

    begun = asyncio.run(run())
    assert set(begun) == set(SERVERS)
    assert min(begun.values()) > 50


def test_a_route_cache_can_be_created_without_name_servers() -> None:
    """Who is given a broker's address asks nobody for routes."""
    assert RouteCache(Servers(), (), ManualClock()).name_servers == ()  # type: ignore[arg-type]


def route_of(queue_nums: int, order_topic_conf: str | None = None) -> TopicRoute:
    """Return the route of a topic at two brokers, named against the alphabet."""
    names = ("b", "a")
    brokers = [BrokerData(broker_addrs={0: f"{name}:1"}, broker_name=name, cluster="C") for name in names]
    queues = [
        QueueData(broker_name=name, perm=6, read_queue_nums=queue_nums, topic_sys_flag=0, write_queue_nums=queue_nums)
        for name in names
    ]
    data = TopicRouteData(broker_datas=brokers, queue_datas=queues, order_topic_conf=order_topic_conf)
    return make_topic_route("T", data)


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("Aa", 2112), ("BB", 2112)],
)
def test_a_sharding_key_chooses_the_queue_that_the_java_client_chooses(key: str, hash_code: int) -> None:
    """``Math.abs(key.hashCode() % queues.size())`` of the queues by broker name and id, also of the least number there is."""
    for queue_nums in (1, 2, 3, 8):
        route = route_of(queue_nums)
        ordered = [MessageQueue(name, queue_id, "T") for name in ("a", "b") for queue_id in range(queue_nums)]
        java_remainder = int(math.fmod(hash_code, len(ordered)))  # of the sign of the hash, as Java's %
        assert route.queue_by_key(key) == ordered[abs(java_remainder)]


def test_a_sharding_key_for_a_topic_without_queues_is_refused() -> None:
    with pytest.raises(RefusedError, match="no queue to write to"):
        route_of(0).queue_by_key("k")


def test_the_write_queues_of_an_ordered_topic_are_the_queues_in_its_order_configuration() -> None:
    """In its order, and also to a queue of a broker that is away: another one would get messages of a foreign key."""
    route = route_of(4, "b:2;c:1;")
    assert route.write_queues == (MessageQueue("b", 0, "T"), MessageQueue("b", 1, "T"), MessageQueue("c", 0, "T"))
    assert len(route.read_queues) == 8
    assert route_of(2, "").write_queues == route_of(2).write_queues
    for wrong in ("b", "b:", ":2", "b:two", "b:65537", "b:" + "9" * 5_000, "b:two;c:0"):
        with pytest.raises(RefusedError, match="write broker-a:4;broker-b:4"):
            route_of(4, wrong)


def test_invalid_entries_of_a_topic_order_configuration_are_ignored_and_valid_entries_are_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody mistypes one broker: sends go on to the queues of the others, in their order."""
    for wrong in ("b", "b:", ":2", "b:two", "b:-1", "b:2147483647", "b: 4", "b:4:5"):
        for conf in (f"{wrong};c:1;a:1", f"c:1;{wrong};a:1;", f"c:1;a:1;{wrong}"):
            assert route_of(4, conf).write_queues == (MessageQueue("c", 0, "T"), MessageQueue("a", 0, "T")), conf
    assert "are ignored: b:two; write broker-a:4" in caplog.text
    assert route_of(4, "c:0;a:1").write_queues == (MessageQueue("a", 0, "T"),)


def test_a_cached_route_is_kept_while_a_restarted_name_server_has_no_route_for_the_topic(
    fake_peer: Any, fake_broker: Any
) -> None:
    """One that has just begun knows no topic until brokers have registered; and not every send in between must ask."""

    async def run() -> None:
        async with fake_peer() as peer, RemotingClient() as remoting:
            fake_broker(peer)
            clock = ManualClock()
            routes = RouteCache(remoting, [peer.address], clock, max_age_s=10)
            route = await routes.route("T")
            clock.advance_ms(11_000)
            peer.answers[105] = lambda asked: response(asked, 17, "No topic route info")
            assert [await routes.route("T") for _ in range(3)] == [route] * 3
            assert len(peer.of_code(105)) == 2
            with pytest.raises(RefusedError, match="No topic route info"):
                await routes.route("T", max_age_s=0)
            with pytest.raises(RefusedError, match="No topic route info"):
                await routes.route("another")

    asyncio.run(run())
