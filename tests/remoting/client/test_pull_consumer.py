"""Polling hands out each message of the assigned queues once, from the position on that was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.wire.command import RemotingCommand, response

Q0, Q1 = MessageQueue("broker-a", 0, "T"), MessageQueue("broker-a", 1, "T")
FIRST: Any = "CONSUME_FROM_FIRST_OFFSET"


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Any, PullConsumer], Awaitable[None]]) -> None:
    async def with_consumer() -> None:
        async with asyncio.timeout(30), fake_peer() as peer:
            broker = fake_broker(peer)
            async with PullConsumer("g", peer.address) as consumer:
                await test(broker, consumer)
            assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("poll-")]

    asyncio.run(with_consumer())


def test_polling_returns_every_message_of_all_assigned_queues_exactly_once(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, consumer: PullConsumer) -> None:
        for number in range(5):
            broker.put("T", number % 2, b"%d" % number)
        await consumer.assign("T", consume_from=FIRST)
        assert consumer.positions == {Q0: 0, Q1: 0}
        found: list[bytes] = []
        while len(found) < 5:
            found += [message.body for message in await consumer.poll(max_messages=2)]
        assert sorted(found) == [b"0", b"1", b"2", b"3", b"4"]
        assert [body for body in found if body in b"024"] == [b"0", b"2", b"4"], "of one queue in order"
        assert consumer.positions == {Q0: 3, Q1: 2}
        assert await consumer.committed(Q0) is None, "nothing is committed unasked"
        await consumer.commit(Q1)
        assert (await consumer.committed(Q0), await consumer.committed(Q1)) == (None, 2)
        await consumer.commit()
        assert await consumer.committed(Q0) == 3

    run(fake_peer, fake_broker, test)


def test_pulled_messages_are_committed_only_after_poll_returned_them(fake_peer: Any, fake_broker: Any) -> None:
    """A pull brings more than a poll asks for: the position is behind what the caller has seen."""

    async def test(broker: Any, consumer: PullConsumer) -> None:
        for number in range(5):
            broker.put("T", 0, b"%d" % number)
        await consumer.assign([Q0], consume_from=FIRST)
        assert [message.body for message in await consumer.poll(max_messages=2)] == [b"0", b"1"]
        assert consumer.positions == {Q0: 2}
        await consumer.commit()
        assert await consumer.committed(Q0) == 2
        assert len(await consumer.poll()) == 3
        assert len(broker.peer.of_code(11)) == 1

    run(fake_peer, fake_broker, test)


def test_polling_alternates_between_queues(fake_peer: Any, fake_broker: Any) -> None:
    """One that always has messages must not keep another from being read."""

    async def test(broker: Any, consumer: PullConsumer) -> None:
        for number in range(6):
            broker.put("T", number % 2, b"%d" % number)
        await consumer.assign("T", consume_from=FIRST)
        served: list[int] = []
        while len(served) < 6:
            (message,) = await consumer.poll(max_messages=1)
            served.append(message.queue_id)
            await broker.peer.until(lambda: len(broker.peer.of_code(11)) >= 2)
        assert sorted(served[:4]) == [0, 0, 1, 1]

    run(fake_peer, fake_broker, test)


def test_a_pull_held_by_the_broker_is_reused_by_the_next_poll(fake_peer: Any, fake_broker: Any) -> None:
    """A poll that finds nothing leaves its pull with the broker: what comes between two polls is there for the second."""

    async def test(broker: Any, consumer: PullConsumer) -> None:
        await consumer.assign([Q0])
        assert await consumer.poll(0) == []
        await broker.peer.until(lambda: len(broker.held) == 1)
        assert await consumer.poll(1) == []
        assert len(broker.peer.of_code(11)) == 1
        broker.put("T", 0, b"late")
        assert [message.body for message in await consumer.poll(20_000)] == [b"late"]

    run(fake_peer, fake_broker, test)


def test_an_assigned_queue_is_consumed_from_the_committed_offset_of_the_group(fake_peer: Any, fake_broker: Any) -> None:
    """Without one at the end, or at the beginning where that is asked for; assigned again it goes on where it was."""

    async def test(broker: Any, consumer: PullConsumer) -> None:
        for number in range(3):
            broker.put("T", 0, b"%d" % number)
            broker.put("T", 1, b"%d" % number)
        await consumer.commit(Q0, 1)
        await consumer.assign([Q0, Q1])
        assert consumer.positions == {Q0: 1, Q1: 3}
        assert [message.body for message in await consumer.poll()] == [b"1", b"2"]
        await consumer.assign("T", consume_from=FIRST)
        assert consumer.positions == {Q0: 3, Q1: 3}
        await consumer.assign([Q1])
        assert consumer.positions == {Q1: 3}

    run(fake_peer, fake_broker, test)


def test_a_seek_discards_pulled_messages(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, consumer: PullConsumer) -> None:
        for number in range(5):
            broker.put("T", 0, b"%d" % number)
        await consumer.assign([Q0], consume_from=FIRST)
        assert [message.body for message in await consumer.poll(max_messages=1)] == [b"0"]
        await consumer.seek(Q0, 3)
        assert [message.body for message in await consumer.poll()] == [b"3", b"4"]
        assert await consumer.poll(0) == []  # a pull is held now
        await consumer.seek_to_time(5)
        assert consumer.positions == {Q0: 1}
        assert [message.body for message in await consumer.poll()] == [b"1", b"2", b"3", b"4"]
        await consumer.seek_to_time(5, Q0)
        await consumer.seek(Q0, 5)
        assert consumer.positions == {Q0: 5}

    run(fake_peer, fake_broker, test)


def test_methods_of_a_pull_consumer_raise_an_error_for_invalid_arguments_or_unassigned_queues(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any, consumer: PullConsumer) -> None:
        with pytest.raises(ValueError, match=r"call assign\(topic\)"):
            await consumer.poll()
        await consumer.assign([Q0])
        for queue_offset in (-1, 1):
            with pytest.raises(ValueError, match=f"the offsets 0 to 0, not {queue_offset}"):
                await consumer.seek(Q0, queue_offset)
        for mistake in (consumer.seek(Q1, 0), consumer.seek_to_time(0, Q1), consumer.commit(Q1)):
            with pytest.raises(ValueError, match="not assigned"):
                await mistake
        with pytest.raises(ValueError, match="one message or more"):
            await consumer.poll(max_messages=0)
        with pytest.raises(ValueError, match="an offset needs its queue"):
            await consumer.commit(consumer_offset=1)
        with pytest.raises(RefusedError, match="No topic route"):
            await consumer.assign("Unknown")
        assert consumer.positions == {Q0: 0}

    run(fake_peer, fake_broker, test)


def test_a_poll_raises_the_error_of_a_failed_pull_only_if_it_has_no_messages_to_return(
    fake_peer: Any, fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One broken queue must not hide the messages of the others, nor be hidden for good."""

    async def test(broker: Any, consumer: PullConsumer) -> None:
        def refuse_queue_1(asked: RemotingCommand) -> RemotingCommand | None:
            answer: RemotingCommand | None = broker.pull(asked)
            return answer if asked.ext_fields["queueId"] == "0" else response(asked, 16, "not readable")  # type: ignore[index]

        broker.peer.answers[11] = refuse_queue_1
        await consumer.assign("T")
        with pytest.raises(RefusedError, match="not readable"):
            await consumer.poll(20_000)
        found: list[bytes] = []
        broker.put("T", 0, b"x")
        while not found:
            try:
                found += [message.body for message in await consumer.poll(20_000)]
            except RefusedError:
                continue
        assert found == [b"x"]
        broker.peer.answers[11] = broker.pull
        broker.put("T", 1, b"y")
        await consumer.seek(Q1, 0)
        assert [message.body for message in await consumer.poll(20_000)] == [b"y"]

    run(fake_peer, fake_broker, test)


def test_a_pull_consumer_corrects_and_logs_an_offset_beyond_the_end_of_a_queue(
    fake_peer: Any, fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: Any, consumer: PullConsumer) -> None:
        await consumer.commit(Q0, 7)
        await consumer.assign([Q0])
        assert await consumer.poll(200) == []
        assert consumer.positions == {Q0: 0}
        assert "offset 7" in caplog.text

    run(fake_peer, fake_broker, test)
