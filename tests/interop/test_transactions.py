"""A transaction that is open when brokers change places is asked for, and ended once, by the other one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

import flintmq
from flintmq.config import load_config
from flintmq.core.errors import RefusedError
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.report import Level
from flintmq.programs.doctor.verify import verify
from flintmq.remoting.client.message import Message, MessageExt
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState

from .conftest import Peer
from .test_round_trip import SIZES

pytestmark = [pytest.mark.slow, pytest.mark.java]

TOPIC = "RoundTripTransactions"
GROUP = "round_trip_transactions"
SOON = ("transactionCheckInterval=1000", "transactionTimeOut=1500")


async def begin(peer: Peer, maker: str, wanted: list[str], *, others: TransactionState) -> None:
    """Commits one, rolls one back, leaves one open; answers checks of its own with UNKNOW, of others as told.

    Returns when every wanted message, and no other, is visible.
    """
    asked: list[str] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append(message.body.decode())
        return TransactionState.UNKNOWN if asked[-1].startswith(maker) else others

    async with TransactionProducer(GROUP, [peer.namesrv], check=check) as producer:
        for state in TransactionState:
            message = Message(TOPIC, f"{maker} {state.name}".encode(), keys=(f"{maker}-{state.name}",))
            await producer.send_in_transaction(message, lambda _message, _id, state=state: state)
        deadline_s = time.monotonic() + 60
        while (found := await visible(peer)) != Counter(wanted) or f"{maker} UNKNOWN" not in asked:
            assert not found - Counter(wanted), "a message that was rolled back, or one twice"
            assert time.monotonic() < deadline_s, f"{maker}: visible {found}, asked for {asked}"
            await asyncio.sleep(0.3)


async def visible(peer: Peer) -> Counter[str]:
    """Everything that is delivered from the topic."""
    found: Counter[str] = Counter()
    async with PullConsumer(GROUP, [peer.namesrv]) as consumer:
        try:
            queues = await consumer.queues(TOPIC)
        except RefusedError:
            return found
        for queue in queues:
            at = await consumer.min_offset(queue)
            while (result := await consumer.pull(queue, at)).messages:
                found.update(message.body.decode() for message in result.messages)
                at = result.next_begin_queue_offset
    return found


def sound(store: Path) -> bool:
    """Half messages, their ends and their copies are all where queues and index say."""
    return all(found.level is not Level.ERROR for found in verify(StoreFiles(store), DELAY_LEVEL_MS).findings)


@pytest.mark.timeout(400)
def test_open_transactions_end_exactly_once_if_java_and_flintmq_brokers_alternate_on_one_store(
    peer: Peer, tmp_path: Path
) -> None:
    """Java to FlintMQ and back: what one left open the other one asks for, commits or rolls back, once."""
    store = tmp_path / "store"
    settings = [f"store.path={store}", f"listen.port={peer.port}", f"namesrv.addresses={peer.namesrv}", *SIZES, *SOON]
    config = load_config(None, settings, {})
    wanted = ["java COMMIT"]
    with peer.name_server():
        with peer.broker(store, *SIZES, *SOON):
            asyncio.run(begin(peer, "java", wanted, others=TransactionState.ROLLBACK))
        assert sound(store)
        wanted += ["java UNKNOWN", "flint COMMIT"]
        with flintmq.Broker(config):
            asyncio.run(begin(peer, "flint", wanted, others=TransactionState.COMMIT))
        assert sound(store)
        wanted += ["flint UNKNOWN", "again COMMIT"]
        with peer.broker(store, *SIZES, *SOON):
            asyncio.run(begin(peer, "again", wanted, others=TransactionState.COMMIT))
        assert sound(store)
        wanted += ["last COMMIT"]
        with flintmq.Broker(config):
            asyncio.run(begin(peer, "last", wanted, others=TransactionState.ROLLBACK))
        assert sound(store)
