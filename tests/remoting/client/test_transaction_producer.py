"""A message sent in a transaction arrives if, and only if, the local part commits: client and broker over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.server import ListenSection, NamesrvConfig, NamesrvSection
from flintmq.config.sections.service import TransactionsSection
from flintmq.config.sections.store import StoreSection
from flintmq.core.errors import RefusedError
from flintmq.plugins.transactions.plugin import TransactionsService
from flintmq.programs.broker.broker import Broker
from flintmq.programs.name_server.name_server import NameServer
from flintmq.remoting.client import (
    AdminClient,
    Message,
    MessageExt,
    PullConsumer,
    TransactionProducer,
    TransactionState,
)
from flintmq.remoting.client.prepared import Prepared, Preparer
from flintmq.remoting.client.transaction_producer import _dispatch_check
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.tests.support.damage import UNKNOWN_METHOD

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
Body = Callable[[str, Broker], Awaitable[None]]


def ended(broker: Broker) -> int:
    """How many transactions the broker has ended."""
    transactions = broker.state.service(TransactionsService).transactions
    return transactions.committed + transactions.rolled_back


def serve(path: Path, body: Body, **transactions: object) -> None:
    """Runs a test against a broker with one topic of one queue."""

    async def run() -> None:
        async with NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as name_server:
            config = BrokerConfig(
                listen=ListenSection(port=0, vip=False),
                namesrv=NamesrvSection(addresses=(name_server.address,)),
                store=StoreSection(path=str(path / "store"), commit_log_file_bytes=1 << 20),
                transactions=TransactionsSection(**transactions),  # type: ignore[arg-type]
            )
            async with Broker(config) as broker, AdminClient(name_server.address) as admin:
                await admin.create_topic("T", queues=1)
                await body(name_server.address, broker)

    asyncio.run(run())


async def delivered(name_server: str) -> list[bytes]:
    async with PullConsumer("look", name_server) as consumer:
        (queue,) = await consumer.queues("T")
        pulled = await consumer.pull(queue, 0)
        return [message.body for message in pulled.messages]


class Flagging(Preparer):
    """Says of every message that it is compressed in a way that nobody knows."""

    def one(self, message: Message) -> Prepared:
        return attrs.evolve(super().one(message), sys_flag=UNKNOWN_METHOD)


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not what():  # noqa: ASYNC110 - the broker has no event for it
            await asyncio.sleep(0.01)


def never(message: MessageExt) -> TransactionState:
    raise AssertionError(f"asked about {message.msg_id}")


def test_only_a_committed_transaction_is_delivered(tmp_path: Path) -> None:
    async def body(name_server: str, broker: Broker) -> None:
        seen: list[str] = []

        async def commit(message: Message, transaction_id: str) -> TransactionState:
            seen.append(transaction_id)
            return COMMIT

        def fail(message: Message, transaction_id: str) -> TransactionState:
            raise OSError("no database")

        async with TransactionProducer("p", name_server, check=never) as producer:
            result = await producer.send_in_transaction(Message("T", b"yes", tags="A"), commit)
            assert (result.state, [result.sent.msg_id]) == (COMMIT, seen)
            assert (await producer.send_in_transaction(Message("T", b"no"), lambda *_: ROLLBACK)).state is ROLLBACK
            with pytest.raises(OSError, match="no database"):
                await producer.send_in_transaction(Message("T", b"open"), fail)
            with pytest.raises(ValueError, match="delayed"):
                await producer.send_in_transaction(Message("T", b"x", delay_level=1), commit)
            await until(lambda: ended(broker) == 2)
        assert await delivered(name_server) == [b"yes"]

    serve(tmp_path, body)


def test_the_broker_checks_an_unfinished_transaction_until_the_producer_commits_it(tmp_path: Path) -> None:
    async def body(name_server: str, broker: Broker) -> None:
        asked: list[tuple[bytes, str]] = []

        async def check(message: MessageExt) -> TransactionState:
            asked.append((message.body, message.properties["TRANSACTION_CHECK_TIMES"]))
            if len(asked) == 1:
                raise OSError("no database yet")
            return UNKNOWN if len(asked) == 2 else COMMIT

        async with TransactionProducer("p", name_server, check=check) as producer:
            await producer.send_in_transaction(Message("T", b"late"), lambda *_: UNKNOWN)
            await until(lambda: broker.state.service(TransactionsService).transactions.committed == 1)
        assert asked == [(b"late", "1"), (b"late", "2"), (b"late", "3")]
        assert await delivered(name_server) == [b"late"]

    serve(tmp_path, body, timeout_ms=10, check_interval_ms=50)


def test_the_broker_checks_a_transaction_whose_message_is_the_first_of_a_new_topic(tmp_path: Path) -> None:
    """The topic has no route of its own yet: the broker must know the producer all the same, before its checks run out."""

    async def body(name_server: str, broker: Broker) -> None:
        async with TransactionProducer("p", name_server, check=lambda _message: COMMIT) as producer:
            await producer.send_in_transaction(Message("NotThereYet", b"first"), lambda *_: UNKNOWN)
            await until(lambda: broker.state.service(TransactionsService).transactions.committed == 1)

    serve(tmp_path, body, timeout_ms=10, check_interval_ms=50)


def test_a_transaction_refused_by_the_broker_raises_refused_error(tmp_path: Path) -> None:
    async def body(name_server: str, broker: Broker) -> None:
        async with TransactionProducer("p", name_server, check=never, retries=0) as producer:
            with pytest.raises(RefusedError, match="rejectTransactionMessage"):
                await producer.send_in_transaction(Message("T", b"x"), lambda *_: COMMIT)

    serve(tmp_path, body, reject=True)


def test_a_transaction_check_is_called_even_if_the_body_of_the_half_message_cannot_be_decoded(tmp_path: Path) -> None:
    """The check mostly goes by the id; unasked, the transaction would be rolled back in the end, and nobody would know why."""
    asked: list[tuple[bytes, str, str]] = []

    async def body(name_server: str, broker: Broker) -> None:
        def look_up(message: MessageExt) -> TransactionState:
            asked.append((message.body, message.body_error, message.keys[0]))
            return COMMIT

        async with TransactionProducer("g", name_server, check=look_up) as producer:
            producer._preparer = Flagging()
            await producer.send_half(Message("T", b"odd", keys="k"))
            await until(lambda: ended(broker) == 1)
        assert set(asked) == {(b"odd", "unknown compression method 0x700", "k")}

    serve(tmp_path, body, timeout_ms=10, check_interval_ms=50)


def test_a_transaction_check_request_without_a_valid_message_is_refused_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The transaction stays open, and the log says which broker asked and why there was no answer."""

    async def body(name_server: str, _broker: Broker) -> None:
        async with TransactionProducer("g", name_server, check=never) as producer:
            for broken in (b"", b"no record"):
                command = request(RequestCode.CHECK_TRANSACTION_STATE, body=broken)
                with pytest.raises(RefusedError, match="no half message"):
                    await _dispatch_check(producer.client, command, "10.0.0.1:10911")

    serve(tmp_path, body)
    lines = [one.getMessage() for one in caplog.records if "whose half message is damaged" in one.getMessage()]
    assert len(lines) == 2
    assert all(line.startswith("10.0.0.1:10911 asks") for line in lines)
    assert "there is no record" in lines[0]
    assert "a record has at least" in lines[1]
