"""Retry is one folder: a broker has it by its plugin, and runs without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import msgspec
import pytest

import flintmq
from flintmq.config.sections.models import BrokerConfig, BrokerSection, ListenSection, StoreSection
from flintmq.core.broker.perm import READ
from flintmq.core.broker.role import ASYNC_MASTER, MASTER_ID, SLAVE, Role
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import FlushStatus, Sent
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.retry.plugin import RetryStep, SendBackProcessor
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import Sample, check_request_processor
from flintmq.testing.store import message, open_store
from flintmq.tests.support.state import state_of


def test_a_broker_without_the_retry_plugin_refuses_messages_sent_back(tmp_path: Path) -> None:
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


class Waiter:
    """A promise that ended so."""

    def __init__(self, status: FlushStatus) -> None:
        self.status: FlushStatus | None = status

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        callback(FlushStatus.FLUSHED)


class Retry:
    """The processor over a store with one message, whose group is ``G``."""

    def __init__(self, root: Path) -> None:
        clock, role = ManualClock(), Role()
        takes_writes = {"takes_writes": lambda: role.takes_writes}
        self.store = open_store(root, clock=clock, commit_log_file_bytes=65_536, **takes_writes)
        self.state: Any = state_of(clock=clock, store=self.store, role=role)
        self.api = self.state.api
        (self.record,) = self.api.put([message("T", body=b"again")]).requests()

    def answer(self, **fields: str) -> Any:
        """The answer to one send-back, which has kept the kit's rules."""
        given = {
            "offset": str(self.record.commit_log_offset_bytes),
            "group": "G",
            "delayLevel": "0",
            "originTopic": "T",
        }
        sample = Sample(RequestCode.CONSUMER_SEND_MSG_BACK, given | fields)
        declared = declared_by(SendBackProcessor)
        (answer,) = check_request_processor(lambda: SendBackProcessor(self.api), declared, [sample])
        return answer

    def bodies(self, topic: str) -> list[bytes]:
        """The bodies of the messages in queue 0 of a topic."""
        queue = self.store.consume_queues.find(topic, 0)
        found = [] if queue is None else list(queue.units(0, 10))
        records = [self.store.commit_log.record(physical, size) for physical, size, _ in found]
        return [record.body for record in records if record is not None]


@pytest.fixture
def retry(tmp_path: Path) -> Iterator[Retry]:
    """A message that was delivered and may be sent back."""
    made = Retry(tmp_path / "store")
    yield made
    made.store.close()


def test_a_message_sent_back_is_stored_in_the_retry_topic_of_its_group(retry: Retry) -> None:
    """With its body; too many attempts make it a dead letter."""
    assert retry.answer().code == 0
    assert retry.bodies("%RETRY%G") == [b"again"]
    assert retry.answer(delayLevel="-1").code == 0
    assert retry.bodies("%DLQ%G") == [b"again"]


def test_a_message_sent_back_by_a_group_without_retry_queues_is_dropped(retry: Retry) -> None:
    """It asked for that, and is told success."""
    groups = retry.api.groups
    groups.put(msgspec.structs.replace(groups.select("G"), retry_queue_nums=0))
    assert retry.answer().code == 0
    assert retry.bodies("%RETRY%G") == []


def test_a_missing_message_and_a_message_of_a_forbidden_topic_cannot_be_sent_back(retry: Retry) -> None:
    """A message that is gone; a broker or a retry topic that takes none."""
    gone = retry.answer(offset="60000")
    assert (gone.code, "look message by offset failed" in gone.remark) == (ResponseCode.SYSTEM_ERROR, True)
    retry.answer()
    topic = retry.api.topics.select("%RETRY%G")
    retry.api.topics.put(msgspec.structs.replace(topic, perm=READ))
    assert retry.answer().code == ResponseCode.NO_PERMISSION
    retry.state.config = attrs.evolve(BrokerConfig(), broker=BrokerSection(permission=READ))
    assert retry.answer().code == ResponseCode.NO_PERMISSION


def test_a_send_back_request_is_answered_with_system_error_if_the_store_refuses_the_message(retry: Retry) -> None:
    """Whatever the store calls it: a consumer keeps the message and tries again."""

    def refuse(_messages: object) -> Any:
        error = RefusedError(ResponseCode.MESSAGE_ILLEGAL, "too long", reason="message.illegal")

        def requests() -> Any:
            raise error

        return SimpleNamespace(requests=requests)

    retry.state.sink = SimpleNamespace(put=refuse)
    assert retry.answer().code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("compat", "status", "code"),
    [
        ("safe", FlushStatus.TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
        ("strict", FlushStatus.TIMEOUT, 0),
        ("safe", FlushStatus.FENCED, ResponseCode.SERVICE_NOT_AVAILABLE),
        ("strict", FlushStatus.FENCED, ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
def test_a_send_back_request_is_answered_after_the_flush_status_of_the_stored_message_is_known(
    retry: Retry, compat: str, status: FlushStatus, code: int
) -> None:
    """Otherwise a crash would lose a message that its group was told is kept; RocketMQ answers success."""
    whole = BrokerConfig()
    retry.state.config = attrs.evolve(whole, store=attrs.evolve(whole.store, compat=compat))
    retry.store.writer.promises = lambda: (Waiter(status), Waiter(status))  # type: ignore[method-assign]
    assert retry.answer().code == code


def test_a_retried_message_loses_its_delay_level_when_it_becomes_a_dead_letter(retry: Retry) -> None:
    """The delay was meant for the retry that it does not get."""
    again = message("%RETRY%G", DELAY="4", KEYS="k")
    again.reconsume_times = 99
    RetryStep(retry.api).take(again, Sent(version=407))
    assert again.topic == "%DLQ%G"
    assert again.properties == {"KEYS": "k"}


def test_a_slave_refuses_messages_sent_back(retry: Retry) -> None:
    """Its consumers are to send back to the master; once it is the master it takes the message, once."""
    role: Role = retry.api.role
    role.change(SLAVE, 1)
    answer = retry.answer()
    assert (answer.code, "store.slave" in answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    role.change(ASYNC_MASTER, MASTER_ID)
    assert retry.answer().code == 0
    assert len(retry.bodies("%RETRY%G")) == 1
