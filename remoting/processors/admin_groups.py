"""Administration of consumer groups and their offsets on a broker (docs/internals/protocol.md, Request codes)."""

from __future__ import annotations

from datetime import datetime

import msgspec

from flintmq.core.broker.group_lag import has_left, positions
from flintmq.core.broker.groups import SubscriptionGroupConfig, SubscriptionGroupConfigOf5
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import RETRY_PREFIX, check_group_name
from flintmq.core.kernel.ports.access import ADMIN, Need, Permission
from flintmq.core.kernel.ports.processor import Request, Response, handles
from flintmq.core.limits import GROUP_MAX_BYTES, TOPIC_MAX_BYTES
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.answers import (
    StateProcessor,
    check_client_id,
    check_not_slave,
    group_missing,
    joined,
    sliced,
    topic_missing,
    wants_standard_json,
    with_json,
)
from flintmq.remoting.processors.needs import group_need, topic_need
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.bodies import OffsetTable, consume_stats, consume_stats_list
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_admin import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    GetConsumeStatsRequestHeader,
    GroupRequestHeader,
    QueryCorrectionOffsetRequestHeader,
    TopicGroupRequestHeader,
)
from flintmq.remoting.wire.json_body import decode_request_body

LONG_MAX = 2**63 - 1


def _lock_needs(body: bytes) -> list[Need]:
    wanted = bodies.LockBatchRequestBody.of_request(body)
    return [group_need(wanted.consumer_group), *(topic_need(queue.topic, Permission.SUB) for queue in wanted.mq_set)]


