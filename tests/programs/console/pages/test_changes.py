"""What changes the cluster is shown first, needs a confirmation of its own page, and is on the page Audit afterwards."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.testing.clock import ManualClock
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import Browser, visiting

from .test_cluster import check_form


async def filled(cluster: EmbeddedCluster, topic: str, group: str, count: int, consumed: int) -> None:
    """A topic of one queue, and a group without a member that has come so far."""
    cluster["broker-a"].create_topic(topic, 1)
    address = cluster.name_server.address
    async with Producer("p", address) as producer, AdminClient(address) as admin:
        for number in range(count):
            await producer.send(
                Message(topic, f"{number}".encode(), keys=f"k{number}", tags="t", properties={"p": "q"})
            )
        await admin.create_group(SubscriptionGroupConfig(group_name=group))
        await BrokerApi(admin.client, group).commit(MessageQueue("broker-a", 0, topic), consumed)


async def committed(cluster: EmbeddedCluster, topic: str, group: str, queue_id: int = 0) -> int | None:
    async with AdminClient(cluster.name_server.address) as admin:
        return await BrokerApi(admin.client, group).committed(MessageQueue("broker-a", queue_id, topic))


async def last_audit(browser: Browser) -> str:
    return (await browser.get("/audit")).plain


@pytest.mark.parametrize(("to", "again", "skipped", "then"), [("first", 4, 0, 0), ("last", 0, 6, 10)])
def test_the_committed_offset_of_a_group_is_reset_only_after_the_reset_is_confirmed(
    cluster: EmbeddedCluster, to: str, again: int, skipped: int, then: int
) -> None:
    async def run() -> None:
        topic, group = f"Moved{to}", f"moved-{to}"
        await filled(cluster, topic, group, 10, 4)
        async with visiting(cluster.name_server.address) as browser:
            preview = await browser.get(f"/reset?{urlencode({'group': group, 'topic': topic, 'to': to})}")
            check_form(preview)
            assert f"{again} messages would be consumed again, {skipped} would never be consumed" in preview.plain
            assert await committed(cluster, topic, group) == 4
            form = {"group": group, "topic": topic, "to_ms": {"first": 0, "last": -1}[to]}
            assert (await browser.post("/reset/now", form, token=False)).status == 403
            assert (await browser.post("/reset/now", form, origin="http://evil.example")).status == 403
            assert (await browser.post("/reset/now", form)).status == 409
            assert await committed(cluster, topic, group) == 4
            done = await browser.confirm(preview)
            assert done.status == 200
            check_form(done)
            assert await committed(cluster, topic, group) == then
            assert f"{group} in {topic} to" in await last_audit(browser)
            assert f"done: broker-a:0 to {then}" in await last_audit(browser)

    asyncio.run(run())


@pytest.mark.parametrize("consumed", [{}, {0: 3}])
def test_offsets_of_a_group_that_has_no_offsets_in_some_queues_are_reset(
    cluster: EmbeddedCluster, consumed: dict[int, int]
) -> None:
    """The README's own consume --count 1 makes such a group; a broker of RocketMQ refuses to reset it."""

    async def run() -> None:
        topic, group, address = f"Some{len(consumed)}", f"some-{len(consumed)}", cluster.name_server.address
        cluster["broker-a"].create_topic(topic, 2)
        async with Producer("p", address) as producer, AdminClient(address) as admin, visiting(address) as browser:
            for number in range(10):
                await producer.send(Message(topic, b"x"), queue=MessageQueue("broker-a", number % 2, topic))
            await admin.create_group(SubscriptionGroupConfig(group_name=group))
            for queue_id, offset in consumed.items():
                await BrokerApi(admin.client, group).commit(MessageQueue("broker-a", queue_id, topic), offset)
            preview = await browser.get(f"/reset?{urlencode({'group': group, 'topic': topic, 'to': 'last'})}")
            assert f"{10 - sum(consumed.values())} would never be consumed" in preview.plain
            done = await browser.confirm(preview)
            assert (done.status, "goes on elsewhere in 2 queues" in done.plain) == (200, True)
            assert [await committed(cluster, topic, group, queue_id) for queue_id in (0, 1)] == [5, 5]

    asyncio.run(run())


def test_a_change_that_fails_after_its_confirmation_is_shown_and_audited(cluster: EmbeddedCluster) -> None:
    """The preview promised it: a page says which part was not done and why, and the audit has it; no error of the server."""

    async def run() -> None:
        topic, group, address = "Vanishes", "vanishes", cluster.name_server.address
        await filled(cluster, topic, group, 10, 4)
        async with AdminClient(address) as admin, visiting(address) as browser:
            preview = await browser.get(f"/reset?{urlencode({'group': group, 'topic': topic, 'to': 'first'})}")
            await admin.delete_topic(topic)
            done = await browser.confirm(preview)
            check_form(done)
            assert (done.status, f"{group} was not moved. What failed: " in done.plain) == (200, True)
            assert f"{group} in {topic} to 0 failed: " in await last_audit(browser)

    asyncio.run(run())


