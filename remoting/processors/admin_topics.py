"""Administration of topics and queues on a broker (docs/internals/protocol.md, Request codes)."""

from __future__ import annotations

import msgspec

from flintmq.core.broker.sink import acknowledge
from flintmq.core.broker.topic_config import MessageQueue, TopicConfig, TopicConfigAndQueueMapping
from flintmq.core.broker.topic_name import check_topic_name
from flintmq.core.kernel.ports.access import ACCOUNT, ADMIN, Permission
from flintmq.core.kernel.ports.processor import Request, Response, handles
from flintmq.core.kernel.ports.replication import MasterDirectory
from flintmq.core.limits import TOPIC_MAX_BYTES
from flintmq.core.waiters import DONE
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.answers import (
    StateProcessor,
    check_not_slave,
    joined,
    sliced,
    topic_missing,
    with_json,
)
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.bodies import OffsetTable, topic_stats
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_admin import (
    CreateTopicRequestHeader,
    QueryConsumeQueueRequestHeader,
    TopicRequestHeader,
)
from flintmq.remoting.wire.headers_message import (
    GetEarliestMsgStoretimeResponseHeader,
    QueueOffsetResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
)
from flintmq.remoting.wire.refusal import system_error

QUEUE_ENTRIES_MAX = 4_096
"""Largest number of consume queue entries in the answer to one request."""
_ANY_RIGHT = needs.topic(Permission.ANY)


