"""Figures of topics and groups are of the moment, unless there are so many that gathering them each second costs too much."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from flintmq import Broker, Message
from flintmq.config import load_config
from flintmq.plugins.metrics import gather
from flintmq.plugins.metrics.exposition import Exposition
from flintmq.plugins.metrics.samples import Samples
from flintmq.plugins.metrics.service import MetricsService

TOPIC = "Orders"


def live(root: Path, work: Callable[[Broker, MetricsService], Any], *settings: str) -> None:
    base = (f"store.path={root}", "listen.port=0", "listen.vip=false", "metrics.enable=true")

    async def run() -> None:
        async with Broker(load_config(None, [*base, *settings], {})) as broker:
            await broker.put([Message(TOPIC, b"first")])
            await work(broker, broker.state.service(MetricsService))

    asyncio.run(run())


async def told(service: MetricsService) -> Samples:
    samples, commons = await asyncio.to_thread(service.told)
    Exposition().text(samples, commons, "*/*")
    return samples


def stored(samples: Samples) -> float:
    return sum(
        figure
        for part in samples.parts
        for labels, figure in part.by_name.get("rocketmq_messages_in_total", ())
        if labels[0] == TOPIC
    )


def age_s(samples: Samples) -> float:
    return samples.by_name["flintmq_topics_age_seconds"][0][1]


def test_topic_metrics_are_gathered_again_for_each_scrape_if_gathering_is_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends a message and looks, sees it."""
    monkeypatch.setattr(gather, "SHARE", 60.0)

    async def work(broker: Broker, service: MetricsService) -> None:
        for count in (1, 2, 3):
            samples = await told(service)
            assert stored(samples) == count
            assert age_s(samples) < 10
            await broker.put([Message(TOPIC, b"next")])

    live(tmp_path, work)


def test_a_scrape_returns_cached_topic_metrics_if_the_previous_scrape_was_recent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they may take of a core is bounded, whoever asks how often; what is not theirs is of the moment all the same."""
    monkeypatch.setattr(gather, "SHARE", 1e-9)

    async def work(broker: Broker, service: MetricsService) -> None:
        first = await told(service)
        await broker.put([Message(TOPIC, b"next")])
        second = await told(service)
        assert (stored(first), stored(second)) == (1, 1)
        assert age_s(second) > age_s(first)
        assert first.many is second.many
        assert second.by_name["flintmq_put_messages_total"][0][1] == 2
        assert second.many is not None
        second.many.begun_s -= second.many.spent_s / gather.SHARE  # so much time passes
        assert stored(await told(service)) == 2

    live(tmp_path, work)


def test_cached_metrics_count_toward_the_maximum_number_of_metric_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``metrics.series_max`` bounds the answer, not a part of it."""
    monkeypatch.setattr(gather, "SHARE", 1e-9)

    async def work(broker: Broker, service: MetricsService) -> None:
        await broker.put([Message(f"T{number}", b"x") for number in range(200)])
        for _ in range(2):
            samples = await told(service)
            assert samples.many is not None
            assert samples.many.count > 300
            assert samples.count <= 1_000
            assert samples.by_name["flintmq_left_out_series"][0][1] > 0

    live(tmp_path, work, "metrics.series_max=1000")
