"""Timers are one folder: a broker has them by its plugin, and runs without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import flintmq
from flintmq.config import BrokerConfig
from flintmq.config.rocketmq.system_topics import TIMER_TOPIC
from flintmq.config.sections.models import ListenSection, StoreSection
from flintmq.config.sections.service import DelaySection


@pytest.mark.parametrize(
    ("disabled", "enabled", "lies_in"), [((), True, TIMER_TOPIC), ((), False, "T"), (("timer",), True, "T")]
)
def test_a_message_that_names_its_time_waits_only_where_there_are_timers(
    tmp_path: Path, disabled: tuple[str, ...], enabled: bool, lies_in: str
) -> None:
    """RocketMQ 4.9 knows no such property: without the feature the message is stored at its topic, at once."""
    config = BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(tmp_path)),
        delay=DelaySection(timer_enable=enabled),
        disabled_plugins=disabled,
    )

    async def live() -> None:
        async with flintmq.Broker(config) as broker:
            message = flintmq.Message("T", b"later", properties={"TIMER_DELAY_MS": "60000"})
            for put in await broker.put([message]):
                record = broker.state.store.reader.message_at(put.commit_log_offset_bytes)
                assert record is not None
                assert record.topic == lies_in
            figures = {name for source in broker.state.runtime_sources for name in source()}
            assert ("timerCongestNum" in figures) == (lies_in == TIMER_TOPIC)

    asyncio.run(live())
