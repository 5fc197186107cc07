"""Answers consumers that ask for the members of their group, and that read and write its offsets.

See docs/internals/protocol.md, Request codes; docs/internals/algorithms.md, Offset by time.
"""

from __future__ import annotations

from flintmq.core.broker.state import BrokerState
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.answers import group_missing, topic_missing
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_message import (
    ConsumerGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)


class ConsumerManageProcessor(DeclaredProcessor):
    """Answers about members and offsets of a group. Loop thread."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @handles(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        header=ConsumerGroupRequestHeader,
        pool="consumer",
        needs=needs.group(),
    )
    def consumer_list(self, request: Request) -> Response:
        """Return the client ids of a consumer group's members.

        A group without members is refused: the client then keeps the queues it has
        (docs/internals/protocol.md, What an answer must have).
        """
        group = request.header(ConsumerGroupRequestHeader).consumer_group
        info = self._state.consumers.find(group)
        if info is None or not info.client_ids:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", reason="group.not_online"
            )
        return Response(ext_fields={}, body=bodies.ConsumerIdList(info.client_ids).encode())

    @handles(
        RequestCode.QUERY_CONSUMER_OFFSET,
        header=QueryConsumerOffsetRequestHeader,
        answer=QueryConsumerOffsetResponseHeader,
        pool="consumer",
        needs=needs.topic_and_group(),
    )
    def query_offset(self, request: Request) -> Response:
        """Return the consumer offset of a group in a queue.

        A group without an offset starts at 0 while the queue begins there and its first message is in memory.
        Otherwise the answer is QUERY_NOT_FOUND, and the consumer's own ``ConsumeFromWhere`` decides.
        """
        header = request.header(QueryConsumerOffsetRequestHeader)
        consumer_offset = self._state.offsets.query(header.topic, header.consumer_group, header.queue_id)
        if consumer_offset >= 0:
            return Response(ext_fields={"offset": str(consumer_offset)})
        store = self._state.store
        if store.reader.min_queue_offset(
            header.topic, header.queue_id
        ) <= 0 and store.reader.check_in_mem_by_consume_offset(header.topic, header.queue_id, 0):
            return Response(ext_fields={"offset": "0"})
        raise RefusedError(
            ResponseCode.QUERY_NOT_FOUND,
            f"Not found, group {header.consumer_group} has no offset in queue {header.queue_id} of {header.topic}",
            reason="offset.missing",
        )

    @handles(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        header=UpdateConsumerOffsetRequestHeader,
        pool="consumer",
        needs=needs.topic_and_group(),
    )
    def update_offset(self, request: Request) -> Response:
        """Commit the consumer offset of a group in a queue that exists, so that the table stays bounded."""
        header = request.header(UpdateConsumerOffsetRequestHeader)
        if header.commit_consumer_offset < 0:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "a consumer offset is 0 or more",
                reason="offset.negative",
                measured=str(header.commit_consumer_offset),
            )
        self._check_known(header)
        self._state.offsets.commit(
            header.topic,
            header.consumer_group,
            header.queue_id,
            header.commit_consumer_offset,
            request.channel.remote_address,
        )
        return Response(ext_fields={})

    def _check_known(self, header: UpdateConsumerOffsetRequestHeader) -> None:
        state, topic, group = self._state, header.topic, header.consumer_group
        if state.offsets.query(topic, group, header.queue_id) >= 0:
            return
        config = state.topics.select(topic)
        if config is None:
            raise topic_missing(topic)
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= header.queue_id < queues:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] has {queues} queues",
                reason="queue.illegal",
                measured=f"queue {header.queue_id}",
            )
        if state.groups.select(group) is None:
            raise group_missing(group)
