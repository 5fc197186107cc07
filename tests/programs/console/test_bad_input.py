"""What no browser of a friend sends, over a real connection: each has a clear answer, and the console goes on serving."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.config.sections.console import ConsoleSection
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.console.server import ConsoleServer
from flintmq.programs.console.web import FORM_MAX_BYTES
from flintmq.remoting.client import AdminClient, Message, Producer
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import visiting

from .pages.test_cluster import check_form

FORM = b"content-type: application/x-www-form-urlencoded\r\n"


@asynccontextmanager
async def listening(cluster: EmbeddedCluster) -> AsyncIterator[int]:
    """Have a console at a port; afterwards it still serves."""
    async with ConsoleServer(cluster.name_server.address, ConsoleSection(port=0)) as server:
        port = int(server.address.rpartition(":")[2])
        yield port
        assert (await said(port, b"GET /healthz"))[0] == 200


async def said(port: int, line: bytes, headers: bytes = b"", body: bytes = b"") -> tuple[int, bytes]:
    """Return the status and all of the answer to a request that is written as it is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    own = f"origin: http://127.0.0.1:{port}\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n".encode()
    try:
        writer.write(line + b" HTTP/1.1\r\n" + own + headers + b"\r\n" + body)
        async with asyncio.timeout(20):
            answer = await reader.read()
    except ConnectionError:  # the server answered and closed before it had read all
        answer = b""
    finally:
        writer.close()
    status = int(answer.split(b" ", 2)[1]) if answer else 0
    return status, answer


@pytest.mark.parametrize(
    ("line", "headers"),
    [
        (b"GET /topics?find=" + b"x" * 200_000, b""),
        (b"GET /topics", b"x-long: " + b"y" * 65_536 + b"\r\n"),
        (b"GET /topics", b"cookie: flintmq_console=" + b"z" * 65_536 + b"\r\n"),
        (b"GET /topics", b"".join(b"x-%d: y\r\n" % number for number in range(20_000))),
        (b"\x00\xff\xfe GET", b""),
    ],
)
def test_an_http_request_is_refused_if_its_request_line_or_its_headers_are_too_long(
    cluster: EmbeddedCluster, line: bytes, headers: bytes
) -> None:
    """Before anything of the console sees them."""

    async def run() -> None:
        async with listening(cluster) as port:
            status, answer = await said(port, line, headers)
            assert status in (0, 400, 414, 431)
            assert b"Traceback" not in answer

    asyncio.run(run())


def test_a_long_query_parameter_is_shortened_on_the_page(cluster: EmbeddedCluster) -> None:
    """Twenty thousand characters are less than a head may have, sixty thousand are more."""

    async def run() -> None:
        async with listening(cluster) as port:
            status, answer = await said(port, b"GET /topics?find=" + b"%3Cb%3E" + b"x" * 20_000)
            assert status == 200
            assert len(answer) < 20_000
            assert b"<b>x" not in answer
            status, answer = await said(port, b"GET /group?name=" + b"%FF%FE" + b"x" * 20_000)
            assert status == 404
            assert len(answer) < 20_000
            status, answer = await said(port, b"GET /group?name=" + b"x" * 60_000)
            assert (status, b"at most 32,768 bytes" in answer) == (431, True)

    asyncio.run(run())


@pytest.mark.parametrize("chunked", [False, True])
def test_a_too_large_form_is_refused_before_it_is_read(cluster: EmbeddedCluster, chunked: bool) -> None:
    """Whether it says its length or not."""
    body = b"schema=" + b"x" * (4 * 1024 * 1024)

    async def run() -> None:
        async with listening(cluster) as port:
            if chunked:
                size = 64 * 1024
                parts = [body[at : at + size] for at in range(0, len(body), size)]
                sent = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
                head = FORM + b"transfer-encoding: chunked\r\n"
            else:
                sent, head = body, FORM + b"content-length: %d\r\n" % len(body)
            status, answer = await said(port, b"POST /message/avro", head, sent)
            assert status in (0, 404, 405, 413)
            status, answer = await said(port, b"POST /logout", head, sent)
            assert status in (0, 413)
            if status:
                assert f"at most {FORM_MAX_BYTES:,} bytes".encode() in answer

    asyncio.run(run())