class AdminTopicProcessor(StateProcessor):
    """Answers requests about topics and their queues. Used only on the event loop's thread."""

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC, header=CreateTopicRequestHeader, needs=ADMIN, audited=True)
    async def create_topic(self, request: Request) -> Response:
        """Create a topic or change its settings. The change is on disk before the answer is sent."""
        check_not_slave(self._api)
        header = request.header(CreateTopicRequestHeader)
        check_topic_name(header.topic)
        self._check_not_system(header.topic)
        self._api.topics.put(
            TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=header.topic_filter_type,
                topic_sys_flag=header.topic_sys_flag,
                order=header.order,
            )
        )
        await self._api.topics.file.durable()
        return Response()

    @handles(RequestCode.DELETE_TOPIC_IN_BROKER, header=TopicRequestHeader, needs=ADMIN, audited=True)
    async def delete_topic(self, request: Request) -> Response:
        """Delete a topic's settings, queues and consumer offsets. The deletion is on disk before the answer is sent.

        After the answer, tools remove the topic's route from name servers. A registration of the broker that has already begun
        may still contain the topic. Therefore the broker answers only after such registrations have ended.
        """
        check_not_slave(self._api)
        topic = request.header(TopicRequestHeader).topic
        # The name of an existing topic is not checked, because the name of a retry topic can be longer than other topic names.
        if topic not in self._api.topics:
            check_topic_name(topic)
        self._check_not_system(topic)
        # A topic whose name is longer than TOPIC_MAX_BYTES has no queues, because no record can contain the name.
        waiter = self._api.log.delete_topic(topic) if len(topic) <= TOPIC_MAX_BYTES else DONE
        self._api.topics.delete(topic)
        # Offsets and counters can exist for a topic that is not in the table of topics, so they are always removed.
        self._forget(topic)
        await self._api.topics.file.durable()
        # A topic that is created again after its deletion must not get the old offsets, even after a power cut.
        await self._api.offsets.file.durable()
        await acknowledge(waiter, strict=False)
        # The log now contains a record of the topic's deletion. The topic's queues are removed when this record is dispatched.
        self._api.log.dispatch(everything=True)
        for directory in self._api.parts(MasterDirectory):  # type: ignore[type-abstract]
            await directory.settle()
        return Response()

    def _check_not_system(self, topic: str) -> None:
        """Raise ``RefusedError`` with RocketMQ's remark if a topic is a system topic.

        System topics may be neither created nor deleted.
        """
        if self._api.topics.is_system_topic(topic):
            raise system_error(f"The topic[{topic}] is conflict with system topic.", reason="topic.system")

    def _forget(self, topic: str) -> None:
        """Drop all groups' consumer offsets in a topic, and the topic's statistics counters."""
        self._api.offsets.remove_topic(topic)
        self._api.figures.counts.forget_topic(topic)

    @handles(RequestCode.GET_ALL_TOPIC_CONFIG, needs=ADMIN)
    async def all_topics(self, _request: Request) -> Response:
        """Return the settings of every topic of the broker."""
        return Response(body=await joined(self._api.topics.file.encoded()))

    @handles(RequestCode.GET_TOPIC_CONFIG, header=TopicRequestHeader, needs=_ANY_RIGHT)
    def topic_config(self, request: Request) -> Response:
        """Return the settings of one topic, in the form of RocketMQ 5."""
        topic = request.header(TopicRequestHeader).topic
        config = self._api.topics.select(topic)
        if config is None:
            raise topic_missing(topic)
        return with_json(TopicConfigAndQueueMapping(**msgspec.structs.asdict(config)))

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, needs=ACCOUNT)
    def system_topics(self, _request: Request) -> Response:
        """Return the names of the broker's system topics."""
        return Response(body=bodies.TopicList(None, sorted(self._api.topics.system_topics)).encode())

    @handles(RequestCode.GET_TOPIC_STATS_INFO, header=TopicRequestHeader, needs=_ANY_RIGHT)
    async def topic_stats(self, request: Request) -> Response:
        """Return the first queue offset, the end offset and the last store time of each queue of a topic.

        Queues that the topic no longer has are included if they still contain messages.
        """
        topic = request.header(TopicRequestHeader).topic
        config = self._api.topics.select(topic)
        if config is None:
            raise topic_missing(topic)
        reader = self._api.log.reader
        table = OffsetTable()
        async for queue_id in sliced(self._api.topics.widths.queue_ids(topic)):
            end = max(0, reader.max_queue_offset(topic, queue_id))
            if queue_id >= config.write_queue_nums and end <= reader.min_queue_offset(topic, queue_id):
                # An empty queue that the topic's settings no longer include is left out.
                continue
            last_ms = max(0, reader.message_store_time(topic, queue_id, end - 1)) if end else 0
            table.add(
                MessageQueue(self._api.settings.current.broker.name, queue_id, topic),
                bodies.TopicOffset(last_ms, end, max(0, reader.min_queue_offset(topic, queue_id))),
            )
        return Response(body=topic_stats(table))

    @handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header=TopicRequestHeader, needs=_ANY_RIGHT)
    def consumed_by(self, request: Request) -> Response:
        """Return the consumer groups that use a topic.

        A group uses the topic if its connected members subscribe to the topic, or if the group has consumer offsets in the
        topic.
        """
        topic = request.header(TopicRequestHeader).topic
        groups = self._api.clients.consumers.which_group_by_topic(topic) | self._api.offsets.which_group_by_topic(topic)
        return Response(body=bodies.GroupList(sorted(groups)).encode())

    @handles(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        header=SearchOffsetRequestHeader,
        answer=QueueOffsetResponseHeader,
        needs=_ANY_RIGHT,
    )
    def search_offset(self, request: Request) -> Response:
        """Return the queue offset of the message whose store time is nearest to a given time.

        The message may be earlier or later than the given time.
        """
        header = request.header(SearchOffsetRequestHeader)
        found = self._api.log.reader.queue_offset_by_time(header.topic, header.queue_id, header.timestamp_ms)
        return Response(ext_fields={"offset": str(found)})

    @handles(RequestCode.GET_MAX_OFFSET, header=QueueRequestHeader, answer=QueueOffsetResponseHeader, needs=_ANY_RIGHT)
    def max_offset(self, request: Request) -> Response:
        """Return the queue offset just past the last message of a queue."""
        header = request.header(QueueRequestHeader)
        found = self._api.log.reader.max_queue_offset(header.topic, header.queue_id)
        return Response(ext_fields={"offset": str(found)})

    @handles(RequestCode.GET_MIN_OFFSET, header=QueueRequestHeader, answer=QueueOffsetResponseHeader, needs=_ANY_RIGHT)
    def min_offset(self, request: Request) -> Response:
        """Return the queue offset of the first message of a queue."""
        header = request.header(QueueRequestHeader)
        found = self._api.log.reader.min_queue_offset(header.topic, header.queue_id)
        return Response(ext_fields={"offset": str(found)})

    @handles(
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        header=QueueRequestHeader,
        answer=GetEarliestMsgStoretimeResponseHeader,
        needs=_ANY_RIGHT,
    )
    def earliest_store_time(self, request: Request) -> Response:
        """Return the store time of the first message of a queue, in ms since 1970."""
        header = request.header(QueueRequestHeader)
        found_ms = self._api.log.reader.earliest_message_store_time(header.topic, header.queue_id)
        return Response(ext_fields={"timestamp": str(found_ms)})

    @handles(RequestCode.QUERY_CONSUME_QUEUE, header=QueryConsumeQueueRequestHeader, needs=ADMIN)
    def query_consume_queue(self, request: Request) -> Response:
        """Return entries of a consume queue.

        Each entry states whether the subscription of a consumer group matches the message's tag.
        """
        header = request.header(QueryConsumeQueueRequestHeader)
        topic = header.topic or ""
        queue = self._api.log.queues.get((topic, header.queue_id))
        if queue is None:
            raise system_error(f"{header.queue_id}@{topic} is not exist!", reason="queue.missing")
        body = bodies.QueryConsumeQueueResponseBody(
            min_queue_index=queue.min_queue_offset, max_queue_index=queue.max_queue_offset
        )
        if not queue.min_queue_offset <= header.index < queue.max_queue_offset:
            raise system_error(
                f"Index {header.index} of {header.queue_id}@{topic} is not exist!",
                reason="queue.offset",
                measured=f"the queue has the offsets {queue.min_queue_offset} to {queue.max_queue_offset - 1}",
            )
        count = max(0, min(header.count, QUEUE_ENTRIES_MAX, queue.max_queue_offset - header.index))
        info = self._api.clients.consumers.find(header.consumer_group) if header.consumer_group else None
        body.subscription_data = wanted = info.find_subscription(topic) if info is not None else None
        body.queue_data = [
            bodies.ConsumeQueueData(
                physic_offset_bytes=commit_log_offset_bytes,
                physic_size_bytes=size_bytes,
                tags_code=tags_code,
                eval=wanted is None or not wanted.code_set or tags_code in wanted.code_set,
            )
            for commit_log_offset_bytes, size_bytes, tags_code in queue.units(header.index, count)
        ]
        return Response(body=body.encode())

    @handles(RequestCode.CLEAN_UNUSED_TOPIC, needs=ADMIN, audited=True)
    async def clean_unused(self, _request: Request) -> Response:
        """Delete the consume queues and the groups' offsets of topics that no longer exist.

        On a slave, this request deletes nothing. A slave's log may contain messages of a topic that the slave's table of topics
        does not have yet. The slave deletes queues only when it compares its tables with its master's.
        """
        api = self._api
        if not api.role.takes_writes:
            return Response()
        with_queues = api.log.reader.topics()
        waiters = []
        for topic in with_queues.union(api.offsets.topics()):
            if topic not in api.topics and not api.topics.is_system_topic(topic):
                if topic in with_queues:
                    waiters.append(api.log.delete_topic(topic))
                self._forget(topic)
        for waiter in waiters:
            await acknowledge(waiter, strict=False)
        api.log.dispatch(everything=True)
        return Response()
