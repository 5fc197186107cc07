"""The functions of a pull consumer and an administrator work at every broker."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.remoting.client import (
    AdminClient,
    Consumer,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PullStatus,
    RefusedError,
)

from .sites import FLINTMQ, JAVA_49, JAVA_53, LIMIT_S, Room, feature, until
from .test_consuming import Listener, numbers, send_numbers
from .test_sending import ODD, user_properties

VERSIONS = {FLINTMQ: "V4_9_7", JAVA_49: "V4_9_7", JAVA_53: "V5_3_3"}


async def polled(consumer: PullConsumer, count: int) -> list[MessageExt]:
    """The next messages of the assigned queues."""
    found: list[MessageExt] = []
    async with asyncio.timeout(LIMIT_S):
        while len(found) < count:
            found += await consumer.poll(max_messages=count - len(found))
    return found


@feature("pull", "assigned queues: poll and commit, and another program continues there")
async def test_a_pull_consumer_continues_at_the_committed_offset(room: Room) -> None:
    topic = await room.topic()
    await send_numbers(room, topic, 16)
    async with PullConsumer(room.group(), room.address) as consumer:
        await consumer.assign(topic, consume_from="CONSUME_FROM_FIRST_OFFSET")
        found = await polled(consumer, 10)
        await consumer.commit()
        await polled(consumer, 2)  # not committed
    async with PullConsumer(room.group(), room.address) as consumer:
        await consumer.assign(topic, consume_from="CONSUME_FROM_FIRST_OFFSET")
        found += await polled(consumer, 6)
    assert sorted(numbers(found)) == list(range(16))
    assert all(user_properties(message) == ODD for message in found)


@feature("pull", "a poll waits for a message that is sent meanwhile")
async def test_a_poll_returns_a_message_that_is_sent_while_the_poll_waits(room: Room) -> None:
    topic = await room.topic(queues=2)
    async with PullConsumer(room.group(), room.address) as consumer:
        await consumer.assign(topic, consume_from="CONSUME_FROM_FIRST_OFFSET")
        assert await consumer.poll(timeout_ms=0) == []
        polling = asyncio.create_task(polled(consumer, 1))
        await send_numbers(room, topic, 1)
        assert numbers(await asyncio.wait_for(polling, 10)) == [0]


@feature("pull", "seek to an offset and to a time")
async def test_a_pull_consumer_seeks_to_an_offset_and_to_a_time(room: Room) -> None:
    topic = await room.topic(queues=1)
    await send_numbers(room, topic, 5)
    async with PullConsumer(room.group(), room.address) as consumer:
        await consumer.assign(topic, consume_from="CONSUME_FROM_FIRST_OFFSET")
        all_of_them = await polled(consumer, 5)
        queue = all_of_them[0].queue
        await consumer.seek(queue, 3)
        assert numbers(await polled(consumer, 2)) == [3, 4]
        await consumer.seek_to_time(0)
        assert numbers(await polled(consumer, 1)) == [0]
        await asyncio.sleep(0.02)  # the broker's milliseconds
        await send_numbers(room, topic, 1, first=5)
        (*_, newest) = await room.stored(topic, 6)
        await consumer.seek_to_time(newest.store_timestamp_ms)  # between two messages 4.9 takes the nearer one
        assert numbers(await polled(consumer, 1)) == [5]
        with pytest.raises(ValueError, match="offset"):
            await consumer.seek(queue, 7)


@feature("pull", "single pulls: offsets, filters, offsets without a message")
async def test_a_pull_with_a_filter_returns_only_the_messages_that_match_the_filter(room: Room) -> None:
    topic = await room.topic(queues=1)
    await send_numbers(room, topic, 6, tags=("a", "b"))
    async with PullConsumer(room.group(), room.address) as consumer:
        (queue,) = await consumer.queues(topic)
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 6)
        result = await consumer.pull(queue, 2, max_messages=2)
        assert (result.status, numbers(list(result.messages)), result.next_begin_queue_offset) == (
            PullStatus.FOUND,
            [2, 3],
            4,
        )
        assert numbers(list((await consumer.pull(queue, 0, expression="b")).messages)) == [1, 3, 5]
        by_sql = await consumer.pull(queue, 0, expression="n >= 4", expression_type="SQL92")
        assert numbers(list(by_sql.messages)) == [4, 5]
        assert (await consumer.pull(queue, 6)).status is PullStatus.NO_NEW_MESSAGE
        assert (await consumer.pull(queue, 99)).status is PullStatus.OFFSET_ILLEGAL
        assert await consumer.committed(queue) in (None, 0)
        await consumer.commit(queue, 4)
        assert await consumer.committed(queue) == 4
        assert await consumer.search_offset(queue, result.messages[0].store_timestamp_ms) <= 2


@feature("admin", "topics: create, change, statistics, delete")
async def test_an_admin_client_can_create_and_change_and_delete_a_topic(room: Room) -> None:
    topic = await room.topic(queues=2)
    await send_numbers(room, topic, 6)
    async with AdminClient(room.address) as admin:
        assert topic in await admin.topic_list()

        async def has_all() -> bool:
            stats = await admin.topic_stats(topic)
            found = {(q.queue_id, s.min_queue_offset, s.max_queue_offset) for q, s in stats.items()}
            return found == {(0, 0, 3), (1, 0, 3)}

        await until(has_all, "the broker to dispatch all messages")
        assert await room.topic(queues=5) == topic
        (address,) = (await admin.masters()).values()
        config = (await admin.topic_configs(address)).topic_config_table[topic]
        assert (config.read_queue_nums, config.write_queue_nums) == (5, 5)
        await admin.delete_topic(topic)
        await until(lambda: _is_gone(admin, topic), "the topic to be gone")
        with pytest.raises(RefusedError):
            await admin.topic_stats(topic)


async def _is_gone(admin: AdminClient, topic: str) -> bool:
    return topic not in await admin.topic_list()


@feature("admin", "groups: members, progress, delete")
async def test_an_admin_client_shows_and_deletes_groups(room: Room) -> None:
    topic, group = await room.topic(queues=1), room.group()
    await send_numbers(room, topic, 4)
    listener = Listener(4)
    async with AdminClient(room.address) as admin:
        (address,) = (await admin.masters()).values()
        await admin.create_group(SubscriptionGroupConfig(group_name=group, retry_max_times=3))
        async with Consumer(group, room.address, listener, settings=room.settings(), client_id="me") as consumer:
            await consumer.subscribe(topic, "*")
            await asyncio.wait_for(listener.done.wait(), LIMIT_S)
            connections = await admin.consumer_connections(group, address)
            assert [connection.client_id for connection in connections.connection_set] == ["me"]
            assert topic in connections.subscription_table
            await consumer.commit()

            async def is_told() -> bool:  # a commit is one-way: RocketMQ's broker handles it when it gets to it
                stats = await admin.consume_stats(group, topic)
                return [(at.broker_queue_offset, at.consumer_offset) for at in stats.offset_table.values()] == [(4, 4)]

            await until(is_told, "the offset to be stored")
        with pytest.raises(RefusedError):
            await admin.consumer_connections(group, address)
        await admin.delete_group(group, remove_offset=True)


@feature("admin", "messages by key, by unique id and by the broker's id")
async def test_a_message_is_found_by_its_key_or_its_unique_id_or_its_offset_message_id(room: Room) -> None:
    topic = await room.topic()
    async with Producer(room.group(), room.address) as producer, AdminClient(room.address) as admin:
        sent = [await producer.send(Message(topic, b"%d" % n, keys=f"größe k{n}", properties=ODD)) for n in range(3)]

        async def indexed() -> bool:
            return len(await admin.query_by_key(topic, "größe")) == 3

        await until(indexed, "the index")
        (by_key,) = await admin.query_by_key(topic, "k1")
        (by_id,) = await admin.query_by_key(topic, sent[1].msg_id, unique=True)
        viewed = await admin.view_message(sent[1].offset_msg_id)
    assert [message.body for message in (by_key, by_id, viewed)] == [b"1"] * 3
    assert all(user_properties(message) == ODD for message in (by_key, by_id, viewed))


@feature("admin", "brokers: cluster, settings, figures")
async def test_an_admin_client_shows_brokers_with_their_settings_and_runtime_figures(room: Room) -> None:
    async with AdminClient(room.address) as admin:
        masters = await admin.masters("DefaultCluster")
        assert list(masters) == ["broker-a"]
        address = masters["broker-a"]
        assert await admin.master("broker-a") == address
        assert (await admin.broker_config(address))["enablePropertyFilter"] == "true"

        async def version() -> str | None:
            try:
                return (await admin.runtime_info(address)).get("brokerVersionDesc")
            except RefusedError:
                return None  # the Java broker has no figures in its first ten seconds

        await until(version, "the broker's figures")
        assert await version() == VERSIONS[room.site.name]
