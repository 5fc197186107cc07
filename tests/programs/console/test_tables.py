"""A heading stands over its column: numbers are aligned to the right, and so are the words over them."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client import AdminClient, Consumer, Message, MessageExt, Producer
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import Browser, visiting

PAGES = (
    "/", "/brokers", "/broker?name=broker-a&id=0", "/topics?kind=all", "/topic?name=Shown", "/groups?kind=all",
    "/group?name=shown", "/messages?topic=Shown", "/tail?topic=Shown", "/backlog", "/dead-letters?group=shown", "/alarms",
    "/audit", "/hours", "/reset?group=away&topic=Shown&to=first", "/topic/change/preview?name=Shown&queues=7&perm=rw",
)  # fmt: skip


class _Tables(HTMLParser):
    """Collects each table as rows of (is it a number?, how many columns it takes)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[tuple[bool, int]]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attributes}
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append(("number" in told.get("class", "").split(), int(told.get("colspan", 1))))


async def filled(cluster: EmbeddedCluster, browser: Browser) -> None:
    """Something in every table: messages of several kinds, groups with and without members, a change in the audit."""
    address = cluster.name_server.address
    cluster["broker-a"].create_topic("Shown", 2)
    async with Producer("p", address) as producer, AdminClient(address) as admin:
        for number in range(5):
            await producer.send(Message("Shown", b"x", keys=f"k{number}"))
        await producer.send(Message("Shown", b"later", delay_level=18))
        await producer.send(Message("%DLQ%shown", b"dead"))
        await admin.create_group(SubscriptionGroupConfig(group_name="away"))
        await BrokerApi(admin.client, "away").commit(MessageQueue("broker-a", 0, "Shown"), 1)
    preview = await browser.get("/topic/change/preview?name=Shown&queues=3&perm=rw")
    assert (await browser.confirm(preview)).status == 200


def test_every_table_heading_is_aligned_like_its_column(cluster: EmbeddedCluster) -> None:
    """The times of "Last message" began at the left of a heading that stood at the right, a screen's width away."""

    async def run() -> None:
        seen = 0
        got = asyncio.Event()

        async def listen(_message: MessageExt) -> None:
            got.set()

        address = cluster.name_server.address
        async with visiting(address) as browser:
            await filled(cluster, browser)
            async with Consumer("shown", address, listener=listen) as consumer:
                await consumer.subscribe("Shown")
                await asyncio.wait_for(got.wait(), 30)
                await browser.console.clusters.anonymous().view.refresh(all_due=True)
                for path in PAGES:
                    page = await browser.get(path)
                    assert page.status == 200, (path, page.plain)
                    reader = _Tables()
                    reader.feed(page.text)
                    for head, *rows in reader.tables:
                        headings = [is_number for is_number, span in head for _ in range(span)]
                        for row in rows:
                            if any(span > 1 for _, span in row):
                                continue
                            seen += 1
                            assert [is_number for is_number, _ in row] == headings, (path, head, row)
        assert seen > 60

    asyncio.run(run())


def test_a_count_of_1_is_written_in_the_singular(cluster: EmbeddedCluster) -> None:
    """``1 brokers`` is what a program says that was never read."""

    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            cluster["broker-a"].create_topic("Single", 1)
            assert "1 broker Broker" in (await browser.get("/brokers")).plain
            await browser.console.clusters.anonymous().view.refresh(all_due=True)
            page = await browser.get("/topic?name=Single")
            assert "1 queue Queue" in page.plain
            assert "Permissions RW" in page.plain
            assert "p99" in (await browser.get("/")).plain

    asyncio.run(run())
