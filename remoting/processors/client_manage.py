"""Takes the heartbeats of clients and their farewells.

See docs/internals/protocol.md, Request codes; docs/internals/algorithms.md, Groups and offsets.
"""

from __future__ import annotations

import msgspec

from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.subscription import TAG, SubscriptionData
from flintmq.core.broker.topic_config import UNIT_SUB_FLAG
from flintmq.core.broker.topic_name import is_name, retry_topic
from flintmq.core.kernel.ports.access import Need, Permission
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.core.limits import TOPIC_MAX_BYTES
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.answers import check_client_id
from flintmq.remoting.processors.needs import group_need, topic_need
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_message import UnregisterClientRequestHeader


def _heartbeat_needs(body: bytes) -> list[Need]:
    found = []
    for consumer in bodies.HeartbeatData.of_request(body).consumer_data_set:
        found.append(group_need(consumer.group_name))
        found += [topic_need(wanted.topic, Permission.SUB) for wanted in consumer.subscription_data_set]
    return found


def _check_needs(body: bytes) -> list[Need]:
    wanted = bodies.CheckClientRequestBody.of_request(body)
    subscription = wanted.subscription_data
    return [group_need(wanted.group), *((topic_need(subscription.topic, Permission.SUB),) if subscription else ())]


class ClientManageProcessor(DeclaredProcessor):
    """Answers heartbeats, farewells and checks of subscriptions. Loop thread."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @handles(RequestCode.HEART_BEAT, pool="heartbeat", needs=needs.body(_heartbeat_needs))
    def heartbeat(self, request: Request) -> Response:
        """Register a client with its groups and subscriptions."""
        body = bodies.HeartbeatData.of_request(request.body)
        check_client_id(body.client_id)
        for consumer in body.consumer_data_set:
            self._register_consumer(request, body.client_id, consumer)
        for producer in body.producer_data_set:
            self._state.producers.register(
                producer.group_name, request.channel, body.client_id, request.language, request.version
            )
        return Response()

    def _register_consumer(self, request: Request, client_id: str, data: bodies.ConsumerData) -> None:
        config = self._state.groups.select(data.group_name)
        if config is not None:
            topic = retry_topic(data.group_name)
            if is_name(topic, TOPIC_MAX_BYTES):
                flag = UNIT_SUB_FLAG if data.unit_mode else 0
                self._state.topics.create_in_send_back(topic, max(0, config.retry_queue_nums), topic_sys_flag=flag)
        self._state.consumers.register(
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
        RequestCode.UNREGISTER_CLIENT,
        header=UnregisterClientRequestHeader,
        pool="client",
        needs=needs.given_group(),
    )
    def unregister(self, request: Request) -> Response:
        """Remove a client from a group of producers, of consumers, or both."""
        header = request.header(UnregisterClientRequestHeader)
        if header.producer_group:
            self._state.producers.unregister(header.producer_group, request.channel)
        if header.consumer_group:
            config = self._state.groups.find(header.consumer_group)
            notify = config is None or config.notify_consumer_ids_changed_enable
            self._state.consumers.unregister(header.consumer_group, request.channel, notify=notify)
        return Response(ext_fields={})

    @handles(RequestCode.CHECK_CLIENT_CONFIG, pool="client", needs=needs.body(_check_needs))
    def check_client_config(self, request: Request) -> Response:
        """Check whether a subscription that is not a list of tags can be served."""
        wanted = bodies.CheckClientRequestBody.of_request(request.body).subscription_data
        if wanted is None or wanted.expression_type in ("", TAG):
            return Response()
        factory = self._state.filter_factory(wanted.expression_type)
        factory(wanted.sub_string, wanted.code_set)
        return Response()


def _with_type(wanted: SubscriptionData) -> SubscriptionData:
    return wanted if wanted.expression_type else msgspec.structs.replace(wanted, expression_type=TAG)
