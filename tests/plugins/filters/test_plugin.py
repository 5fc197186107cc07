"""Pulls must look at the bit maps that the dispatcher computed: both need one table of the groups' filters."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flintmq import Broker
from flintmq.config import BrokerConfig
from flintmq.config.sections.models import ListenSection, PullSection, StoreSection
from flintmq.dispatchers.filter_bitmap import CalcBitMap
from flintmq.plugins.filters.plugin import FilterService


@pytest.mark.parametrize("with_bit_maps", [True, False])
def test_the_table_of_the_service_is_that_of_the_bit_maps(tmp_path: Path, with_bit_maps: bool) -> None:
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
