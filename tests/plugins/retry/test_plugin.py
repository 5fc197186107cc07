"""Retry is one folder: a broker has it by its plugin, and runs without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import flintmq
from flintmq.config import BrokerConfig
from flintmq.config.sections.models import ListenSection, StoreSection
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request


def test_a_broker_without_it_stores_retries_as_they_come_and_takes_nothing_back(tmp_path: Path) -> None:
    """Clients see that the broker cannot do it; a message that they send to a retry topic themselves is one like others."""
    config = BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(tmp_path)),
        disabled_plugins=("retry",),
    )

    async def live() -> None:
        async with flintmq.Broker(config) as broker:
            for put in await broker.put([flintmq.Message("T", b"plain"), flintmq.Message("%RETRY%g", b"again")]):
                record = broker.state.store.reader.message_at(put.commit_log_offset_bytes)
                assert record is not None
                assert record.topic == put.topic
            client = RemotingClient()
            try:
                answer = await client.invoke(broker.address, request(RequestCode.CONSUMER_SEND_MSG_BACK, {}), 5_000)
                assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            finally:
                await client.close()

    asyncio.run(live())
