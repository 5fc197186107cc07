"""A message that cannot be read is found, shown and sent again like any other, with its stored bytes and the reason."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import visiting
from flintmq.tests.support.damage import UNKNOWN_METHOD, send_flagged

from .test_cluster import check_form

REASON = "unknown compression method 0x700"


async def sent_among_others(cluster: EmbeddedCluster, topic: str) -> str:
    """Return the broker's id of the one message of three that cannot be read."""
    cluster["broker-a"].create_topic(topic, 1)
    async with Producer("p", cluster.name_server.address) as producer:
        await producer.send(Message(topic, b"first"))
        odd = Message(topic, b"\x00odd", keys="key-of-odd", tags="t", properties={"p": "q"})
        sent = await send_flagged(producer, odd, UNKNOWN_METHOD)
        await producer.send(Message(topic, b"last"))
    return sent.offset_msg_id


def test_the_console_lists_and_shows_a_message_whose_body_cannot_be_decompressed(cluster: EmbeddedCluster) -> None:
    """With fields, properties, stored bytes and the reason; a download has the stored bytes."""

    async def run() -> None:
        msg_id = await sent_among_others(cluster, "OddShown")
        async with visiting(cluster.name_server.address) as browser, asyncio.timeout(20):
            while "last" not in (found := await browser.get("/messages?by=time&topic=OddShown")).plain:  # noqa: ASYNC110 - a broker is waited for
                await asyncio.sleep(0.02)
            check_form(found)
            assert found.status == 200
            assert "3 messages" in found.plain
            assert f"cannot be read: {REASON}" in found.plain
            for form in ("auto", "json", "text", "hex", "avro"):
                shown = await browser.get(f"/message?id={msg_id}&as={form}")
                check_form(shown)
                assert f"It cannot be read: {REASON}. These are the bytes as they are stored." in shown.plain
                assert "00 6f 64 64" in shown.plain
                assert "key-of-odd" in shown.plain
            assert (await browser.get(f"/message/body?id={msg_id}")).body == b"\x00odd"

    asyncio.run(run())


def test_sending_a_copy_of_an_unreadable_message_keeps_the_compressed_body_of_the_message(
    cluster: EmbeddedCluster,
) -> None:
    """Who can read its compression can read the copy as well; taken for plain, the copy would be another message."""

    async def run() -> None:
        msg_id = await sent_among_others(cluster, "OddCopied")
        async with (
            visiting(cluster.name_server.address) as browser,
            AdminClient(cluster.name_server.address) as admin,
            asyncio.timeout(20),
        ):
            preview = await browser.get(f"/resend?{urlencode({'id': msg_id, 'how': 'copy'})}")
            done = await browser.confirm(preview)
            assert "The copy in OddCopied has the id" in done.plain
            while len(found := await admin.query_by_key("OddCopied", "key-of-odd")) < 2:  # noqa: ASYNC110 - the index follows in its own time
                await asyncio.sleep(0.02)
        first, copy = found
        assert (copy.body, copy.sys_flag, copy.body_error) == (first.body, UNKNOWN_METHOD, REASON)
        assert (copy.tags, copy.properties["p"]) == ("t", "q")

    asyncio.run(run())


def test_a_dead_letter_whose_body_cannot_be_decompressed_can_be_redelivered(cluster: EmbeddedCluster) -> None:
    """Unharmed: a member that can read it, or wants the bytes, gets what was sent."""

    async def run() -> None:
        topic, group, address = "OddDead", "odd-group", cluster.name_server.address
        got: list[bytes] = []
        given: list[MessageExt] = []

        async def listen(message: MessageExt) -> None:
            got.append(message.body)

        async def take(message: MessageExt) -> None:
            given.append(message)

        async with visiting(address) as browser, asyncio.timeout(60):
            settings = ConsumerSettings(max_reconsume_times=0, consume_from="CONSUME_FROM_FIRST_OFFSET")
            await sent_among_others(cluster, topic)
            async with Consumer(group, address, listener=listen, settings=settings) as consumer:
                await consumer.subscribe(topic)
                while "1 in the queue" not in (page := await browser.get(f"/dead-letters?group={group}")).plain:  # noqa: ASYNC110 - a broker or client is waited for
                    await asyncio.sleep(0.05)
            check_form(page)
            assert sorted(got) == [b"first", b"last"]
            assert REASON in page.plain
            query = {"group": group, "queue": "broker-a:0", "from": "0", "count": "1"}
            assert (
                "1 of 1 were given back"
                in (await browser.confirm(await browser.get(f"/replay?{urlencode(query)}"))).plain
            )
            wanting = ConsumerSettings(unreadable="deliver", consume_from="CONSUME_FROM_FIRST_OFFSET")
            async with Consumer(group, address, listener=take, settings=wanting) as consumer:
                await consumer.subscribe(topic)
                while not given:  # noqa: ASYNC110 - a broker or client is waited for
                    await asyncio.sleep(0.05)
        (message,) = given
        assert (message.topic, message.body, message.body_error) == (topic, b"\x00odd", REASON)
        assert message.sys_flag == UNKNOWN_METHOD

    asyncio.run(run())


def test_the_console_shows_the_error_of_a_client_that_cannot_decompress_a_delivered_message(
    cluster: EmbeddedCluster,
) -> None:
    """Its answer says why the listener did not get it."""

    async def run() -> None:
        topic, group, address = "OddGiven", "odd-given", cluster.name_server.address
        msg_id = await sent_among_others(cluster, topic)
        async with (
            Consumer(group, address, listener=lambda _message: None) as consumer,
            visiting(address) as browser,
            asyncio.timeout(60),
        ):
            await consumer.subscribe(topic)
            query = urlencode({"id": msg_id, "how": "client", "group": group})
            while consumer.client.client_id not in (preview := await browser.get(f"/resend?{query}")).plain:  # noqa: ASYNC110 - the view follows in its own time
                await asyncio.sleep(0.05)
            done = await browser.confirm(preview, client=consumer.client.client_id)
            assert "CR_THROW_EXCEPTION" in done.plain
            assert f"UnreadableError: {REASON}" in done.plain

    asyncio.run(run())
