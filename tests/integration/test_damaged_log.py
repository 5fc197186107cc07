"""A record that the disk has damaged while its broker runs: consumers of its queue go on, and the log says what was lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flintmq.remoting.client import (
    AdminClient,
    Consumer,
    ConsumerSettings,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
)
from flintmq.remoting.client.consumer_settings import FROM_FIRST
from flintmq.testing.embedded import EmbeddedBroker

DAMAGE = {
    "body": (0, b"X", "it is damaged: its checksum is"),
    "body length": (-4, b"\0\0\1\0", "the record cannot be read: body length 256"),
    "size": (-88, b"\xff\xff\xff\xff", "the record cannot be read: size -1"),
    "magic": (-84, b"\0\0\0\0", "the record cannot be read: magic 0x00000000"),
}
"""Where bytes of the record lie, counted from its body, what is written there, and the reason that readers get."""


def position(consumer: Consumer) -> int:
    """Return up to which offset the topic's one queue is consumed."""
    return max((held.commit_offset for queue, held in consumer.process_queues.items() if queue.topic == "T"), default=0)


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("orderly", [False, True])
def test_consumers_skip_a_damaged_record(
    tmp_path: Path, what: str, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker cannot make it a dead letter, for it reads no damaged record: after all tries it is passed over."""
    place, damage, reason = DAMAGE[what]

    async def run(name_server: str) -> None:
        async with AdminClient(name_server) as admin, Producer("p", name_server) as producer:
            await admin.create_topic("T", queues=1)  # the name server may hear of it later
            for number in range(4):
                await producer.send(Message("T", b"message-%d" % number, tags="A"), MessageQueue("broker-a", 0, "T"))
        (log,) = (tmp_path / "store" / "commitlog").iterdir()
        at = log.read_bytes().index(b"message-1") + place
        with log.open("r+b") as file:
            file.seek(at)
            file.write(damage)
        got: list[bytes] = []

        async def listen(message: MessageExt) -> None:
            got.append(message.body)

        settings = ConsumerSettings(
            consume_from=FROM_FIRST,
            orderly=orderly,
            max_reconsume_times=2,
            error_delay_s=0.01,
            retry_delay_s=0.01,
            rebalance_interval_s=0.05,
        )
        async with Consumer("g", name_server, listen, settings=settings) as consumer, asyncio.timeout(20):
            await consumer.subscribe("T", "A")
            while position(consumer) != 4:  # noqa: ASYNC110 - the broker is in another thread
                await asyncio.sleep(0.01)
        assert sorted(got) == [b"message-0", b"message-2", b"message-3"]
        async with PullConsumer("by-hand", name_server) as consumer:
            await consumer.assign("T", "A", consume_from=FROM_FIRST)
            found: list[MessageExt] = []
            while len(found) < 4:
                found += await consumer.poll(5_000)
        assert [message.queue_offset for message in found] == [0, 1, 2, 3]
        assert [bool(message.body_error) for message in found] == [False, True, False, False]
        assert found[1].body_error.startswith(reason)

    with EmbeddedBroker(tmp_path / "store") as broker:
        asyncio.run(run(broker.name_server_address))
    (line,) = [one for one in caplog.records if "nor sent back, and is skipped" in one.getMessage()]
    assert "at offset 1 of" in line.getMessage()
    assert line.levelname == "ERROR"
