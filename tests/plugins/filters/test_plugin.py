"""Pulls must look at the bit maps that the dispatcher computed: both need one table of the groups' filters."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from flintmq import Broker
from flintmq.config import BrokerConfig
from flintmq.config.sections.models import ListenSection, PullSection, StoreSection
from flintmq.core.broker.subscription import build_subscription
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.io.config_manager import JsonFile
from flintmq.dispatchers.filter_bitmap import CalcBitMap
from flintmq.plugins.filters.consumer_filter_file import FilePart
from flintmq.plugins.filters.consumer_filters import PERSIST_INTERVAL_S
from flintmq.plugins.filters.plugin import FilterService
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel


@pytest.mark.parametrize("with_bit_maps", [True, False])
def test_the_filter_service_and_the_bit_map_dispatcher_use_the_same_filter_table(
    tmp_path: Path, with_bit_maps: bool
) -> None:
    """Without bit maps the service keeps a table all the same, as RocketMQ keeps its file."""
    config = BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(tmp_path)),
        pull=PullSection(property_filter=True, calc_filter_bitmap=with_bit_maps),
    )

    async def live() -> None:
        async with Broker(config) as broker:
            table = broker.state.service(FilterService).table
            inner = [getattr(one, "inner", one) for one in broker.state.store.reput.dispatchers]
            tables = [one.filters for one in inner if isinstance(one, CalcBitMap)]
            assert tables == ([table] if with_bit_maps else [])

    asyncio.run(live())


def heartbeat(broker: Broker, channel: RecordingChannel, group: str, topic: str) -> None:
    """Do what a heartbeat of a consumer with an SQL92 subscription does to the tables."""
    broker.state.groups.select(group)
    subscription = build_subscription(topic, "a > 1", "SQL92", 1)
    broker.state.consumers.register(group, channel, "c", [subscription])


@pytest.mark.parametrize("property_filter", [True, False])
def test_filters_of_a_topic_are_kept_only_if_the_topic_exists_and_sql92_is_enabled(
    tmp_path: Path, property_filter: bool
) -> None:
    """A heartbeat needs no rights: 10,000 filters for topics that nobody made were kept, even with SQL92 switched off."""
    config = BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(tmp_path)),
        pull=PullSection(property_filter=property_filter),
    )

    async def live() -> None:
        async with Broker(config) as broker:
            state, channel = broker.state, RecordingChannel()
            table = state.service(FilterService).table
            for name in ("here", "going"):
                state.topics.put(TopicConfig.with_queues(name, 1))
                heartbeat(broker, channel, f"of-{name}", name)
            heartbeat(broker, channel, "of-nothing", "missing")
            assert len(table) == (2 if property_filter else 0)
            assert table.find("missing", "of-nothing") is None
            state.topics.delete("going")
            state.groups.delete("of-here")
            assert len(table) == 0
            heartbeat(broker, channel, "of-going", "going")
            assert len(table) == 0

    asyncio.run(live())


def test_the_filter_table_file_is_written_outside_the_thread_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the table of others: it is written by another thread, and once more at the stop."""
    config = BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(tmp_path)),
        pull=PullSection(property_filter=True),
    )
    threads: list[int] = []
    clock = ManualClock()

    async def live() -> None:
        async with Broker(config, clock=clock) as broker:
            table = broker.state.service(FilterService).table
            broker.state.topics.put(TopicConfig.with_queues("T", 1))
            heartbeat(broker, RecordingChannel(), "g", "T")
            write, written = table.file.write, asyncio.Event()
            loop = asyncio.get_running_loop()

            def noted(parts: list[FilePart]) -> None:
                threads.append(threading.get_ident())
                write(parts)
                loop.call_soon_threadsafe(written.set)

            monkeypatch.setattr(table.file, "write", noted)
            clock.advance_ms(round(PERSIST_INTERVAL_S * 1000))
            await written.wait()
            assert '"a > 1"' in (tmp_path / "config" / "consumerFilter.json").read_text()
            broker.state.topics.delete("T")

    asyncio.run(live())
    assert threads[0] != threading.get_ident()
    assert JsonFile(tmp_path / "config" / "consumerFilter.json").load() == {"filterDataByTopic": {}}