class AdminGroupProcessor(StateProcessor):
    """Answers requests about consumer groups, their offsets, their locks and their lag.

    Used only on the event loop's thread.
    """

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, needs=ADMIN, audited=True)
    async def put_group(self, request: Request) -> Response:
        """Create a consumer group or change its settings. The change is on disk before the answer is sent."""
        check_not_slave(self._api)
        self._api.groups.put(decode_request_body(request.body, SubscriptionGroupConfig))
        await self._api.groups.file.durable()
        return Response()

    @handles(
        RequestCode.DELETE_SUBSCRIPTIONGROUP, header=DeleteSubscriptionGroupRequestHeader, needs=ADMIN, audited=True
    )
    async def delete_group(self, request: Request) -> Response:
        """Delete a consumer group, and also its offsets if the request demands that.

        The change is on disk before the answer is sent.
        """
        check_not_slave(self._api)
        header = request.header(DeleteSubscriptionGroupRequestHeader)
        self._api.groups.delete(header.group_name)
        # Counters can exist for a group that is not in the table of groups, so they are always removed.
        self._api.figures.counts.forget_group(header.group_name)
        if header.remove_offset:
            self._api.offsets.remove_group(header.group_name)
            # A group that is created again after its deletion must not get the old offsets, even after a power cut.
            await self._api.offsets.file.durable()
        await self._api.groups.file.durable()
        return Response()

    @handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, needs=ADMIN)
    async def all_groups(self, _request: Request) -> Response:
        """Return the settings of every consumer group."""
        return Response(body=await joined(self._api.groups.file.encoded()))

    @handles(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header=GroupRequestHeader, needs=needs.group("group"))
    def group_config(self, request: Request) -> Response:
        """Return the settings of a consumer group in the form of RocketMQ 5. A missing group is refused, not created."""
        group = request.header(GroupRequestHeader).group
        config = self._api.groups.find(group)
        if config is None:
            raise group_missing(group)
        return with_json(SubscriptionGroupConfigOf5(**msgspec.structs.asdict(config)))

    @handles(RequestCode.GET_ALL_CONSUMER_OFFSET, needs=ADMIN)
    async def all_offsets(self, request: Request) -> Response:
        """Return the consumer offsets of all groups of the broker in the form of the file ``consumerOffset.json``."""
        pieces = self._api.offsets.file.encoded(standard=wants_standard_json(request))
        return Response(body=await joined(pieces))

    @handles(RequestCode.LOCK_BATCH_MQ, needs=needs.body(_lock_needs))
    def lock_batch(self, request: Request) -> Response:
        """Lock queues for an orderly consumer, and return the requested queues that this consumer holds now.

        Queues with names that are too long to exist are not locked.
        """
        body = bodies.LockBatchRequestBody.of_request(request.body)
        check_client_id(body.client_id)
        check_group_name(body.consumer_group)
        wanted = [queue for queue in body.mq_set if _can_be(queue)]
        held = self._api.clients.locks.lock_batch(body.consumer_group, wanted, body.client_id)
        return Response(body=bodies.LockBatchResponseBody(held).encode())

    @handles(RequestCode.UNLOCK_BATCH_MQ, needs=needs.body(_lock_needs))
    def unlock_batch(self, request: Request) -> Response:
        """Unlock queues that an orderly consumer has locked. Locks of other consumers remain."""
        body = bodies.UnlockBatchRequestBody.of_request(request.body)
        self._api.clients.locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
        return Response()

    @handles(RequestCode.GET_CONSUME_STATS, header=GetConsumeStatsRequestHeader, needs=needs.group_and_given_topic())
    async def consume_stats(self, request: Request) -> Response:
        """Return a consumer group's offsets and lag in each queue of one topic, or of every topic with offsets of the group."""
        header = request.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = [header.topic] if header.topic else sorted(self._api.offsets.which_topic_by_consumer(group))
        table, tps = OffsetTable(), 0.0
        async for topic in sliced(topics):
            tps += (await self._add_stats(table, group, topic))[0]
        return Response(body=consume_stats(tps, table))

    async def _add_stats(self, table: OffsetTable, group: str, topic: str) -> tuple[float, int]:
        """Add a consumer group's offsets in a topic's queues to `table`.

        Return the group's consumed messages per second, and its lag.
        """
        if topic not in self._api.topics or has_left(self._api, group, topic):
            return 0.0, 0
        reader, name, behind = self._api.log.reader, self._api.settings.current.broker.name, 0
        async for position in sliced(positions(self._api, group, topic)):
            queue_id, consumer_offset, end = position
            last_ms = reader.message_store_time(topic, queue_id, consumer_offset - 1) if consumer_offset else 0
            behind += position.lag
            table.add(MessageQueue(name, queue_id, topic), bodies.OffsetWrapper(end, consumer_offset, max(0, last_ms)))
        return self._api.figures.counts.consume_tps(group, topic), behind

    @handles(RequestCode.GET_BROKER_CONSUME_STATS, header=GetBrokerConsumeStatsRequestHeader, needs=ADMIN)
    async def broker_consume_stats(self, request: Request) -> Response:
        """Return the offsets and the lag of every consumer group of the broker."""
        header = request.header(GetBrokerConsumeStatsRequestHeader)
        found: list[tuple[str, list[bytes]]] = []
        total_diff = 0
        async for config in sliced(self._api.groups):
            group = config.group_name
            of_group: list[bytes] = []
            async for topic in sliced(sorted(self._api.offsets.which_topic_by_consumer(group))):
                topic_config = self._api.topics.select(topic)
                if topic_config is None or (header.is_order and not topic_config.order):
                    continue
                table = OffsetTable()
                tps, behind = await self._add_stats(table, group, topic)
                if len(table):
                    of_group.append(consume_stats(tps, table))
                    total_diff += behind
            found.append((group, of_group))
        return Response(body=consume_stats_list(self._api.address.host_port, found, total_diff))

    @handles(RequestCode.CLONE_GROUP_OFFSET, header=CloneGroupOffsetRequestHeader, needs=ADMIN, audited=True)
    def clone_offsets(self, request: Request) -> Response:
        """Copy the offsets of one group to another, in one topic or in all topics of the group.

        Topics to which the group no longer subscribes are copied only if the request sets ``offline``.
        """
        header = request.header(CloneGroupOffsetRequestHeader)
        topics = {header.topic} if header.topic else self._api.offsets.which_topic_by_consumer(header.src_group)
        for topic in topics:
            if topic in self._api.topics and (header.offline or not has_left(self._api, header.src_group, topic)):
                self._api.offsets.clone(header.src_group, header.dest_group, topic)
        return Response()

    @handles(RequestCode.QUERY_CONSUME_TIME_SPAN, header=TopicGroupRequestHeader, needs=needs.topic_and_group("group"))
    async def consume_time_span(self, request: Request) -> Response:
        """Return a consumer group's delay in each queue of a topic, and the store times of three messages of each queue.

        These are the queue's first message, its last message, and the last message that the group has consumed.
        """
        header = request.header(TopicGroupRequestHeader)
        config = self._api.topics.select(header.topic)
        if config is None:
            raise topic_missing(header.topic)
        queue_ids = sliced(range(config.write_queue_nums))
        spans = [self._span(header.topic, header.group, queue_id).encode() async for queue_id in queue_ids]
        return Response(body=b'{"consumeTimeSpanSet":[%b]}' % b",".join(spans))

    def _span(self, topic: str, group: str, queue_id: int) -> bodies.QueueTimeSpan:
        reader = self._api.log.reader
        end = reader.max_queue_offset(topic, queue_id)
        consumer_offset = self._api.offsets.query(topic, group, queue_id)
        first_ms = reader.earliest_message_store_time(topic, queue_id)
        last_ms = reader.message_store_time(topic, queue_id, end - 1)
        consumed_ms = (
            reader.message_store_time(topic, queue_id, consumer_offset - 1) if consumer_offset > 0 else first_ms
        )
        delay_ms = 0
        if consumer_offset < end:
            next_ms = reader.message_store_time(topic, queue_id, max(0, consumer_offset))
            delay_ms = self._api.clock.now_ms() - next_ms if next_ms > 0 else 0
        return bodies.QueueTimeSpan(
            consume_time_stamp_ms=consumed_ms,
            consume_time_stamp_text=_time_text(consumed_ms),
            delay_time_ms=delay_ms,
            max_time_stamp_ms=last_ms,
            max_time_stamp_text=_time_text(last_ms),
            message_queue=MessageQueue(self._api.settings.current.broker.name, queue_id, topic),
            min_time_stamp_ms=first_ms,
            min_time_stamp_text=_time_text(first_ms),
        )

    @handles(RequestCode.QUERY_CORRECTION_OFFSET, header=QueryCorrectionOffsetRequestHeader, needs=ADMIN)
    def correction_offsets(self, request: Request) -> Response:
        """Return the smallest consumer offset in each queue of a topic. Groups that the request excludes are not considered.

        The request also names a group to compare with, which may be an excluded group. If the compared group's offset in a
        queue is less than the smallest offset, the answer contains ``Long.MAX_VALUE`` for this queue.
        """
        header = request.header(QueryCorrectionOffsetRequestHeader)
        without = frozenset(name for name in (header.filter_groups or "").split(",") if name)
        found = self._api.offsets.min_offset_in_all_groups(header.topic, without)
        for queue_id, compared in self._api.offsets.query_all(header.topic, header.compare_group).items():
            if queue_id in found and found[queue_id] > compared:
                found[queue_id] = LONG_MAX
        return with_json(bodies.CorrectionOffsets(found), standard=wants_standard_json(request))


def _can_be(queue: MessageQueue) -> bool:
    """Return whether the topic and the broker name of a queue do not exceed their maximum lengths.

    A queue with longer names cannot exist, so a lock on it would only use memory.
    """
    topic_max = len(RETRY_PREFIX) + GROUP_MAX_BYTES if queue.topic.startswith(RETRY_PREFIX) else TOPIC_MAX_BYTES
    return len(queue.topic) <= topic_max and len(queue.broker_name) <= GROUP_MAX_BYTES


def _time_text(timestamp_ms: int) -> str:
    """Return a time as text in the form ``yyyy-MM-dd#HH:mm:ss:SSS`` in local time."""
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d#%H:%M:%S}:{milliseconds:03d}"
