"""A consumer's functions work at every broker: it gets each message once, and again if the listener fails."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from flintmq.core.record.properties import RETRY_TOPIC
from flintmq.remoting.client import (
    AdminClient,
    Consumer,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
)

from .sites import LIMIT_S, Room, feature, read_queue, until
from .test_sending import ODD, user_properties

DLQ_PREFIX = "%DLQ%"


async def send_numbers(room: Room, topic: str, count: int, *, first: int = 0, tags: tuple[str, ...] = ("",)) -> None:
    """Send messages whose bodies are numbers, in turn to the queues, and with the tags in turn."""
    async with Producer(room.group("p"), room.address) as producer:
        queues = await producer.queues(topic)
        for number in range(first, first + count):
            tag = tags[number % len(tags)]
            message = Message(topic, b"%d" % number, tags=tag, keys=f"k{number}", properties={"n": str(number), **ODD})
            await producer.send(message, queues[number % len(queues)])


def numbers(messages: list[MessageExt]) -> list[int]:
    """The bodies of messages as numbers."""
    return [int(message.body) for message in messages]


class Listener:
    """Collects the consumed messages, and lets a test wait for a number of them."""

    def __init__(self, wanted: int) -> None:
        self.seen: list[MessageExt] = []
        self.done = asyncio.Event()
        self._wanted = wanted

    async def __call__(self, message: MessageExt) -> ConsumeResult:
        self.seen.append(message)
        if len(self.seen) >= self._wanted:
            self.done.set()
        return ConsumeResult.SUCCESS


@feature("consume", "concurrently, many messages at a time")
async def test_a_consumer_consumes_several_messages_at_a_time(room: Room) -> None:
    topic = await room.topic()
    await send_numbers(room, topic, 40)
    at_once, most, seen, done = 0, 0, [], asyncio.Event()

    async def listen(message: MessageExt) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.005)
        at_once -= 1
        seen.append(message)
        if len(seen) == 40:
            done.set()

    async with Consumer(room.group(), room.address, listen, settings=room.settings(concurrency=8)) as consumer:
        await consumer.subscribe(topic)
        await asyncio.wait_for(done.wait(), LIMIT_S)
    assert sorted(numbers(seen)) == list(range(40))
    assert 2 <= most <= 8
    assert all(user_properties(message) == ODD for message in seen)


@feature("consume", "orderly: a failure blocks its queue")
async def test_an_orderly_message_whose_listener_fails_is_retried_before_later_messages(room: Room) -> None:
    topic = await room.topic(queues=2)
    await send_numbers(room, topic, 20)
    by_queue, failed, done = defaultdict(list), [], asyncio.Event()

    async def listen(message: MessageExt) -> ConsumeResult:
        if int(message.body) in (4, 5) and len(failed) < 4:
            failed.append(int(message.body))
            return ConsumeResult.LATER
        by_queue[message.queue_id].append(int(message.body))
        if sum(map(len, by_queue.values())) == 20:
            done.set()
        return ConsumeResult.SUCCESS

    async with Consumer(room.group(), room.address, listen, settings=room.settings(orderly=True)) as consumer:
        await consumer.subscribe(topic)
        await asyncio.wait_for(done.wait(), LIMIT_S)
    assert by_queue == {0: list(range(0, 20, 2)), 1: list(range(1, 20, 2))}
    assert len(failed) == 4


@feature("consume", "broadcasting: every member gets everything")
async def test_every_broadcasting_member_gets_every_message(room: Room) -> None:
    topic = await room.topic()
    await send_numbers(room, topic, 12)
    settings = room.settings(message_model="BROADCASTING", offset_folder=room.folder)
    members = [Listener(12), Listener(12)]
    async with (
        Consumer(room.group(), room.address, members[0], settings=settings, client_id="one") as one,
        Consumer(room.group(), room.address, members[1], settings=settings, client_id="two") as two,
    ):
        for consumer in (one, two):
            await consumer.subscribe(topic)
        await asyncio.wait_for(asyncio.gather(*(member.done.wait() for member in members)), LIMIT_S)
    for member in members:
        assert sorted(numbers(member.seen)) == list(range(12))
    await send_numbers(room, topic, 1, first=12)
    again = await room.consume(topic, 1, settings=settings, client_id="one")
    assert numbers(again) == [12], "its offsets are kept in a file"


@feature("consume", "only messages with certain tags")
async def test_a_consumer_gets_only_messages_with_its_subscribed_tags(room: Room) -> None:
    topic = await room.topic()
    await send_numbers(room, topic, 30, tags=("a", "größe", "c"))
    seen = await room.consume(topic, 20, "a || größe")
    assert sorted(numbers(seen)) == [number for number in range(30) if number % 3 < 2]
    await send_numbers(room, topic, 3, first=30, tags=("Aa", "BB", "a"))  # Aa and BB have one hash in Java
    assert numbers(await room.consume(topic, 1, "Aa", group=room.group("hash"))) == [30]


@feature("consume", "only messages whose properties match an SQL92 expression")
async def test_a_consumer_gets_only_messages_that_match_its_sql92_filter(room: Room) -> None:
    topic = await room.topic()
    await send_numbers(room, topic, 30, tags=("a", "b", "c"))
    expression = "n BETWEEN 10 AND 19 AND TAGS IN ('a', 'c') OR n = 3"
    seen = await room.consume(topic, 7, expression, "SQL92")
    wanted = [number for number in range(30) if (10 <= number <= 19 and number % 3 != 1) or number == 3]
    assert sorted(numbers(seen)) == wanted


@feature("consume", "with a later retry after a failure")
async def test_a_message_whose_listener_raises_an_exception_is_delivered_again_later(room: Room) -> None:
    topic = await room.topic()
    tries, done = [], asyncio.Event()

    async def listen(message: MessageExt) -> None:
        tries.append(message)
        if message.reconsume_times == 0:
            raise ValueError("the first try fails")
        done.set()

    async with Consumer(room.group(), room.address, listen, settings=room.settings()) as consumer:
        await consumer.subscribe(topic)
        await send_numbers(room, topic, 1)
        await asyncio.wait_for(done.wait(), LIMIT_S)
    first, second = tries
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert second.store_timestamp_ms - first.store_timestamp_ms >= 950
    assert (second.topic, second.body, second.msg_id) == (topic, first.body, first.msg_id)
    assert (second.keys, user_properties(second)) == (first.keys, ODD)
    assert second.properties[RETRY_TOPIC] == topic


@feature("consume", "a dead letter after the last try")
async def test_a_message_becomes_a_dead_letter_after_its_last_retry(room: Room) -> None:
    topic, group = await room.topic(), room.group()
    tries: list[int] = []

    async def listen(message: MessageExt) -> ConsumeResult:
        tries.append(message.reconsume_times)
        return ConsumeResult.LATER

    async with Consumer(group, room.address, listen, settings=room.settings(max_reconsume_times=1)) as consumer:
        await consumer.subscribe(topic)
        await send_numbers(room, topic, 1)
        async with PullConsumer(room.group("dead"), room.address) as dead, AdminClient(room.address) as admin:
            await until(lambda: _exists(admin, DLQ_PREFIX + group), "the topic of dead letters")
            (queue,) = (await admin.topic_stats(DLQ_PREFIX + group)).keys()
            await until(lambda: dead.max_offset(queue), "the dead letter")
            (letter,) = await read_queue(dead, queue)
    assert tries == [0, 1]
    assert (letter.body, letter.keys, user_properties(letter)) == (b"0", ("k0",), ODD)
    assert letter.properties[RETRY_TOPIC] == topic


async def _exists(admin: AdminClient, topic: str) -> bool:
    return topic in await admin.topic_list()


@feature("consume", "orderly, a dead letter after the last try")
async def test_an_orderly_message_becomes_a_dead_letter_after_its_last_retry(room: Room) -> None:
    topic, group = await room.topic(queues=1), room.group()
    tries: list[tuple[int, int]] = []
    done = asyncio.Event()

    async def listen(message: MessageExt) -> ConsumeResult:
        tries.append((int(message.body), message.reconsume_times))
        if message.body == b"0":
            return ConsumeResult.LATER
        done.set()
        return ConsumeResult.SUCCESS

    await send_numbers(room, topic, 2)
    settings = room.settings(orderly=True, max_reconsume_times=2)
    async with Consumer(group, room.address, listen, settings=settings) as consumer, AdminClient(room.address) as admin:
        await consumer.subscribe(topic)
        await asyncio.wait_for(done.wait(), LIMIT_S)
        await until(lambda: _exists(admin, DLQ_PREFIX + group), "the topic of dead letters")
    assert tries == [(0, 0), (0, 1), (0, 2), (1, 0)]


@feature("consume", "with `async for`: the message at which a loop ends is delivered again")
async def test_exiting_an_async_for_loop_early_causes_redelivery_of_the_current_message(
    room: Room,
) -> None:
    topic = await room.topic(queues=1)
    await send_numbers(room, topic, 6)
    first, second = [], []
    async with asyncio.timeout(LIMIT_S):
        async with Consumer(room.group(), room.address, settings=room.settings()) as consumer:
            await consumer.subscribe(topic)
            async for message in consumer:
                first.append(int(message.body))
                if len(first) == 3:
                    break
        async with Consumer(room.group(), room.address, settings=room.settings()) as consumer:
            await consumer.subscribe(topic)
            async for message in consumer:
                second.append(int(message.body))
                if len(second) == 4:
                    break
    assert (first, second) == ([0, 1, 2], [2, 3, 4, 5])


@feature("consume", "from the group's offsets after a restart")
async def test_a_restarted_consumer_continues_at_its_committed_offsets(room: Room) -> None:
    topic = await room.topic()
    await send_numbers(room, topic, 16)
    assert sorted(numbers(await room.consume(topic, 16))) == list(range(16))
    await send_numbers(room, topic, 4, first=16)
    assert sorted(numbers(await room.consume(topic, 4))) == [16, 17, 18, 19]


@feature("consume", "by several members: each queue belongs to one member")
async def test_members_of_a_group_share_the_queues_of_a_topic(room: Room) -> None:
    topic = await room.topic(queues=6)
    seen: Counter[int] = Counter()
    done = asyncio.Event()

    async def listen(message: MessageExt) -> None:
        seen[int(message.body)] += 1
        if len(seen) == 24:
            done.set()

    settings = room.settings()
    members = [Consumer(room.group(), room.address, listen, settings=settings, client_id=f"c{n}") for n in range(3)]
    for member in members:
        await member.subscribe(topic)
        await member.start()

    async def shared_out() -> bool:
        held = [{queue.queue_id for queue in member.process_queues if queue.topic == topic} for member in members]
        return held == [{0, 1}, {2, 3}, {4, 5}]

    async def committed() -> bool:
        held = [held for member in members for queue, held in member.process_queues.items() if queue.topic == topic]
        return sum(queue.saved_offset for queue in held) == 24

    try:
        await until(shared_out, "the queues to be shared out")
        await send_numbers(room, topic, 24)
        await asyncio.wait_for(done.wait(), LIMIT_S)
        await until(committed, "everything to be committed")
        await members.pop(0).close()  # it leaves, and the others take over
        members.append(Consumer(room.group(), room.address, listen, settings=settings, client_id="c0"))

        async def taken_over() -> bool:
            held = [queue for member in members[:2] for queue in member.process_queues if queue.topic == topic]
            return len(held) == 6

        await until(taken_over, "the others to take over")
    finally:
        await asyncio.gather(*(member.close() for member in members))
    assert set(seen.values()) == {1}


@feature("consume", "from an earlier time after an administrator has reset the group")
async def test_an_offset_reset_moves_a_running_consumer_back(room: Room) -> None:
    topic, group = await room.topic(queues=1), room.group()
    await send_numbers(room, topic, 5)
    listener = Listener(10)
    settings = room.settings(suspend_ms=500)  # 5.3 resets a queue when it is next pulled
    async with (
        Consumer(group, room.address, listener, settings=settings) as consumer,
        AdminClient(room.address) as admin,
    ):
        await consumer.subscribe(topic)
        await until(lambda: _committed(admin, group, topic, 5), "the group to have come to the end")
        offsets = await admin.reset_offset(topic, group, 0)
        assert [(queue.queue_id, offset) for queue, offset in offsets.items()] == [(0, 0)]
        await asyncio.wait_for(listener.done.wait(), LIMIT_S)
    assert numbers(listener.seen) == [0, 1, 2, 3, 4] * 2


async def _committed(admin: AdminClient, group: str, topic: str, wanted: int) -> bool:
    stats = await admin.consume_stats(group, topic)
    return sum(offsets.consumer_offset for offsets in stats.offset_table.values()) == wanted


@feature("consume", "from the first message if group and topic are new, for any `consume_from`")
async def test_a_new_group_reads_a_new_topic_from_its_first_message_whatever_start_position_is_set(room: Room) -> None:
    """Brokers answer 0 for a group they do not know while the queue's first message is still in memory."""
    topic = await room.topic(queues=1)
    await send_numbers(room, topic, 3)
    for where in ("CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_TIMESTAMP"):
        settings = room.settings(consume_from=where, consume_from_timestamp_ms=2**40)
        assert numbers(await room.consume(topic, 3, group=room.group(where), settings=settings)) == [0, 1, 2]


