"""The screen of a broker that is under load shows its load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("textual", reason="Textual is not installed: pip install '.[top]'")

from flintmq.programs.cluster_view.poll import Pace
from flintmq.programs.cluster_view.view import ClusterView
from flintmq.programs.top.app import TopApp
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.testing.embedded import EmbeddedBroker

LIMIT_S = 60.0
FIRST = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", commit_interval_s=0.1)


async def send(producer: Producer, topic: str) -> None:
    """Send until it is cancelled."""
    while True:
        await asyncio.gather(*(producer.send(Message(topic, b"x" * 100)) for _ in range(8)))


def test_the_top_screen_shows_the_load_of_a_real_broker(tmp_path: Path) -> None:
    """Rates, lag and the member's queues are those of a real cluster; then the broker ends, and the screen says so."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("Orders", 2)
        asyncio.run(watch(broker))


async def watch(broker: EmbeddedBroker) -> None:
    seen = asyncio.Event()

    async def take(message: MessageExt) -> None:
        seen.set()

    address = broker.name_server_address
    consumer = Consumer("billing", address, take, settings=FIRST)
    await consumer.subscribe("Orders")
    pace = Pace(figures_s=0.2, tables_s=0.2, progress_s=0.2, lookup_s=0.2, lookups_per_s=100)
    async with Producer("p", address) as producer, AdminClient(address) as admin, ClusterView(admin, pace) as view:
        load = asyncio.create_task(send(producer, "Orders"))
        async with consumer:
            await asyncio.wait_for(seen.wait(), LIMIT_S)
            app = TopApp(view, refresh_s=0.2)
            async with app.run_test(size=(100, 30)) as pilot:

                def shown(part: str, cells: int) -> list[str]:
                    """Return the row of the screen that begins so."""
                    lines = "\n".join(strip.text for strip in app.screen._compositor.render_strips()).splitlines()
                    return next((line.split() for line in lines if line.strip().startswith(part)), [""] * cells)

                async def until(what: str, part: str, column: int, wanted: str | None = None) -> None:
                    """Wait until a cell of the screen is as it is wanted, or a number greater than 0."""
                    loop = asyncio.get_running_loop()
                    deadline_s = loop.time() + LIMIT_S
                    while True:
                        await pilot.pause(0.05)
                        text = shown(part, column + 1)[column]
                        if text == wanted or (wanted is None and text not in ("", "-", "0", "0.0")):
                            return
                        assert loop.time() < deadline_s, f"{what}: {shown(part, column + 1)}"

                await until("the topic's rate", "Orders", 1)
                await until("the group's members", "billing", 3, "1")
                await pilot.press("enter")
                await until("who holds a queue", ["Orders", "broker-a:0"][0], 5, consumer.client.client_id)
                await pilot.press("escape")
                load.cancel()
                await asyncio.gather(load, return_exceptions=True)
                await asyncio.to_thread(broker.stop)
                await until("the broker to be away", "broker-a:0", 7, "away")
                await until("the alarm", "CRITICAL", 1, "broker.missing:")
