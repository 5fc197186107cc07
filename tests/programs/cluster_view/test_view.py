"""The view tells of a real cluster what is there, also while part of it is away: an operator looks when things go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.errors import RemotingError
from flintmq.programs.cluster_view.poll import Pace
from flintmq.programs.cluster_view.values import as_json
from flintmq.programs.cluster_view.view import ClusterView
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, MessageExt, MessageQueue, Producer
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.remoting.wire.codes import RequestCode
from flintmq.testing.clock import ManualClock
from flintmq.testing.cluster import EmbeddedCluster

LIMIT_S = 60.0
CLOCK_STEP_MS = 11_000
FIRST = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Two masters; every test has topics and groups of its own."""
    with EmbeddedCluster(tmp_path_factory.mktemp("view"), layout={"broker-a": 0, "broker-b": 0}) as cluster:
        yield cluster


@pytest.fixture
def names(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> tuple[str, str]:
    """A topic with a queue at each broker and a group, of the test's own."""
    name = request.node.name.replace("[", "_").replace("]", "_")[:60]
    for broker in ("broker-a", "broker-b"):
        cluster[broker].create_topic(f"T_{name}", 1)
    return f"T_{name}", f"G_{name}"


class Looking:
    """A view whose time the test moves."""

    def __init__(self, admin: AdminClient, clock: ManualClock, pace: Pace) -> None:
        self.admin, self.clock, self.view = admin, clock, ClusterView(admin, pace)

    async def later(self, duration_ms: int = CLOCK_STEP_MS) -> ClusterView:
        """Let time pass, and everything be asked again."""
        self.clock.advance_ms(duration_ms)
        await self.view.refresh(all_due=True)
        return self.view

    async def until(self, told: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not await told():
                await self.later()


@asynccontextmanager
async def looking(cluster: EmbeddedCluster, **pace: Any) -> AsyncIterator[Looking]:
    clock = ManualClock()
    async with AdminClient(cluster.name_server.address, clock=clock) as admin:
        look = Looking(admin, clock, Pace(lookups_per_s=1000, **pace))
        try:
            yield look
        finally:
            await look.view.close()


async def put(cluster: EmbeddedCluster, topic: str, count: int) -> None:
    async with Producer("p", cluster.name_server.address) as producer:
        for number in range(count):
            await producer.send(Message(topic, f"{number}".encode()))


async def come_to(look: Looking, topic: str, group: str, consumer_offset: int) -> None:
    """Have a group come to an offset in both queues, without a member."""
    for name, address in (await look.admin.masters()).items():
        await look.admin.create_group(SubscriptionGroupConfig(group_name=group), address=address)
        await BrokerApi(look.admin.client, group).commit(MessageQueue(name, 0, topic), consumer_offset)


def test_the_cluster_view_shows_lists_and_details_of_brokers_and_topics_and_groups(
    cluster: EmbeddedCluster, names: tuple[str, str]
) -> None:
    topic, group = names

    async def run() -> None:
        await put(cluster, topic, 10)
        async with looking(cluster) as look:
            await come_to(look, topic, group, 2)
            view = await look.later()
            overview = await view.overview()
            assert (overview.brokers, overview.brokers_missing, overview.errors) == (2, 0, ())
            assert [one.name for one in await view.brokers()] == ["broker-a", "broker-b"]
            row = next(one for one in await view.topics() if one.name == topic)
            assert (row.kind, row.brokers, row.read_queues, row.perm) == ("user", ("broker-a", "broker-b"), 2, "RW-")
            assert (row.messages, row.groups, row.lag, row.queues) == (10, (group,), 6, None)
            found = await view.topic(topic)
            assert found is not None
            assert [(one.broker, one.max_queue_offset) for one in found.queues or ()] == [
                ("broker-a", 5),
                ("broker-b", 5),
            ]
            known = next(one for one in await view.groups() if one.name == group)
            assert (known.members, known.lag, known.retry_lag, known.topics) == (0, 6, 0, (topic,))
            told = await view.group(group)
            assert told is not None
            assert [(one.consumer_offset, one.lag, one.client_id) for one in told.queues or ()] == [(2, 3, None)] * 2
            assert (told.member_list, told.conflicts, told.errors) == ((), (), ())
            broker = await view.broker("broker-a")
            assert broker is not None
            (name,) = (one for one in broker.config or () if one.name == "broker.name")
            assert (name.value, name.origin, name.rocketmq) == ("broker-a", "command line", "brokerName")
            assert broker.report is not None
            assert broker.report.start.last_stop == "clean"
            assert as_json(broker)["report"]["quarantine"] == {"files": [], "file_count": 0, "size_bytes": 0}
            assert broker.is_flintmq
            assert as_json(broker)["figures"]["brokerVersionDesc"] == broker.version
            assert (await view.topic("none"), await view.group("none"), await view.broker("none")) == (None, None, None)

    asyncio.run(run())


def test_rates_are_measured_between_two_polls(cluster: EmbeddedCluster, names: tuple[str, str]) -> None:
    """Of a topic that nobody consumes, too."""
    topic, _ = names

    async def rate(look: Looking) -> float | None:
        return next(one.put_per_s for one in await look.view.topics() if one.name == topic)

    async def run() -> None:
        async with looking(cluster) as look:
            await look.later()
            assert await rate(look) is None
            await put(cluster, topic, 22)
            await look.later(CLOCK_STEP_MS)
            assert await rate(look) == 2.0

    asyncio.run(run())


def test_the_view_of_a_group_shows_conflicts_between_the_subscriptions_of_its_members(
    cluster: EmbeddedCluster, names: tuple[str, str]
) -> None:
    """The broker keeps one subscription of a group; the members tell the truth."""
    topic, group = names

    async def listener(message: MessageExt) -> None:
        return None

    async def run() -> None:
        address = cluster.name_server.address
        first = Consumer(group, address, listener, client_id="one")
        second = Consumer(group, address, listener, client_id="two")
        await first.subscribe(topic, "a")
        await second.subscribe(topic, "b")
        async with first, second, looking(cluster) as look:
            await look.later()

            async def is_seen() -> bool:
                row = next((one for one in await look.view.groups() if one.name == group), None)
                return row is not None and row.members == 2 and bool(row.conflict)

            await look.until(is_seen)
            assert (await look.view.overview()).conflicts == 1

            async def is_shared() -> bool:
                found = await look.view.group(group)
                queues = found.queues or () if found is not None else ()
                return {one.client_id for one in queues if one.topic == topic} == {"one", "two"}

            await look.until(is_shared)
            found = await look.view.group(group)
            assert found is not None
            (conflict,) = found.conflicts or ()
            assert (conflict.topic, sorted(one.value for one in conflict.variants)) == (topic, ["a", "b"])
            assert {one.client_id for one in found.member_list or ()} == {"one", "two"}
            assert all(one.queues and one.subscriptions for one in found.member_list or ())

    asyncio.run(run())


def test_a_consumer_that_makes_no_progress_is_shown_as_stuck(cluster: EmbeddedCluster, names: tuple[str, str]) -> None:
    """Messages wait, the member holds the queue, and its offset has not moved for a minute: from the very first message on."""
    topic, group = names

    async def run() -> None:
        held, going = asyncio.Event(), asyncio.Event()

        async def listener(message: MessageExt) -> None:
            held.set()
            await going.wait()

        consumer = Consumer(group, cluster.name_server.address, listener, client_id="slow", settings=FIRST)
        await consumer.subscribe(topic)
        async with looking(cluster) as look:
            await put(cluster, topic, 4)
            await look.later()
            async with consumer:
                await asyncio.wait_for(held.wait(), LIMIT_S)
                await look.later()

                async def row() -> Any:
                    return next(one for one in await look.view.groups() if one.name == group)

                await look.until(lambda: _has_members(row))
                assert [one.topic for one in (await row()).stuck if one.standing_s < 60] == []
                await look.later(60_000)
                stuck = (await row()).stuck
                assert {one.topic for one in stuck} == {topic}
                assert all(one.lag == 2 and one.standing_s >= 60 for one in stuck)
                found = await look.view.group(group)
                assert found is not None
                assert {one.client_id for one in found.stuck} == {"slow"}
                assert (await look.view.overview()).stuck == 1
                going.set()

    asyncio.run(run())


async def _has_members(row: Callable[[], Awaitable[Any]]) -> bool:
    return bool((await row()).members)


def test_a_stopped_broker_is_shown_as_missing_until_it_returns(tmp_path: Path) -> None:
    """What the others hold is shown meanwhile, and says whose part is missing."""
    with EmbeddedCluster(tmp_path, layout={"broker-a": 0, "broker-b": 0}) as cluster:
        for broker in ("broker-a", "broker-b"):
            cluster[broker].create_topic("T", 1)

        async def run() -> None:
            async with looking(cluster) as look:
                await put(cluster, "T", 4)
                view = await look.later()
                await asyncio.to_thread(cluster["broker-b"].stop)
                view = await look.later()
                first, second = await view.brokers()
                assert first.error == ""
                assert "no name server names it any more" in second.error
                assert (await view.overview()).brokers_missing == 1
                row = next(one for one in await view.topics() if one.name == "T")
                assert (row.brokers, row.missing) == (("broker-a", "broker-b"), ("broker-b",))
                found = await view.topic("T")
                assert found is not None
                assert [one.broker for one in found.queues or ()] == ["broker-a"]
                assert len(found.errors) == 1
                assert found.errors[0].startswith("broker-b: ")
                await asyncio.to_thread(cluster["broker-b"].start)

                async def is_back() -> bool:
                    return not (await look.view.overview()).brokers_missing

                await look.until(is_back)
                found = await view.topic("T")
                assert found is not None
                assert ([one.broker for one in found.queues or ()], found.errors) == (["broker-a", "broker-b"], ())
                await asyncio.to_thread(cluster["broker-b"].stop)
                await look.later()
                await look.later(601_000)
                assert [one.name for one in await look.view.brokers()] == ["broker-a"], "it is forgotten at last"

        asyncio.run(run())


def test_an_unreachable_cluster_is_shown_as_an_error() -> None:
    """The page says so, and goes on asking."""

    async def run() -> None:
        async with AdminClient("127.0.0.1:1") as admin, ClusterView(admin) as view:
            overview = await view.overview()
            assert (overview.brokers, overview.lag, overview.age_s) == (0, None, None)
            (error,) = overview.errors
            assert error.startswith("name servers: nobody answers")
            assert (await view.topics(), await view.groups(), await view.brokers()) == ((), (), ())

    asyncio.run(run())


def test_brokers_are_polled_only_while_the_view_is_used(cluster: EmbeddedCluster) -> None:
    """A console that is open nowhere costs brokers nothing."""

    async def run() -> None:
        async with looking(cluster) as look:
            asked: list[int] = []
            ask = look.admin.runtime_info

            async def counted(address: str) -> dict[str, str]:
                asked.append(1)
                return await ask(address)

            look.admin.runtime_info = counted  # type: ignore[method-assign]
            async with look.view as view:
                await view.overview()
                assert len(asked) == 2
                look.clock.advance_ms(61_000)
                await view._turn_once()
                assert len(asked) == 2
                await view.overview()
                assert len(asked) == 4

    asyncio.run(run())


def test_the_cluster_view_shows_an_error_for_each_broker_that_refuses_a_request(cluster: EmbeddedCluster) -> None:
    """An account without the right to see figures sees why there are none."""

    async def run() -> None:
        async with looking(cluster) as look:

            async def refuse(address: str) -> dict[str, str]:
                raise RemotingError(f"no right at {address}")

            look.admin.runtime_info = refuse  # type: ignore[method-assign]
            view = await look.later()
            assert [one.error.startswith("no right at 127.0.0.1:") for one in await view.brokers()] == [True, True]
            assert (await view.overview()).brokers_missing == 2

    asyncio.run(run())


def test_the_number_of_requests_per_poll_is_bounded(cluster: EmbeddedCluster, names: tuple[str, str]) -> None:
    """One a broker for all groups' progress; those of single topics and groups are bounded by the pace."""

    async def run() -> None:
        async with looking(cluster) as look:
            for number in range(30):
                await come_to(look, names[0], f"{names[1]}_{number}", 0)
            asked: list[int] = []
            ask = look.admin.client.ask

            async def counted(address: str, command: Any, *rest: Any) -> Any:
                asked.append(command.code)
                return await ask(address, command, *rest)

            look.admin.client.ask = counted  # type: ignore[method-assign]
            view = ClusterView(look.admin, Pace(lookups_per_s=2))
            await view.refresh()
            once = {RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_ALL_TOPIC_CONFIG,
                    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_BROKER_CONSUME_STATS}  # fmt: skip
            assert {code: asked.count(code) for code in once} == dict.fromkeys(once, 2)
            assert len(asked) == 8 + 2 * 10, "five seconds' worth of looking up, at two brokers"

    asyncio.run(run())
