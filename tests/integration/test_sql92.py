"""A group that filters by properties, from the heartbeat to the bit maps on disk and back after a restart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.server import ListenSection, NamesrvConfig, NamesrvSection
from flintmq.config.sections.service import PullSection
from flintmq.config.sections.store import StoreSection
from flintmq.core.errors import RefusedError
from flintmq.core.record.queue_unit import is_address
from flintmq.plugins.filters.plugin import FilterService
from flintmq.programs.broker.broker import Broker
from flintmq.programs.name_server.name_server import NameServer
from flintmq.remoting.client import Consumer, ConsumerSettings, Message, MessageExt, Producer

SETTINGS = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")


def config_of(root: Path, name_server: str, **pull: Any) -> BrokerConfig:
    return BrokerConfig(
        listen=ListenSection(port=0, vip=False),
        namesrv=NamesrvSection(addresses=(name_server,)),
        store=StoreSection(path=str(root), commit_log_file_bytes=1 << 20, consume_queue_ext_enable=True),
        pull=PullSection(property_filter=True, calc_filter_bitmap=True, **pull),
    )


async def consumed(name_server: str, count: int, send: Any = None) -> list[int]:
    done, seen = asyncio.Event(), list[int]()

    async def listen(message: MessageExt) -> None:
        seen.append(int(message.body))
        if len(seen) >= count:
            done.set()

    async with Consumer("g", name_server, listen, settings=SETTINGS) as consumer:
        await consumer.subscribe("T", "a > 7 AND TAGS IN ('even')", "SQL92")
        if send is not None:
            await send()
        await asyncio.wait_for(done.wait(), 10)
    return sorted(seen)


def test_a_group_with_an_sql92_filter_gets_only_matching_messages(tmp_path: Path) -> None:
    """Heartbeat, check, pull, hold, bit maps, restart: each of them by the same expression."""

    async def run() -> None:
        async with NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as name_server:
            address = name_server.address

            async def send() -> None:
                async with Producer("p", address) as producer:
                    for number in range(20):
                        tags = "odd" if number % 2 else "even"
                        message = Message("T", b"%d" % number, tags, properties={"a": str(number)})
                        await producer.send(message)

            async with Broker(config_of(tmp_path, address)) as broker:
                await send()
                with pytest.raises(RefusedError, match="at character 4"):
                    async with Consumer("bad", address) as consumer:
                        await consumer.subscribe("T", "a >", "SQL92")
                assert await consumed(address, 12, send) == [n for n in (8, 10, 12, 14, 16, 18) for _ in "xx"]
                queues = [
                    queue for (topic, _), queue in broker.state.store.consume_queues.queues.items() if topic == "T"
                ]
                units = [unit for queue in queues for n in range(queue.max_queue_offset) if (unit := queue.unit(n))]
                assert len(units) == 40
                assert all(is_address(unit[2]) for unit in units)
            kept = json.loads((tmp_path / "config" / "consumerFilter.json").read_text())
            assert kept["filterDataByTopic"]["T"]["groupFilterData"]["g"]["dead"] is True
            async with Broker(config_of(tmp_path, address)) as broker:
                assert len(broker.state.service(FilterService).table.of_topic("T")) == 1
                assert await consumed(address, 6, send) == [8, 10, 12, 14, 16, 18]

    asyncio.run(run())
