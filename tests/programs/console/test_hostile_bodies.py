"""Nothing in a message costs the console more than 50 ms of its loop or 64 MiB, on whichever page it is seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.remoting.client import Message, Producer
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import Browser, visiting
from flintmq.tests.support.costs import memory, turns
from flintmq.tests.support.damage import send_flagged
from flintmq.tests.support.hostile_bodies import MIB, hostile_body, hostile_names, hostile_properties

TURN_MAX_MS = 50
MEMORY_MAX_BYTES = 64 * MIB
TOPIC, DEAD = "Hostile", "%DLQ%hostile-group"
LONG_SCHEMA = json.dumps({"type": "array", "items": {"type": "enum", "name": "e", "symbols": ["x" * 190_000]}})


@pytest.fixture(scope="module")
def hostile(cluster: EmbeddedCluster) -> dict[str, str]:
    """Messages with all of them: by name, the broker's id. Dead letters are the same ones."""
    ids: dict[str, str] = {}

    async def fill() -> None:
        for topic in (TOPIC, DEAD):
            cluster["broker-a"].create_topic(topic, 8)
        async with Producer("p", cluster.name_server.address) as producer:
            for topic in (TOPIC, DEAD):
                for name in hostile_names():
                    body, sys_flag = hostile_body(name)
                    sent = await send_flagged(producer, Message(topic, body, keys="k"), sys_flag)
                    ids[name] = sent.offset_msg_id
                sent = await producer.send(Message(topic, b"x", keys="k", properties=hostile_properties()))
                ids["properties"] = sent.offset_msg_id

    asyncio.run(fill())
    return ids


async def every_page(browser: Browser, ids: dict[str, str]) -> None:
    """Look at everything that has a body, a property or a key of them in it."""
    for path in (f"/messages?topic={TOPIC}", f"/messages?by=key&topic={TOPIC}&text=k"):
        assert (await browser.get(path)).status == 200
    queues = [f"/dead-letters?group=hostile-group&queue=broker-a:{queue}" for queue in range(8)]
    assert {(await browser.get(path)).status for path in queues} <= {200, 404}
    for name, msg_id in ids.items():
        for form in ("auto", "json", "text", "hex"):
            page = await browser.get(f"/message?id={msg_id}&as={form}")
            assert page.status == 200, name
            assert len(page.body) < 2 * MIB, name
        assert (await browser.get(f"/messages?by=id&text={msg_id}")).status == 200
        assert (await browser.get(f"/resend?how=copy&id={msg_id}")).status == 200
        for schema in ('"bytes"', '{"type": "array", "items": "null"}', LONG_SCHEMA):
            assert (await browser.post("/message/avro", {"id": msg_id, "schema": schema})).status == 200, name


def measured(cluster: EmbeddedCluster, work: Callable[[Browser], Awaitable[None]], *, is_memory: bool) -> float:
    """Return what work costs a console whose templates were used before."""

    async def run() -> float:
        async with visiting(cluster.name_server.address) as browser:
            await browser.get("/messages")
            await browser.get("/message?id=" + "0" * 32)
            await browser.get("/topic?name=TBW102")
            with memory() if is_memory else turns() as cost:
                await work(browser)
            return cost.peak_bytes if is_memory else cost.turn_ms

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("is_memory", [False, True], ids=["loop", "memory"])
def test_pages_that_show_malicious_messages_take_bounded_time_and_memory(
    cluster: EmbeddedCluster, hostile: dict[str, str], is_memory: bool
) -> None:
    cost = measured(cluster, lambda browser: every_page(browser, hostile), is_memory=is_memory)
    assert cost < (MEMORY_MAX_BYTES if is_memory else TURN_MAX_MS)


@pytest.mark.slow
def test_the_memory_of_the_console_is_bounded_if_many_visitors_open_pages_at_the_same_time(
    cluster: EmbeddedCluster, hostile: dict[str, str]
) -> None:
    """The bound is the console's, not each visitor's."""

    async def work(browser: Browser) -> None:
        pages = [browser.get(f"/message?id={msg_id}") for msg_id in hostile.values()]
        pages += [browser.get(f"/messages?topic={TOPIC}") for _ in range(10)]
        assert {page.status for page in await asyncio.gather(*pages)} == {200}

    assert measured(cluster, work, is_memory=True) < MEMORY_MAX_BYTES


def test_downloading_a_highly_compressed_body_blocks_the_event_loop_only_briefly(
    cluster: EmbeddedCluster, hostile: dict[str, str]
) -> None:
    """All of it, or of what cannot be unpacked, what is stored."""

    async def work(browser: Browser) -> None:
        for name, sizes in {"16 MiB of zeros": {16 * MIB}, "2 GiB of zeros": range(MIB, 4 * MIB)}.items():
            answer = await browser.get(f"/message/body?id={hostile[name]}")
            assert len(answer.body) == int(answer.headers["content-length"])
            assert len(answer.body) in sizes

    assert measured(cluster, work, is_memory=False) < TURN_MAX_MS


def test_the_page_of_a_topic_with_many_queues_lists_a_bounded_number_of_queues(cluster: EmbeddedCluster) -> None:
    """It is made in one turn of the loop, and who creates a topic chooses how many queues it has."""
    cluster["broker-a"].create_topic("Wide", 3_000)

    async def work(browser: Browser) -> None:
        page = await browser.get("/topic?name=Wide")
        assert page.plain.count("broker-a:") == 500
        assert "Further rows are left out here: 2,500." in page.plain

    assert measured(cluster, work, is_memory=False) < TURN_MAX_MS
