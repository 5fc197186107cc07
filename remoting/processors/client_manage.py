"""Takes the heartbeats of clients and their farewells.

See docs/internals/protocol.md, Request codes; docs/internals/algorithms.md, Groups and offsets.
"""

from __future__ import annotations

from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.subscription import TAG, SubscriptionData
from flintmq.core.broker.topic_config import UNIT_SUB_FLAG
from flintmq.core.broker.topic_name import is_name, retry_topic
from flintmq.core.limits import TOPIC_MAX_BYTES
from flintmq.remoting.processors.answers import check_client_id
from flintmq.remoting.server.request import Handler, Request, Response
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_message import UnregisterClientRequestHeader


class ClientManageProcessor:
    """Answers heartbeats, farewells and checks of subscriptions. Loop thread."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heartbeat(self, request: Request) -> Response:
        """34: who a client is and what it subscribes to."""
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
            [_subscription(wanted) for wanted in data.subscription_data_set],
            language=request.language,
            version=request.version,
            consume_type=data.consume_type,
            message_model=data.message_model,
            consume_from_where=data.consume_from_where,
            notify=config is None or config.notify_consumer_ids_changed_enable,
        )

    def unregister(self, request: Request) -> Response:
        """35: a client leaves a group of producers, of consumers, or both."""
        header = request.header(UnregisterClientRequestHeader)
        if header.producer_group:
            self._state.producers.unregister(header.producer_group, request.channel)
        if header.consumer_group:
            config = self._state.groups.find(header.consumer_group)
            notify = config is None or config.notify_consumer_ids_changed_enable
            self._state.consumers.unregister(header.consumer_group, request.channel, notify=notify)
        return Response(ext_fields={})

    def check_client_config(self, request: Request) -> Response:
        """46: whether a subscription that is no list of tags can be served; a consumer asks before it starts."""
        wanted = bodies.CheckClientRequestBody.of_request(request.body).subscription_data
        if wanted is None or wanted.expression_type in ("", TAG):
            return Response()
        factory = self._state.filter_factory(wanted.expression_type)
        factory(wanted.sub_string, frozenset(wanted.code_set))
        return Response()


def _subscription(body: bodies.SubscriptionData) -> SubscriptionData:
    return SubscriptionData(
        topic=body.topic,
        sub_string=body.sub_string,
        expression_type=body.expression_type or TAG,
        tags_set=frozenset(body.tags_set),
        code_set=frozenset(body.code_set),
        sub_version=body.sub_version,
        class_filter_mode=body.class_filter_mode,
    )
