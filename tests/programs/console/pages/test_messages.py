"""Messages are found and shown whatever they hold; nothing in them is run, rendered as markup, or connected to."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import quote

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.remoting.client import Message, Producer, SendResult
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import visiting

from .test_cluster import check_form

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"


async def sent(cluster: EmbeddedCluster, message: Message) -> SendResult:
    async with Producer("p", cluster.name_server.address) as producer:
        return await producer.send(message)


def test_messages_are_found_by_time_and_by_key_and_by_id(cluster: EmbeddedCluster) -> None:
    async def run() -> None:
        result = await sent(cluster, Message("Found", b'{"id": 7}', tags="t", keys="order-7", properties={"who": "me"}))
        async with visiting(cluster.name_server.address) as browser:
            for query in (
                "by=time&topic=Found",
                "by=time&topic=Found&from=2000-01-01+00:00:00",
                "by=key&topic=Found&text=order-7",
                f"by=id&topic=Found&text={result.msg_id}",
                f"by=id&text={result.offset_msg_id}",
            ):
                async with asyncio.timeout(20):  # the index follows in its own time
                    while "order-7" not in (answer := await browser.get(f"/messages?{query}")).plain:  # noqa: ASYNC110 - a broker or client is waited for
                        await asyncio.sleep(0.02)
                check_form(answer)
                assert "1 message " in answer.plain
            assert "No message fits" in (await browser.get("/messages?by=time&topic=Found&until=2000-01-01")).plain
            page = await browser.get(f"/message?id={result.offset_msg_id}")
            check_form(page)
            assert '"id": 7' in page.plain
            assert "who" in page.plain
            assert "7b 22 69 64" in (await browser.get(f"/message?id={result.offset_msg_id}&as=hex")).plain

    asyncio.run(run())


def test_message_fields_are_escaped_in_pages(cluster: EmbeddedCluster) -> None:
    """Its body, tag, keys and properties, and the names of what looked at it."""

    async def run() -> None:
        message = Message(
            "Marked", MARKUP.encode(), tags=MARKUP, keys=("<b>k</b>",), properties={"<i>": "</pre><script>x"}
        )
        result = await sent(cluster, message)
        async with visiting(cluster.name_server.address) as browser:
            for path in (
                "/messages?by=time&topic=Marked",
                *(f"/message?id={result.offset_msg_id}&as={form}" for form in ("auto", "json", "text", "avro")),
            ):
                answer = await browser.get(path)
                check_form(answer)
                assert "<script>alert" not in answer.text
                assert not [attributes for tag, attributes in answer.elements if tag in ("img", "b", "i")]
                assert "{{7*7}}" in answer.plain or "as=avro" in path

    asyncio.run(run())


def test_a_large_body_is_shortened_on_the_page_and_can_be_downloaded(cluster: EmbeddedCluster) -> None:
    """As bytes that no browser takes for a page."""

    async def run() -> None:
        body = (b"<script>alert(1)</script>" * 170_000)[: 4 * 2**20 - 1000]
        result = await sent(cluster, Message("Large", body))
        async with visiting(cluster.name_server.address) as browser:
            page = await browser.get(f"/message?id={result.offset_msg_id}")
            check_form(page)
            assert len(page.body) < 400_000
            assert "Only the first part is shown" in page.plain
            whole = await browser.get(f"/message/body?id={result.offset_msg_id}")
            assert whole.body == body
            assert whole.headers["content-type"] == "application/octet-stream"
            assert whole.headers["content-disposition"] == f'attachment; filename="{result.offset_msg_id}.bin"'
            assert whole.headers["x-content-type-options"] == "nosniff"

    asyncio.run(run())


@pytest.mark.parametrize(
    "text", ["x", "0" * 32, "G" * 32, "F" * 56, "<script>", "%00", "7F00000100000000FFFFFFFFFFFFFFFF", "a" * 5_000]
)
def test_an_invalid_message_id_never_returns_500(cluster: EmbeddedCluster, text: str) -> None:
    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            for path in ("/message?id=", "/message/body?id=", "/resend?how=copy&id="):
                answer = await browser.get(path + quote(text))
                assert answer.status in (400, 404), path
                check_form(answer)
            for query in ("by=id&text=", "by=id&topic=Found&text=", "by=key&text="):
                answer = await browser.get(f"/messages?{query}{quote(text)}")
                assert answer.status in (200, 400, 404), query
                check_form(answer)

    asyncio.run(run())


def test_the_console_does_not_connect_to_the_broker_address_in_a_message_id(cluster: EmbeddedCluster) -> None:
    """It holds an address, which whoever typed it chose: only registered brokers are asked."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as trap:
            trap.setblocking(False)
            port = trap.getsockname()[1]
            async with visiting(cluster.name_server.address) as browser:
                answer = await browser.get(f"/message?id=7F000001{port:08X}{0:016X}")
                assert answer.status == 404
            with pytest.raises(BlockingIOError):
                trap.accept()

    asyncio.run(run())


@pytest.mark.parametrize(
    "query", ["by=time&topic=Found&from=yesterday", "by=time&topic=Found&until=99999-1-1", "by=odd&text=x"]
)
def test_an_invalid_message_search_returns_400(cluster: EmbeddedCluster, query: str) -> None:
    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            answer = await browser.get(f"/messages?{query}")
            assert answer.status == 400
            check_form(answer)

    asyncio.run(run())


def test_an_avro_body_is_decoded_by_the_schema_that_the_user_enters(cluster: EmbeddedCluster) -> None:
    async def run() -> None:
        result = await sent(cluster, Message("Avro", b"\x06abc\x02"))
        schema = (
            '{"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}, {"name": "n", "type": "int"}]}'
        )
        async with visiting(cluster.name_server.address) as browser:
            await browser.get(f"/message?id={result.offset_msg_id}&as=avro")
            answer = await browser.post("/message/avro", {"id": result.offset_msg_id, "schema": schema})
            check_form(answer)
            assert '"s": "abc", "n": 1' in answer.plain
            wrong = await browser.post("/message/avro", {"id": result.offset_msg_id, "schema": "<b>{"})
            assert "the schema is not JSON" in wrong.plain
            check_form(wrong)

    asyncio.run(run())
