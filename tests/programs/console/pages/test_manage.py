"""Topics and groups are made, changed and deleted by way of the console: shown first, confirmed, and audited."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.remoting.client import AdminClient, Message, Producer
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import Browser, visiting

from .test_cluster import check_form


async def told(browser: Browser) -> str:
    return (await browser.get("/audit")).plain


async def configs(cluster: EmbeddedCluster, topic: str, group: str = "") -> Any:
    async with AdminClient(cluster.name_server.address) as admin:
        (address,) = (await admin.masters()).values()
        return await (admin.group_config(group, address) if group else admin.topic_config(topic, address))


def test_a_topic_is_created_and_changed_and_deleted_after_a_confirmation(cluster: EmbeddedCluster) -> None:
    """What the page shows is what the broker has then; nothing happens before the confirmation, and it counts once."""

    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            check_form(await browser.get("/topic/change"))
            wanted = {"name": "Made", "queues": "3", "perm": "rw"}
            preview = await browser.get(f"/topic/change/preview?{urlencode(wanted)}")
            check_form(preview)
            assert "Create topic Made?" in preview.plain
            assert "broker-a queues – 3" in preview.plain
            assert await configs(cluster, "Made") is None
            assert (await browser.post("/topic/change/now", wanted | {"order": "off"})).status == 409
            assert (await browser.confirm(preview)).status == 200
            made = await configs(cluster, "Made")
            assert (made.read_queue_nums, made.write_queue_nums, made.perm, made.order) == (3, 3, 6, False)
            assert (await browser.confirm(preview)).status == 409
            assert "create topic Made done: 3 queues at each broker, permissions rw, order off" in await told(browser)

            form = await browser.get("/topic/change?name=Made")
            check_form(form)
            assert (
                "input",
                {"name": "queues", "inputmode": "numeric", "required": "", "maxlength": "4", "value": "3"},
            ) in (form.elements)
            preview = await browser.get(
                f"/topic/change/preview?{urlencode({'name': 'Made', 'queues': 5, 'perm': 'r', 'order': 'on'})}"
            )
            assert "queues 3 5" in preview.plain
            assert "permissions rw r" in preview.plain
            assert (await browser.confirm(preview)).status == 200
            changed = await configs(cluster, "Made")
            assert (changed.read_queue_nums, changed.perm, changed.order) == (5, 4, True)

            preview = await browser.get("/topic/delete?name=Made")
            check_form(preview)
            assert "0 messages would be gone" in preview.plain
            assert (await browser.confirm(preview)).status == 200
            assert await configs(cluster, "Made") is None
            assert "delete topic Made done: gone" in await told(browser)

    asyncio.run(run())


def test_a_group_is_changed_and_deleted_after_a_confirmation(cluster: EmbeddedCluster) -> None:
    """Settings that the form does not have stay as they are."""

    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            check_form(await browser.get("/group/change"))
            async with AdminClient(cluster.name_server.address) as admin:
                await admin.create_group(SubscriptionGroupConfig(group_name="made", retry_queue_nums=3))
            preview = await browser.get(
                f"/group/change/preview?{urlencode({'name': 'made', 'retries': 5, 'consume': 'on'})}"
            )
            check_form(preview)
            assert "retries 16 5" in preview.plain
            assert "broadcasting on off" in preview.plain
            assert (await browser.confirm(preview)).status == 200
            changed = await configs(cluster, "", "made")
            assert (changed.retry_max_times, changed.consume_enable, changed.consume_broadcast_enable) == (
                5,
                True,
                False,
            )
            assert changed.retry_queue_nums == 3
            check_form(await browser.get("/group/change?name=made"))
            preview = await browser.get("/group/delete?name=made")
            check_form(preview)
            assert (await browser.confirm(preview)).status == 200
            assert await configs(cluster, "", "made") is None
            audit = await told(browser)
            assert "delete group made done: gone" in audit
            assert "change group made done: retries 5, consuming on, broadcasting off" in audit

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "query", "status", "says"),
    [
        ("/topic/change", {"name": "NoSuch"}, 404, "No broker has a topic NoSuch"),
        ("/topic/change/preview", {"name": "T", "queues": "x", "perm": "rw"}, 400, "is a number from 1 to 1024"),
        ("/topic/change/preview", {"name": "T", "queues": "0", "perm": "rw"}, 400, "is a number from 1 to 1024"),
        ("/topic/change/preview", {"name": "T", "queues": "4", "perm": "x"}, 400, "Permissions are one of rw, r, w"),
        ("/topic/change/preview", {"name": "", "queues": "4", "perm": "rw"}, 400, "Give the topic a name"),
        ("/topic/change/preview", {"name": "T" * 300, "queues": "4", "perm": "rw"}, 400, "Give the topic a name"),
        ("/topic/change/preview", {"name": "TBW102", "queues": "4", "perm": "rw"}, 400, "belongs to the system"),
        ("/topic/delete", {"name": "TBW102"}, 400, "belongs to the system"),
        ("/topic/delete", {"name": "<b>"}, 404, "No broker has a topic"),
        ("/group/change/preview", {"name": "g", "retries": "-1"}, 400, "is a number from 0 to 1000"),
        ("/group/change/preview", {"name": "CID_RMQ_SYS_x", "retries": "1"}, 400, "belongs to the system"),
        ("/group/delete", {"name": "no-such"}, 404, "No broker has a consumer group"),
    ],
)
def test_an_invalid_change_form_is_refused_with_a_reason(
    cluster: EmbeddedCluster, path: str, query: dict[str, str], status: int, says: str
) -> None:
    """A form that says only "bad request" is filled in the same way again."""

    async def run() -> None:
        async with visiting(cluster.name_server.address) as browser:
            answer = await browser.get(f"{path}?{urlencode(query)}")
            assert (answer.status, says in answer.plain) == (status, True), answer.plain
            check_form(answer)
            assert '<form method="post"' not in answer.text

    asyncio.run(run())


def test_removing_queues_with_messages_is_refused(cluster: EmbeddedCluster) -> None:
    """Nobody reads what lies in a queue that is gone; the command line takes them away in two steps."""

    async def run() -> None:
        cluster["broker-a"].create_topic("Wide", 8)
        async with visiting(cluster.name_server.address) as browser:
            answer = await browser.get(
                f"/topic/change/preview?{urlencode({'name': 'Wide', 'queues': 2, 'perm': 'rw'})}"
            )
            assert answer.status == 400
            assert "flintmq topics create Wide --queues 2" in answer.plain
            same = await browser.get(f"/topic/change/preview?{urlencode({'name': 'Wide', 'queues': 8, 'perm': 'rw'})}")
            assert "nothing would change" in same.plain

    asyncio.run(run())


def test_the_tail_page_lists_the_newest_messages_first(cluster: EmbeddedCluster) -> None:
    """Of all queues together, live: a part of the page that the script keeps up to date."""

    async def run() -> None:
        cluster["broker-a"].create_topic("Tailed", 4)
        async with visiting(cluster.name_server.address) as browser:
            assert "No message is there yet" in (await browser.get("/tail?topic=Tailed")).plain
            async with Producer("p", cluster.name_server.address) as producer:
                for number in range(60):
                    await producer.send(Message("Tailed", f"body-{number:02}".encode()))
            page = await browser.get("/tail?topic=Tailed")
            check_form(page)
            shown = [word for word in page.plain.split() if word.startswith("body-")]
            assert len(shown) == 50
            newest = [int(word[5:]) for word in shown]
            assert newest[0] > newest[-1]
            assert set(newest) >= set(range(16, 60))
            assert any("data-live" in attributes for _, attributes in page.elements)
            assert (await browser.get("/tail")).status == 400
            assert (await browser.get("/tail?topic=NoSuch")).status == 404

    asyncio.run(run())
