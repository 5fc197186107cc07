"""Every page shows a real cluster, whatever its names hold and whoever of it is away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.core.broker.alarm_figures import alarms_of
from flintmq.core.broker.conflicts import odd_members
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.programs.cluster_view.members import ask_members, conflicts_of
from flintmq.programs.cluster_view.values import BrokerView
from flintmq.programs.top.details import broker_parts, group_parts
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import Answer, Browser, visiting

PAGES = ("/", "/brokers", "/broker?name=broker-a&id=0", "/topics", "/groups", "/alarms", "/audit", "/login")


def check_form(answer: Answer) -> None:
    """What holds for every page: balanced, landmarks, one heading of the first order, labels, nothing inline."""
    elements = answer.elements
    tags = [tag for tag, _ in elements]
    assert tags.count("main") == tags.count("h1") == tags.count("header") == tags.count("footer") == 1
    assert ("html", {"lang": "en"}) in elements
    assert not [attributes for _, attributes in elements if "style" in attributes]
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]
    assert [attributes for tag, attributes in elements if tag == "script"] == [
        {"src": "/static/console.js", "defer": ""}
    ]
    assert tags.count("table") == tags.count("caption")
    assert all("scope" in attributes for tag, attributes in elements if tag == "th")
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    addresses = [
        attributes[name] for _, attributes in elements for name in ("href", "src", "action") if name in attributes
    ]
    assert all(address.startswith(("/", "#")) and not address.startswith("//") for address in addresses)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_valid_html_and_not_cached(cluster: EmbeddedCluster, path: str) -> None:
    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            answer = await browser.get(path)
            assert answer.status == 200
            check_form(answer)
            assert answer.headers["cache-control"] == "no-store"
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert "HttpOnly" in answer.headers["set-cookie"]
            assert "SameSite=strict" in answer.headers["set-cookie"]
            assert "set-cookie" not in (await browser.get(path)).headers

    asyncio.run(run())


def test_the_overview_reports_groups_without_members(tmp_path: Path) -> None:
    """A group without members that is behind is no alarm yet; a green word would say that all is well. And what is not known
    in the first seconds is not said to be nothing."""

    async def run(cluster: EmbeddedCluster) -> None:
        address = cluster.name_server.address
        cluster["broker-a"].create_topic("Left", 2)
        async with Producer("p", address) as producer, AdminClient(address) as admin, visiting(address) as browser:
            assert "Nothing is wrong" in (await browser.get("/alarms")).plain
            await admin.create_group(SubscriptionGroupConfig(group_name="left"))
            await BrokerApi(admin.client, "left").commit(MessageQueue("broker-a", 0, "Left"), 0)
            for _ in range(6):
                await producer.send(Message("Left", b"x"))
        async with visiting(address) as browser:
            page = await browser.get("/")
            check_form(page)
            assert "Which topics are sent to is not known yet" in page.plain
            assert "Nothing is sent" not in page.plain
            async with asyncio.timeout(20):
                while (
                    "nobody consumes for left (6 messages behind)" not in (page := await browser.get("/alarms")).plain
                ):
                    await browser.console.clusters.anonymous().view.refresh(all_due=True)
            check_form(page)
            assert "Nothing is wrong" not in page.plain

    with EmbeddedCluster(tmp_path, layout={"broker-a": 0}) as cluster:
        asyncio.run(run(cluster))


def test_console_pages_show_the_queues_of_a_topic_and_the_subscription_conflicts_of_a_group(
    cluster: EmbeddedCluster,
) -> None:
    """With rates, lag, who holds which queue, and members that contradict each other."""

    async def run() -> None:
        address = cluster.name_server.address
        cluster["broker-a"].create_topic("Listed", 2)
        async with (
            Producer("p", address) as producer,
            visiting(address) as browser,
            Consumer("listed-group", address) as consumer,
            Consumer("listed-group", address) as other,
        ):
            got = asyncio.Event()

            async def listen(messages: list[MessageExt]) -> None:
                got.set()

            await consumer.subscribe("Listed", "a")
            await other.subscribe("Listed", "b")
            for number in range(10):
                await producer.send(Message("Listed", b"x", tags="a" if number % 2 else "b"))
            topic = await browser.get("/topic?name=Listed")
            check_form(topic)
            assert "2 queues" in topic.plain
            group = await browser.get("/group?name=listed-group")
            check_form(group)
            assert "Conflict:" in group.plain
            assert "How members subscribe to Listed" in group.plain
            assert consumer.client.client_id in group.plain
            assert '<option value="Listed">' in group.text
            listed = await browser.get("/topics?find=listed&order=rate")
            assert "1 topic " in listed.plain
            assert "No topic of this kind contains" in (await browser.get("/topics?find=%3Cb%3E")).plain
            assert "page 1 of" not in (await browser.get("/topics?page=99999999999")).plain

    asyncio.run(run())


def test_a_broadcasting_member_of_a_clustering_group_is_shown_as_a_conflict(cluster: EmbeddedCluster) -> None:
    """By the broker itself, on the pages, in the terminal, and by the members where the broker knows of nothing."""
    address = cluster.name_server.address

    async def listen(messages: list[MessageExt]) -> None:
        return None

    async def run() -> None:
        cluster["broker-a"].create_topic("Shared", 2)
        odd = ConsumerSettings(message_model="BROADCASTING")
        async with (
            Consumer("half", address, listen) as one,
            Consumer("half", address, listen) as two,
            Consumer("half", address, listen, settings=odd, client_id="the-odd-one") as other,
            AdminClient(address) as admin,
            visiting(address) as browser,
        ):
            for consumer in (one, two, other):
                await consumer.subscribe("Shared")
            async with asyncio.timeout(30):
                while "message model" not in (page := await browser.get("/group?name=half")).plain:
                    await asyncio.gather(*(each.client.send_heartbeats() for each in (one, two, other)))
            check_form(page)
            assert "Members differ in the message model Message model Members CLUSTERING" in page.plain
            assert "BROADCASTING the-odd-one" in page.plain
            assert "BROADCASTING of the-odd-one" in (await browser.get("/alarms")).plain
            broker = (await admin.masters())["broker-a"]
            (alarm,) = alarms_of(await admin.runtime_info(broker))
            assert (alarm.id, alarm.subject, alarm.value) == ("group.conflict", "half", 1)
            view = browser.console.clusters.anonymous().view
            found = await view.group("half")
            assert found is not None
            parts = {part.title: part.rows for part in group_parts(found)}
            assert ("message model", "BROADCASTING", "the-odd-one") in parts["members contradict each other"]
            # RocketMQ's broker says nothing: what the members report is enough.
            ids = dict.fromkeys((one.client.client_id, two.client.client_id, "the-odd-one"), broker)
            (conflict,) = conflicts_of(await ask_members(admin, "half", ids, 16))
            assert (conflict.about, odd_members([conflict])) == ("message model", ("the-odd-one",))

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/topic", "/group", "/broker"])
@pytest.mark.parametrize("name", ["", "<script>alert(1)</script>", "a\nb\x00", "ü" * 2_000, "%s{{7*7}}"])
def test_a_page_of_an_unknown_topic_or_group_or_broker_returns_404_and_escapes_the_name(
    cluster: EmbeddedCluster, path: str, name: str
) -> None:
    """And are shown as text where they are shown."""

    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            answer = await browser.get(f"{path}?name={quote(name)}")
            assert answer.status == 404
            check_form(answer)
            assert "<script>alert" not in answer.text
            assert "{{" not in answer.plain or "{{7*7}}" in answer.plain

    asyncio.run(run())


def test_console_pages_still_return_200_after_a_broker_stopped(tmp_path: Path) -> None:
    """While the page is open: what was known stays, and the page answers."""

    async def run() -> None:
        with EmbeddedCluster(tmp_path, layout={"broker-a": 0, "broker-b": 0}) as cluster:
            cluster["broker-b"].create_topic("Gone", 1)
            async with visiting(cluster.name_server.address) as browser:
                assert "Gone" in (await browser.get("/topics")).plain
                await asyncio.to_thread(cluster["broker-b"].stop)
                async with asyncio.timeout(30):
                    while "does not answer" not in (page := await browser.get("/alarms")).plain:
                        assert page.status == 200
                        await asyncio.sleep(0.1)
                for path in ("/", "/brokers", "/broker?name=broker-b", "/topics", "/topic?name=Gone", "/groups"):
                    answer = await browser.get(path)
                    assert answer.status == 200
                    check_form(answer)
                assert "no name server names it any more" in (await browser.get("/broker?name=broker-b")).plain

    asyncio.run(run())


def test_a_broker_page_shows_the_settings_and_the_quarantined_files_of_the_broker(tmp_path: Path) -> None:
    """What a FlintMQ broker tells of its store; a file that lies there under an odd name is text."""
    quarantine = tmp_path / "broker-a" / "flint" / "quarantine"
    quarantine.mkdir(parents=True)
    (quarantine / "<b>odd.cut").write_bytes(b"x" * 2_048)

    async def run() -> None:
        with EmbeddedCluster(tmp_path, layout={"broker-a": 0}) as cluster:
            store = cluster["broker-a"].broker.store_path
            assert store / "flint" / "quarantine" == quarantine
            async with visiting(cluster.name_server.address) as browser:
                answer = await browser.get("/broker?name=broker-a")
                check_form(answer)
                assert "the broker before stopped in order" in answer.plain
                assert "1 file, 2.0 KiB" in answer.plain
                assert "<b>odd.cut 2.0 KiB" in answer.plain
                assert "<b>" not in answer.text
                assert "broker.name brokerName broker-a command line" in answer.plain
                assert "broker.role brokerRole async_master default" in answer.plain
                parts = {part.title: part.rows for part in broker_parts(await detail(browser))}
                assert parts["quarantine"][0][0] == "<b>odd.cut"
                assert ("the broker before stopped", "in order") in parts["last start"]

    async def detail(browser: Browser) -> BrokerView:
        found = await browser.console.clusters.anonymous().view.broker("broker-a")
        assert found is not None
        return found

    asyncio.run(run())


class Watcher:
    """A third party's plugin that fails when it is told that the broker starts."""

    plugin_name = "watcher"

    @hookimpl
    def flintmq_broker_starting(self, api: object) -> None:
        raise ValueError("<b>not ready</b>")


