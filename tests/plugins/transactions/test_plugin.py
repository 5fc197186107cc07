"""Transactions are one folder: a broker has them by its plugin, and runs without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import flintmq
from flintmq.config import BrokerConfig
from flintmq.config.sections.models import ListenSection, StoreSection
from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request


def test_a_broker_without_it_refuses_half_messages_and_answers_its_codes_as_unsupported(tmp_path: Path) -> None:
    """Stored as any other, a half message would never be delivered, and its producer would not hear of that."""
    config = BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(tmp_path)),
        disabled_plugins=("transactions",),
    )

    async def live() -> None:
        async with flintmq.Broker(config) as broker:
            committed = flintmq.Message("T", b"plain", properties={"TRAN_MSG": "false"})
            for put in await broker.put([committed]):
                record = broker.state.store.reader.message_at(put.commit_log_offset_bytes)
                assert record is not None
                assert record.topic == "T"
            with pytest.raises(RefusedError) as refused:
                await broker.put([flintmq.Message("T", b"half", properties={"TRAN_MSG": "true"})])
            assert (refused.value.code, refused.value.reason) == (
                ResponseCode.NO_PERMISSION,
                "transaction.unsupported",
            )
            client = RemotingClient()
            try:
                for code in (RequestCode.END_TRANSACTION, RequestCode.RESUME_CHECK_HALF_MESSAGE):
                    answer = await client.invoke(broker.address, request(code, {}), 5_000)
                    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            finally:
                await client.close()

    asyncio.run(live())
