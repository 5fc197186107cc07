"""Commands, top, console, metrics and alarms tell the same of a group: operators compare them, and must see one truth."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import attrs
import msgspec
import pytest

pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")
pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq import Message
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.programs.cli.main import run_command_line
from flintmq.programs.cluster_view.poll import Pace
from flintmq.programs.cluster_view.values import GroupView
from flintmq.programs.cluster_view.view import ClusterView
from flintmq.programs.top.tables import GROUPS
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings
from flintmq.remoting.wire.bodies import ConsumerData, HeartbeatData
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import encode_command, request
from flintmq.testing.clock import VirtualClock
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.support.console_visits import visiting

SETTINGS = ("alarms.lag_messages=20", "alarms.lag_window_ms=50s", "metrics.enable=true", "topics.auto_create=false")
QUEUES = 2
STEPS = 7
PER_STEP = 40
TOTAL = STEPS * PER_STEP
"""Messages in each broker's part of a topic."""
LIMIT_S = 60.0
FIRST = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")
BROADCASTING = ConsumerSettings(message_model="BROADCASTING")


@attrs.frozen
class Told:
    """What one place tells of a group; None where it tells nothing."""

    lag: int | None
    members: int | None = None
    state: str | None = None


class Site:
    """A cluster of two brokers with a group of each kind, each in a topic of its own."""

    def __init__(self, cluster: EmbeddedCluster, clock: VirtualClock) -> None:
        self.cluster, self.clock = cluster, clock
        for group in ("online", "fresh", "offline", "partial", "broadcasting", "left"):
            cluster.create_topic(f"T_{group}", QUEUES)
            for broker in cluster:
                broker.broker.call(self._make(broker, group))

    @property
    def running(self) -> list[EmbeddedBroker]:
        return [broker for broker in self.cluster if broker.runs]

    @staticmethod
    def _make(broker: Any, group: str) -> Any:
        async def make() -> None:
            state = broker.broker.state
            state.groups.put(SubscriptionGroupConfig(group_name=group))
            for queue_id in {"offline": (0, 1), "partial": (0,), "broadcasting": (0, 1), "left": (0, 1)}.get(group, ()):
                state.offsets.commit(f"T_{group}", group, queue_id, 0)

        return make

    def grow(self) -> None:
        """Store messages in every queue, for so long that a lag that grows is an alarm."""
        for _ in range(STEPS):
            for broker in self.cluster:
                for group in ("online", "fresh", "offline", "partial", "broadcasting", "left"):
                    broker.broker.put([Message(f"T_{group}", b"x") for _ in range(PER_STEP)])
            self.clock.advance("10s")

    def cli(self, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run_command_line([*words, "-n", self.cluster.name_server.address])
        told = capfd.readouterr()
        return code, told.out, told.err


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    clock = VirtualClock()
    folder = tmp_path_factory.mktemp("groups")
    layout = {"broker-a": 0, "broker-b": 0}
    with EmbeddedCluster(folder, layout=layout, settings=SETTINGS, clock=clock) as cluster:
        yield Site(cluster, clock)


def scraped(site: Site, group: str) -> Told:
    """What the metrics of all brokers tell of a group."""
    lags, members = [], []
    for broker in site.running:
        with urllib.request.urlopen(f"http://{broker.broker.ready_words['metrics']}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        lags += re.findall(
            rf'^rocketmq_consumer_lag_messages{{[^}}]*consumer_group="{group}"[^}}]*}} (\S+)', text, re.M
        )
        diffs = re.findall(rf'^rocketmq_group_diff{{[^}}]*group="{group}"[^}}]*}} (\S+)', text, re.M)
        assert diffs == lags[len(lags) - len(diffs) :], "both names tell the same figure"
        members += re.findall(rf'^rocketmq_group_diff{{group="{group}"[^}}]*OnlineConsumers="(\d+)"', text, re.M)
    return Told(sum(map(int, map(float, lags))) if lags else None, max(map(int, members), default=None))


def alarmed(site: Site, group: str) -> int | None:
    """By how much a group lags at all brokers by their alarms of growing lags."""
    found = []
    for broker in site.running:

        async def ask(state: Any = broker.broker.state) -> list[Alarm]:
            return list(state.alarms.current())

        alarms = broker.broker.call(ask)
        found += [int(one.value) for one in alarms if (one.id, one.subject) == ("consumer.lag_growing", group)]
    return sum(found) if found else None


async def seen(site: Site, group: str) -> tuple[GroupView | None, GroupView | None, list[str], str]:
    """A group as the view lists it and in detail, its row in ``top``, and what the console's page of it reads."""
    address = site.cluster.name_server.address
    async with AdminClient(address) as admin, visiting(address) as browser:
        view = ClusterView(admin, Pace(lookups_per_s=1000))
        try:
            await view.refresh(all_due=True)
            listed = next((one for one in await view.groups() if one.name == group), None)
            row = [column.text(listed) for column in GROUPS.columns] if listed is not None else []
            return listed, await view.group(group), row, (await browser.get(f"/group?name={group}")).plain
        finally:
            await view.close()


def compared(site: Site, capfd: pytest.CaptureFixture[str], group: str, wanted: Told, topic: str = "") -> None:
    """Check that all five tell what is wanted."""
    shown = f"{wanted.lag:,}" if wanted.lag is not None else "-"
    code, out, _ = site.cli(capfd, "groups", "show", group, "--json")
    told = json.loads(out)
    assert (code, told["lag"], len(told["members"]), told["state"]) == (0, wanted.lag, wanted.members, wanted.state)
    assert sum(queue["lag"] for queue in told["queues"]) == (wanted.lag or 0)
    text = " ".join(site.cli(capfd, "groups", "show", group)[1].split())
    assert f"{group}: {wanted.state}, " in text
    assert f"lag {shown}" in text
    row = next(row for row in json.loads(site.cli(capfd, "groups", "list", "--json")[1]) if row["group"] == group)
    assert (row["lag"], len(row["members"]), row["state"]) == (wanted.lag, wanted.members, wanted.state)
    of_topic = json.loads(site.cli(capfd, "status", "--topic", topic or f"T_{group}", "--json")[1])["groups"]
    assert {"group": group, "lag": wanted.lag} in of_topic
    listed, detail, top, page = asyncio.run(seen(site, group))
    for view in (listed, detail):
        assert view is not None
        assert Told(view.lag, view.members, view.state) == wanted
    assert top[:2] == [group, shown]
    assert top[3] == str(wanted.members)
    assert f"Lag {shown.replace('-', '–')} messages" in page
    assert f"State {wanted.state} Members {wanted.members} " in page
    assert scraped(site, group) == Told(wanted.lag, wanted.members if wanted.lag is not None else None)
    assert alarmed(site, group) == wanted.lag


@contextlib.contextmanager
def registered(site: Site, name: str, address: str) -> Iterator[None]:
    """Have the name server name a broker that does not answer, as it does for two minutes after a crash."""
    fields = {"brokerName": name, "brokerAddr": address, "clusterName": "DefaultCluster", "brokerId": "0"}
    body = msgspec.json.encode({"topicConfigSerializeWrapper": {"topicConfigTable": {}}})
    host, _, port = site.cluster.name_server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as held:  # as long as it is open the broker is known
        held.sendall(encode_command(request(RequestCode.REGISTER_BROKER, fields | {"haServerAddr": address}, body)))
        assert b'"code":0' in held.recv(4096)
        yield


async def join(admin: AdminClient, group: str, topic: str) -> None:
    """Make the client a member of a group that has consumed nothing yet, at both brokers."""
    wanted = ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic=topic)])
    body = HeartbeatData(client_id=f"{group}@1", consumer_data_set=[wanted]).encode()
    for address in (await admin.masters()).values():
        await admin.invoke(address, RequestCode.HEART_BEAT, body=body)