def test_the_offsets_of_a_group_with_connected_members_are_reset(cluster: EmbeddedCluster) -> None:
    """Its members are told, and get again what they had."""

    async def run() -> None:
        topic, group, address = "OnlineMoved", "online-moved", cluster.name_server.address
        await filled(cluster, topic, group, 5, 0)
        got: list[bytes] = []

        async def listen(message: MessageExt) -> None:
            got.append(message.body)

        async with Consumer(group, address, listener=listen) as consumer, visiting(address) as browser:
            await consumer.subscribe(topic)
            async with asyncio.timeout(40):
                while len(got) < 5:  # noqa: ASYNC110 - a broker or client is waited for
                    await asyncio.sleep(0.02)
                preview = await browser.get(f"/reset?{urlencode({'group': group, 'topic': topic, 'to': 'first'})}")
                assert (await browser.confirm(preview)).status == 200
                while len(got) < 10:  # noqa: ASYNC110 - a broker or client is waited for
                    await asyncio.sleep(0.02)
        assert sorted(got[5:]) == [b"0", b"1", b"2", b"3", b"4"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"group": "moved-nowhere", "topic": "T", "to": "offset", "offset": "1"}, 400),
        ({"group": "g", "topic": "", "to": "first"}, 400),
        ({"group": "<b>", "topic": "T", "to": "first"}, 404),
        ({"group": "moved-nowhere", "topic": "T", "to": "sideways"}, 400),
        ({"group": "moved-nowhere", "topic": "T", "to": "time"}, 400),
        ({"group": "moved-nowhere", "topic": "T", "to": "time", "time": "<b>"}, 400),
        ({"group": "g" * 300, "topic": "T", "to": "first"}, 400),
    ],
)
def test_an_invalid_reset_preview_is_refused(cluster: EmbeddedCluster, query: dict[str, str], status: int) -> None:
    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            answer = await browser.get(f"/reset?{urlencode(query)}")
            assert answer.status == status
            check_form(answer)
            assert '<form method="post"' not in answer.text

    asyncio.run(run())


def test_a_copy_of_a_message_is_sent_to_the_topic_of_the_message(cluster: EmbeddedCluster) -> None:
    """With body, tag, keys and properties, and an id of its own."""

    async def run() -> None:
        topic, address = "Copied", cluster.name_server.address
        await filled(cluster, topic, "copy-group", 1, 0)
        async with visiting(address) as browser, AdminClient(address) as admin:
            queue = MessageQueue("broker-a", 0, topic)
            (original,) = await _read(admin, queue)
            preview = await browser.get(f"/resend?how=copy&id={original.offset_msg_id}")
            check_form(preview)
            assert "These groups get it: copy-group" in preview.plain
            done = await browser.confirm(preview)
            assert done.status == 200
            _, copy = await _read(admin, queue)
            assert (copy.body, copy.tags, copy.keys, copy.properties["p"]) == (b"0", "t", ("k0",), "q")
            assert copy.msg_id != original.msg_id
            assert copy.offset_msg_id in await last_audit(browser)
            assert (await browser.get(f"/resend?how=odd&id={original.offset_msg_id}")).status == 400
            assert (await browser.get("/resend?how=copy&id=x")).status == 400
            assert (await browser.get(f"/resend?how=client&id={original.offset_msg_id}")).status == 400

    asyncio.run(run())


async def _read(admin: AdminClient, queue: MessageQueue) -> list[MessageExt]:
    from flintmq.remoting.client.admin_messages import read_queue

    return await read_queue(admin, queue, 0, 10)


def test_a_message_is_delivered_to_the_chosen_client(cluster: EmbeddedCluster) -> None:
    """Of several members the one that was chosen, and no offset changes."""

    async def run() -> None:
        topic, group, address = "Given", "given-group", cluster.name_server.address
        await filled(cluster, topic, group, 1, 1)
        got: list[str] = []

        async def listen(message: MessageExt) -> None:
            got.append(message.offset_msg_id)

        async with Consumer(group, address, listener=listen) as consumer, visiting(address) as browser:
            await consumer.subscribe(topic)
            async with AdminClient(address) as admin:
                (message,) = await _read(admin, MessageQueue("broker-a", 0, topic))
            client_id = consumer.client.client_id
            path = f"/resend?how=client&group={group}&id={message.offset_msg_id}"
            async with asyncio.timeout(40):
                while client_id not in (preview := await browser.get(path)).text:  # noqa: ASYNC110 - a broker or client is waited for
                    await asyncio.sleep(0.05)
            check_form(preview)
            assert "CR_SUCCESS" in (await browser.confirm(preview, client=client_id)).plain
            assert got == [message.offset_msg_id]
            answer = await browser.confirm(await browser.get(path), client="<b>nobody</b>")
            assert answer.status == 502
            check_form(answer)
            assert "failed" in await last_audit(browser)

    asyncio.run(run())