@pytest.mark.parametrize("body", [b"token=\xff\xfe&x=y", b"token=%ff", b"\x00" * 100, b"=&=&=", b"%", b"token"])
def test_malformed_forms_return_400_or_403(cluster: EmbeddedCluster, body: bytes) -> None:
    """400 for what is not UTF-8, 403 for what has no token."""

    async def run() -> None:
        async with listening(cluster) as port:
            head = FORM + b"content-length: %d\r\n" % len(body)
            status, answer = await said(port, b"POST /reset/now", head, body)
            assert status == (400 if b"\xff" in body or b"%ff" in body else 403)
            assert b"<h1>" in answer

    asyncio.run(run())


@pytest.mark.parametrize(
    "path",
    [
        b"/static/../app.py",
        b"/static/%2e%2e/app.py",
        b"/static/..%2fapp.py",
        b"/static/..%5capp.py",
        b"/static//etc/passwd",
        b"/static/%2fetc%2fpasswd",
        b"/static/console.css%00.py",
        b"/static/",
        b"//static/../../server.py",
        b"/static/....//....//app.py",
    ],
)
def test_a_request_path_cannot_read_files_outside_the_static_folder(cluster: EmbeddedCluster, path: bytes) -> None:
    async def run() -> None:
        async with listening(cluster) as port:
            status, answer = await said(port, b"GET " + path)
            assert status in (400, 404), answer[:200]
            assert b"import " not in answer
            assert b"root:" not in answer
            assert (await said(port, b"GET /static/console.css"))[0] == 200

    asyncio.run(run())


MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def odd_topic(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """A broker that has a topic whose name is markup: older brokers took any name, and kept it in their tables."""
    file = tmp_path / "broker-a" / "config" / "topics.json"
    file.parent.mkdir(parents=True)
    config = {"topicName": MARKUP, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    file.write_text(json.dumps({"topicConfigTable": {MARKUP: config}, "dataVersion": {"counter": 1, "timestamp": 1}}))
    with EmbeddedCluster(tmp_path, layout={"broker-a": 0}) as cluster:
        yield cluster


def test_a_topic_name_with_markup_is_escaped(odd_topic: EmbeddedCluster) -> None:
    """In every list, on its page, in the address of links, and where a form proposes it."""

    async def run() -> None:
        async with visiting(odd_topic.name_server.address) as browser:
            listed = await browser.get("/topics")
            check_form(listed)
            assert MARKUP in listed.plain
            (link,) = {at["href"] for tag, at in listed.elements if tag == "a" and "img" in at.get("href", "")}
            for path in (link, "/", "/messages", "/messages?by=time&topic=" + link.partition("=")[2], "/groups"):
                answer = await browser.get(path)
                assert answer.status == 200, path
                check_form(answer)
                assert "<img" not in answer.text, path
                assert not [tag for tag, _ in answer.elements if tag == "img"]
            assert MARKUP in (await browser.get(link)).plain

    asyncio.run(run())


def test_a_confirmed_change_is_reported_as_failed_if_the_broker_stopped_after_the_preview_was_shown(
    tmp_path: Path,
) -> None:
    """The preview was shown; what is confirmed then fails with words, is noted as failed, and is not done by a second click."""

    async def run() -> None:
        with EmbeddedCluster(tmp_path, layout={"broker-a": 0}) as cluster:
            address = cluster.name_server.address
            cluster["broker-a"].create_topic("Left", 1)
            async with AdminClient(address) as admin, Producer("p", address) as producer:
                await producer.send(Message("Left", b"x"))
                await admin.create_group(SubscriptionGroupConfig(group_name="left-group"))
                await BrokerApi(admin.client, "left-group").commit(MessageQueue("broker-a", 0, "Left"), 0)
            async with visiting(address) as browser:
                previews = [
                    await browser.get(f"/reset?group=left-group&topic=Left&to=last{more}")
                    for more in ("", "&queue=broker-a:0")
                ]
                await asyncio.to_thread(cluster["broker-a"].stop)
                for preview in previews:
                    assert preview.status == 200
                    answer = await browser.confirm(preview)
                    assert answer.status == 200  # the preview was right when it was shown
                    assert "Not moved" in answer.plain
                    assert "What failed: " in answer.plain
                    check_form(answer)
                    assert "failed: " in (await browser.get("/audit")).plain
                    assert (await browser.confirm(preview)).status == 409

    asyncio.run(run())