def test_the_broker_page_shows_plugins_and_escapes_html_in_their_errors(tmp_path: Path) -> None:
    """What they say is text."""

    async def run() -> None:
        with EmbeddedCluster(tmp_path, layout={"broker-a": 0}, plugins=[Watcher()]) as cluster:
            async with visiting(cluster.name_server.address) as browser:
                answer = await browser.get("/broker?name=broker-a")
                check_form(answer)
                assert "watcher 1 " in answer.plain
                assert "<b>not ready</b>" in answer.plain
                assert "<b>" not in answer.text

    asyncio.run(run())


def test_an_unreachable_cluster_is_shown_with_status_503() -> None:
    """The console can be started first."""

    async def run() -> None:
        async with visiting("127.0.0.1:9") as browser:
            answer = await browser.get("/topics")
            assert answer.status == 503
            assert "The cluster does not answer" in answer.plain
            check_form(answer)
            assert (await browser.get("/healthz")).status == 200

    asyncio.run(run())


def test_invalid_http_requests_get_a_4xx_status_and_not_500(cluster: EmbeddedCluster) -> None:
    """Each has its answer, and none is 500."""

    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            await browser.get("/")
            assert (await browser.get("/nothing/here")).status == 404
            assert (await browser.get("/static/../app.py")).status == 404
            assert (await browser.get("/", host="evil.example")).status == 421
            assert (await browser.get("/", host="")).status == 421
            assert (await browser.post("/", {})).status == 405
            assert (await browser.post("/logout", {}, token=False)).status == 403
            assert (await browser.post("/logout", {}, origin="http://evil.example")).status == 403
            assert (await browser.post("/logout", {}, origin="")).status == 403
            assert (await browser.post("/logout", b"x" * 300_000)).status == 413
            assert (await browser.post("/logout", b"token=%ff")).status == 400
            assert (await browser.post("/logout", b"&".join([b"a=1"] * 100))).status == 400
            assert (await browser.post("/logout", b"{}", content_type="application/json")).status == 415
            assert (await browser.post("/logout", {}, cookie="flintmq_console=" + "x" * 5_000)).status == 403
            assert (await browser.post("/logout", {})).status == 303

    asyncio.run(run())


def test_long_lists_are_split_into_pages(cluster: EmbeddedCluster) -> None:
    async def run() -> None:
        async with AdminClient(cluster.name_server.address) as admin, visiting(cluster.name_server.address) as browser:
            address = (await admin.masters())["broker-a"]
            for number in range(120):
                config = SubscriptionGroupConfig(group_name=f"page-{number:03}")
                await admin.create_group(config, address=address)
            first, last = await browser.get("/groups?find=page-"), await browser.get("/groups?find=page-&page=2")
            assert "page 1 of 2" in first.plain
            assert "page-099" in first.plain
            assert "page-100" not in first.plain
            assert "page-100" in last.plain
            assert "find=page-&amp;page=2" in first.text
            check_form(first)

    asyncio.run(run())