@feature("consume", "in lists: messages that the listener does not consume are delivered again")
async def test_messages_of_a_batch_that_the_listener_does_not_consume_are_delivered_again(room: Room) -> None:
    topic = await room.topic(queues=1)
    await send_numbers(room, topic, 40)
    lists: list[list[int]] = []
    again: list[MessageExt] = []
    done = asyncio.Event()

    async def listen(messages: list[MessageExt]) -> int | None:
        if any(message.reconsume_times for message in messages):
            again.extend(messages)
            if len(again) == 2:
                done.set()
            return None
        lists.append(numbers(messages))
        return len(messages) - 2 if 39 in lists[-1] else None

    settings = room.settings(consume_batch_size=16, pull_batch_size=32)
    async with Consumer(room.group(), room.address, batch_listener=listen, settings=settings) as consumer:
        await consumer.subscribe(topic)
        await asyncio.wait_for(done.wait(), LIMIT_S)
    assert sorted(number for some in lists for number in some) == list(range(40))
    assert max(map(len, lists)) == 16
    assert sorted(numbers(again)) == [38, 39]
    assert all(message.reconsume_times == 1 and user_properties(message) == ODD for message in again)


@feature("consume", "with flow control: pulling pauses while the listener is slow")
async def test_a_consumer_pauses_pulling_at_its_cache_limit(room: Room) -> None:
    topic = await room.topic(queues=1)
    await send_numbers(room, topic, 60)
    begun, go, seen = asyncio.Event(), asyncio.Event(), []

    async def listen(message: MessageExt) -> None:
        begun.set()
        await go.wait()
        seen.append(message)

    settings = room.settings(concurrency=2, max_cached_messages=10, pull_batch_size=5)
    async with Consumer(room.group(), room.address, listen, settings=settings) as consumer:
        await consumer.subscribe(topic)
        await asyncio.wait_for(begun.wait(), LIMIT_S)

        def held() -> int:
            return sum(
                queue.info(locked=False).cached_msg_count
                for at, queue in consumer.process_queues.items()
                if at.topic == topic
            )

        await until(lambda: _is(held() >= 10), "pulling to pause")
        assert held() < 15
        go.set()
        await until(lambda: _is(len(seen) == 60), "the rest")
        assert held() == 0
    assert sorted(numbers(seen)) == list(range(60))


async def _is(holds: bool) -> bool:
    return holds