def test_dead_letters_are_redelivered_only_to_their_original_consumer_group(cluster: EmbeddedCluster) -> None:
    """They come again as messages of their topic; other groups of it get nothing."""

    async def run() -> None:
        topic, address = "Dying", cluster.name_server.address
        await filled(cluster, topic, "dead-group", 3, 0)
        refuse, got, others = True, [], []

        async def listen(message: MessageExt) -> None:
            if refuse:
                raise ValueError("not today")
            got.append((message.topic, message.body))

        async def other(message: MessageExt) -> None:
            others.append(message.body)

        async with (
            Consumer(
                "dead-group", address, listener=listen, settings=ConsumerSettings(max_reconsume_times=0)
            ) as consumer,
            Consumer("other-group", address, listener=other) as second,
            visiting(address) as browser,
            asyncio.timeout(60),
        ):
            await consumer.subscribe(topic)
            await second.subscribe(topic)
            while "3 in the queue" not in (page := await browser.get("/dead-letters?group=dead-group")).plain:  # noqa: ASYNC110 - a broker or client is waited for
                await asyncio.sleep(0.05)
            check_form(page)
            listed = await browser.get("/backlog?find=dead-g")
            check_form(listed)
            before = list(others)
            refuse = False
            query = {"group": "dead-group", "queue": "broker-a:0", "from": "1", "count": "2"}
            preview = await browser.get(f"/replay?{urlencode(query)}")
            check_form(preview)
            assert "2 messages, the dead letters with the offsets 1 to 2" in preview.plain
            assert not got
            done = await browser.confirm(preview)
            assert "2 of 2 were given back" in done.plain
            while len(got) < 2:  # noqa: ASYNC110 - a broker or client is waited for
                await asyncio.sleep(0.05)
            assert {one for one, _ in got} == {topic}
            assert others == before
            assert "done: 2 sent" in await last_audit(browser)
            for wrong, status in (
                ({"from": "7"}, 409),
                ({"count": "0"}, 400),
                ({"count": "501"}, 400),
                ({"queue": "x:9"}, 404),
                ({"group": "<b>"}, 404),
            ):
                answer = await browser.get(f"/replay?{urlencode(query | wrong)}")
                assert answer.status == status, wrong
                check_form(answer)

    asyncio.run(run())


def test_the_backlog_page_counts_the_waiting_delayed_messages(cluster: EmbeddedCluster) -> None:
    async def run() -> None:
        address = cluster.name_server.address
        async with Producer("p", address) as producer, visiting(address) as browser:
            for _ in range(3):
                await producer.send(Message("Later", b"x", delay_level=18))
            page = await browser.get("/backlog")
            check_form(page)
            assert "Delayed messages that wait 3" in page.plain
            assert "broker-a 18 3" in page.plain

    asyncio.run(run())


