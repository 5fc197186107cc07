"""Registers and unregisters clients, and answers consumers' requests about the members and offsets of their group.

See docs/internals/protocol.md, Request codes; docs/internals/algorithms.md, Groups and offsets, and Offset by time.
"""

from __future__ import annotations

import msgspec

from flintmq.core.broker.subscription import TAG, SubscriptionData
from flintmq.core.broker.topic_config import UNIT_SUB_FLAG
from flintmq.core.broker.topic_name import is_name, retry_topic
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.access import Need, Permission
from flintmq.core.kernel.ports.processor import Request, Response, handles
from flintmq.core.limits import GROUP_MAX_BYTES
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.answers import StateProcessor, check_client_id, group_missing, topic_missing
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_message import (
    ConsumerGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from flintmq.remoting.wire.refusal import system_error


def _heartbeat_needs(body: bytes) -> list[Need]:
    found = []
    for consumer in bodies.HeartbeatData.of_request(body).consumer_data_set:
        found.append(needs.group_need(consumer.group_name))
        found += [needs.topic_need(wanted.topic, Permission.SUB) for wanted in consumer.subscription_data_set]
    return found


def _check_needs(body: bytes) -> list[Need]:
    wanted = bodies.CheckClientRequestBody.of_request(body)
    subscription = wanted.subscription_data
    return [
        needs.group_need(wanted.group),
        *((needs.topic_need(subscription.topic, Permission.SUB),) if subscription else ()),
    ]


class ClientManageProcessor(StateProcessor):
    """Answers clients' heartbeats, requests of clients to unregister, and requests to check subscriptions.

    Used only on the event loop's thread.
    """

    @handles(RequestCode.HEART_BEAT, pool="heartbeat", needs=needs.body(_heartbeat_needs))
    def heartbeat(self, request: Request) -> Response:
        """Register the client that sent a heartbeat, with its groups and subscriptions."""
        body = bodies.HeartbeatData.of_request(request.body)
        check_client_id(body.client_id)
        for consumer in body.consumer_data_set:
            self._register_consumer(request, body.client_id, consumer)
        for producer in body.producer_data_set:
            self._api.clients.producers.register(
                producer.group_name, request.channel, body.client_id, request.language, request.version
            )
        return Response()

    def _register_consumer(self, request: Request, client_id: str, data: bodies.ConsumerData) -> None:
        config = self._api.groups.select(data.group_name)
        if config is not None:
            topic = retry_topic(data.group_name)
            # The retry topic is created even if its name is too long for a record, as for group names of 121 to 255 characters.
            # The retry topic must exist, because admin tools request the route of each group's retry topic.
            if is_name(data.group_name, GROUP_MAX_BYTES):
                flag = UNIT_SUB_FLAG if data.unit_mode else 0
                self._api.topics.create_in_send_back(topic, max(0, config.retry_queue_nums), topic_sys_flag=flag)
        self._api.clients.consumers.register(
            data.group_name,
            request.channel,
            client_id,
            [_with_type(wanted) for wanted in data.subscription_data_set],
            language=request.language,
            version=request.version,
            consume_type=data.consume_type,
            message_model=data.message_model,
            consume_from_where=data.consume_from_where,
            notify=config is None or config.notify_consumer_ids_changed_enable,
        )

    @handles(
        RequestCode.UNREGISTER_CLIENT, header=UnregisterClientRequestHeader, pool="client", needs=needs.given_group()
    )
    def unregister(self, request: Request) -> Response:
        """Remove a client from a producer group, a consumer group, or both."""
        header = request.header(UnregisterClientRequestHeader)
        if header.producer_group:
            self._api.clients.producers.unregister(header.producer_group, request.channel)
        if header.consumer_group:
            config = self._api.groups.find(header.consumer_group)
            notify = config is None or config.notify_consumer_ids_changed_enable
            client_id = header.client_id or ""
            self._api.clients.consumers.unregister(header.consumer_group, request.channel, client_id, notify=notify)
        return Response(ext_fields={})

    @handles(RequestCode.CHECK_CLIENT_CONFIG, pool="client", needs=needs.body(_check_needs))
    def check_client_config(self, request: Request) -> Response:
        """Check that the broker can filter by the expression of a consumer's subscription. A list of tags needs no check.

        Raises:
            RefusedError: the expression is invalid, or its type is unknown.
        """
        wanted = bodies.CheckClientRequestBody.of_request(request.body).subscription_data
        if wanted is None or wanted.expression_type in ("", TAG):
            return Response()
        self._api.outlet.filter_of(wanted)
        return Response()


def _with_type(wanted: SubscriptionData) -> SubscriptionData:
    return wanted if wanted.expression_type else msgspec.structs.replace(wanted, expression_type=TAG)


class ConsumerManageProcessor(StateProcessor):
    """Answers consumers' requests about the members and offsets of their group. Used only on the event loop's thread."""

    @handles(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, header=ConsumerGroupRequestHeader, pool="consumer", needs=needs.group()
    )
    def consumer_list(self, request: Request) -> Response:
        """Return the client ids of a consumer group's members. If the group has no members, the request is refused.

        After the refusal, the consumer keeps its queues (docs/internals/protocol.md, What an answer must have).
        """
        group = request.header(ConsumerGroupRequestHeader).consumer_group
        self._api.clients.consumers.heard(group, request.channel)
        info = self._api.clients.consumers.find(group)
        if info is None or not info.client_ids:
            raise system_error(f"no consumer for this group, {group}", reason="group.not_online")
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

        A group without an offset in the queue starts at 0 if the queue begins at 0 and its first message is in memory.
        Otherwise the answer is QUERY_NOT_FOUND, and the consumer decides by its ``ConsumeFromWhere`` where to start.
        """
        header = request.header(QueryConsumerOffsetRequestHeader)
        consumer_offset = self._api.offsets.query(header.topic, header.consumer_group, header.queue_id)
        if consumer_offset >= 0:
            return Response(ext_fields={"offset": str(consumer_offset)})
        reader = self._api.log.reader
        if reader.min_queue_offset(header.topic, header.queue_id) <= 0 and reader.check_in_mem_by_consume_offset(
            header.topic, header.queue_id, 0
        ):
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
        """Commit the consumer offset of a group in a queue.

        The first commit for a queue is refused unless topic, queue and group exist, so that the table of offsets stays bounded.
        """
        header = request.header(UpdateConsumerOffsetRequestHeader)
        if header.commit_consumer_offset < 0:
            raise system_error(
                "a consumer offset is 0 or more", reason="offset.negative", measured=str(header.commit_consumer_offset)
            )
        self._check_known(header)
        self._api.offsets.commit(
            header.topic,
            header.consumer_group,
            header.queue_id,
            header.commit_consumer_offset,
            request.channel.remote_address,
        )
        return Response(ext_fields={})

    def _check_known(self, header: UpdateConsumerOffsetRequestHeader) -> None:
        api, topic, group = self._api, header.topic, header.consumer_group
        if api.offsets.query(topic, group, header.queue_id) >= 0:
            return
        config = api.topics.select(topic)
        if config is None:
            raise topic_missing(topic)
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= header.queue_id < queues:
            raise system_error(
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] has {queues} queues",
                reason="queue.illegal",
                measured=f"queue {header.queue_id}",
            )
        if api.groups.select(group) is None:
            raise group_missing(group)