@pytest.mark.slow
def test_all_administration_tools_show_the_same_lag_and_member_count_and_state_of_a_group(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    """Online, without an offset, offline, with offsets in some queues, broadcasting, unknown; then one broker is down."""

    async def held(_messages: Any) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        address = site.cluster.name_server.address
        async with (
            Consumer("online", address, held, settings=FIRST) as online,
            Consumer("broadcasting", address, held, settings=BROADCASTING) as broadcasting,
            AdminClient(address) as fresh,
            AdminClient(address) as left,
        ):
            for consumer, topic in ((online, "T_online"), (broadcasting, "T_broadcasting")):
                await consumer.subscribe(topic)
                async with asyncio.timeout(LIMIT_S):
                    while await consumer.client.send_heartbeats() < 2:
                        await consumer.rebalance()
            await join(fresh, "fresh", "T_fresh")
            await join(left, "left", "T_fresh")
            await asyncio.to_thread(site.grow)
            await asyncio.to_thread(check)
            gone = site.cluster["broker-b"].broker.address
            await asyncio.to_thread(site.cluster["broker-b"].stop)
            with registered(site, "broker-b", gone):
                await asyncio.to_thread(check_without_one)

    def check() -> None:
        whole = 2 * TOTAL
        compared(site, capfd, "online", Told(whole, 1, "online"))
        compared(site, capfd, "fresh", Told(whole, 1, "online"))
        compared(site, capfd, "left", Told(whole, 1, "online"), "T_fresh")
        compared(site, capfd, "offline", Told(whole, 0, "offline"))
        compared(site, capfd, "partial", Told(whole, 0, "offline"))
        compared(site, capfd, "broadcasting", Told(None, 1, "broadcasting"))
        code, out, err = site.cli(capfd, "groups", "show", "nobody", "--json")
        assert (code, out) == (1, "")
        assert "there is no group nobody" in err
        assert asyncio.run(seen(site, "nobody"))[:2] == (None, None)
        assert (scraped(site, "nobody"), alarmed(site, "nobody")) == (Told(None), None)

    def check_without_one() -> None:
        for group in ("offline", "partial"):
            code, out, err = site.cli(capfd, "groups", "show", group, "--json")
            assert (code, json.loads(out)["lag"]) == (1, TOTAL)
            assert "does not answer, so what it has is missing here" in err
            listed, detail, top, _ = asyncio.run(seen(site, group))
            for view in (listed, detail):
                assert view is not None
                assert Told(view.lag, view.members, view.state) == Told(TOTAL, 0, "offline")
            assert top[1] == str(TOTAL)
            assert scraped(site, group) == Told(TOTAL, 0)
            assert alarmed(site, group) == TOTAL

    asyncio.run(run())