async def far_apart(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """A topic of two queues with five messages each; the group has consumed three of the first, and all of the second."""
    cluster["broker-a"].create_topic(topic, 2)
    address = cluster.name_server.address
    async with Producer("p", address) as producer, AdminClient(address) as admin:
        for number in range(10):
            await producer.send(Message(topic, b"%d" % number), queue=MessageQueue("broker-a", number % 2, topic))
        await admin.create_group(SubscriptionGroupConfig(group_name=group))
        for queue_id, consumed in ((0, 3), (1, 5)):
            await BrokerApi(admin.client, group).commit(MessageQueue("broker-a", queue_id, topic), consumed)


@pytest.mark.parametrize(
    ("target", "then", "said"),
    [
        ({"to": "offset", "offset": "1"}, 1, "2 messages would be consumed again, 0 would never"),
        ({"to": "offset", "offset": "5"}, 5, "0 messages would be consumed again, 2 would never"),
        ({"to": "first"}, 0, "3 messages would be consumed again, 0 would never"),
        ({"to": "last"}, 5, "0 messages would be consumed again, 2 would never"),
        ({"to": "time", "time": "2000-01-01"}, 0, "3 messages would be consumed again, 0 would never"),
    ],
)
def test_an_offset_reset_of_one_queue_keeps_the_offsets_of_the_other_queues(
    cluster: EmbeddedCluster, target: dict[str, str], then: int, said: str
) -> None:
    """After a preview of it alone; the audit names the queue."""

    async def run() -> None:
        topic = f"Apart{'-'.join(target.values())}"
        group = f"{topic}-group"
        await far_apart(cluster, topic, group)
        query = {"group": group, "topic": topic, "queue": "broker-a:0", **target}
        async with visiting(cluster.name_server.address) as browser:
            preview = await browser.get(f"/reset?{urlencode(query)}")
            check_form(preview)
            assert said in preview.plain
            assert "broker-a:1" not in preview.plain
            assert await committed(cluster, topic, group) == 3
            done = await browser.confirm(preview)
            check_form(done)
            assert f"{group} goes on at offset {then} of {topic} broker-a:0." in done.plain
            assert await committed(cluster, topic, group) == then
            assert await committed(cluster, topic, group, 1) == 5
            assert f"{group} in {topic} broker-a:0 to {then} done: broker-a:0 to {then}" in await last_audit(browser)
            for wrong, status in (
                ({"queue": "broker-a:7"}, 404),
                ({"queue": "<b>:0"}, 404),
                ({"queue": "broker-a"}, 400),
                ({"to": "offset", "offset": "6"}, 404),
                ({"to": "offset", "offset": "-1"}, 400),
                ({"to": "offset", "offset": ""}, 400),
            ):
                refused = await browser.get(f"/reset?{urlencode(query | wrong)}")
                assert refused.status == status, wrong
                check_form(refused)

    asyncio.run(run())


def test_an_offset_reset_of_one_queue_reaches_a_connected_consumer(cluster: EmbeddedCluster) -> None:
    """It gets again what it had of that queue, and keeps its place in the other one, whatever it would have committed."""

    async def run() -> None:
        topic, group, address = "OnlineQueue", "online-queue", cluster.name_server.address
        await far_apart(cluster, topic, group)
        got: list[tuple[int, int]] = []

        async def listen(message: MessageExt) -> None:
            got.append((message.queue_id, message.queue_offset))

        settings = ConsumerSettings(commit_interval_s=0.2)
        async with Consumer(group, address, listen, settings=settings) as consumer, visiting(address) as browser:
            await consumer.subscribe(topic)
            async with asyncio.timeout(40):
                while await committed(cluster, topic, group) != 5:  # noqa: ASYNC110 - a client is waited for
                    await asyncio.sleep(0.02)
                assert got == [(0, 3), (0, 4)]
                query = {"group": group, "topic": topic, "queue": "broker-a:0", "to": "offset", "offset": "2"}
                preview = await browser.get(f"/reset?{urlencode(query)}")
                assert "Members that are online take all queues" in preview.plain
                assert "Its 1 members at that broker were told" in (await browser.confirm(preview)).plain
                while len(got) < 5:  # noqa: ASYNC110 - a client is waited for
                    await asyncio.sleep(0.02)
                while await committed(cluster, topic, group) != 5:  # noqa: ASYNC110 - a client is waited for
                    await asyncio.sleep(0.02)
        assert got == [(0, 3), (0, 4), (0, 2), (0, 3), (0, 4)]

    asyncio.run(run())


def test_the_confirmation_of_a_change_is_valid_once_and_only_for_its_preview(cluster: EmbeddedCluster) -> None:
    """Sent twice it does nothing the second time; nor for another group, queue, page or browser, nor too late."""

    async def run() -> None:
        topic, group, address = "Twice", "twice-group", cluster.name_server.address
        await far_apart(cluster, topic, group)
        path = f"/reset?{urlencode({'group': group, 'topic': topic, 'queue': 'broker-a:0', 'to': 'first'})}"
        clock = ManualClock()
        async with visiting(address, clock=clock) as browser:
            preview = await browser.get(path)
            for other in ({"queue": "broker-a:1"}, {"offset": "4"}, {"group": "moved-first"}, {"confirm": "x"}):
                answer = await browser.confirm(preview, **other)
                check_form(answer)
                assert (answer.status, "This confirms nothing that waits" in answer.plain) == (409, True), other
            fields = {at["name"]: at["value"] for tag, at in preview.elements if at.get("type") == "hidden"}
            assert (await browser.post("/replay/now", fields)).status == 409
            own, browser.cookie = browser.cookie, "another-browser"
            assert (await browser.post("/reset/now", fields)).status == 409
            browser.cookie = own
            assert await committed(cluster, topic, group) == 3
            assert (await browser.confirm(preview)).status == 200
            assert await committed(cluster, topic, group) == 0
            again = await browser.confirm(preview)
            assert (again.status, (await last_audit(browser)).count(f"{group} in {topic}")) == (409, 1)
            late = await browser.get(path)
            clock.advance_ms(15 * 60_000)
            assert (await browser.confirm(late)).status == 409

    asyncio.run(run())
