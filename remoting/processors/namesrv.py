"""The name server's routes: brokers register, clients ask where a topic is.

See docs/internals/protocol.md, Request codes and Name server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from flintmq.core.broker.data_version import DataVersion
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.core.route.advertised import Advertised, Viewpoint
from flintmq.core.route.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.remoting.processors.answers import wants_standard_json, with_header, with_json
from flintmq.remoting.server.request import Handler, Request, Response
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_route import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from flintmq.remoting.wire.register_broker_body import decode_register_broker_body
from flintmq.remoting.wire.version import V4_9_4


class NamesrvRouteProcessor:
    """Answers about brokers and topics. Loop thread.

    Args:
        routes: the tables.
        kv: holds the order configuration of topics.
        order_message_enable: whether a route shows it; asked at each request, because it may change.
        listeners: names of further listeners, by host (empty: any) and port.
    """

    def __init__(
        self,
        routes: RouteInfoManager,
        kv: KVConfigManager,
        order_message_enable: Callable[[], bool] = lambda: False,
        listeners: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        self._routes = routes
        self._listeners = listeners or {}
        self._kv = kv
        self._order_message_enable = order_message_enable

    def handlers(self) -> dict[int, Handler]:
        routes = self._routes
        return {
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route_info,
            RequestCode.GET_BROKER_CLUSTER_INFO: lambda asked: with_json(
                routes.cluster_info(self._viewpoint(asked)), standard=wants_standard_json(asked)
            ),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda _: _topic_list(routes.all_topics()),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: lambda asked: _topic_list(
                *routes.system_topics(self._viewpoint(asked))
            ),
            RequestCode.GET_UNIT_TOPIC_LIST: lambda _: _topic_list(routes.unit_topics()),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: lambda _: _topic_list(routes.unit_sub_topics()),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: lambda _: _topic_list(routes.unit_sub_ununit_topics()),
        }

    def register_broker(self, request: Request) -> Response:
        """103: a broker lives and has these topics. A slave is told its master."""
        header = request.header(RegisterBrokerRequestHeader)
        body = decode_register_broker_body(
            request.body, compressed=header.compressed, version=request.version, crc32=header.body_crc32
        )
        wrapper = body.topic_config_serialize_wrapper
        result = self._routes.register(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            broker_address=header.broker_addr,
            ha_server_address=header.ha_server_addr,
            channel=request.channel,
            data_version=_version(wrapper.data_version),
            topics=[_topic(name, config) for name, config in wrapper.topic_config_table.items()],
            filter_servers=body.filter_server_list,
            advertised=_advertised(header.flint_advertised, request),
        )
        order = self._kv.list_namespace(ORDER_TOPIC_CONFIG)
        return with_header(
            RegisterBrokerResponseHeader(ha_server_addr=result.ha_server_address, master_addr=result.master_address),
            bodies.KVTable(order).encode() if order is not None else b"",
        )

    def unregister_broker(self, request: Request) -> Response:
        header = request.header(UnregisterBrokerRequestHeader)
        self._routes.unregister(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            broker_address=header.broker_addr,
        )
        return Response()

    def query_data_version(self, request: Request) -> Response:
        """322: whether a registration would bring anything new; when not, it counts as a sign of life."""
        header = request.header(QueryDataVersionRequestHeader)
        changed = self._routes.is_data_version_changed(
            header.broker_addr, _version(bodies.DataVersion.of_request(request.body))
        )
        if not changed:
            self._routes.touch(header.broker_addr)
        known = self._routes.data_version(header.broker_addr)
        body = bodies.DataVersion(known.counter, known.timestamp_ms).encode() if known is not None else b""
        return with_header(QueryDataVersionResponseHeader(changed=changed), body)

    def route_info(self, request: Request) -> Response:
        """105: where a topic is. Old clients need unquoted keys, new ones standard JSON.

        See docs/internals/protocol.md, JSON dialect.
        """
        header = request.header(GetRouteInfoRequestHeader)
        route = self._routes.pick_up_topic_route_data(header.topic, self._viewpoint(request))
        if route is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}",
                reason="route.missing",
            )
        if self._order_message_enable():
            route = attrs.evolve(route, order_topic_conf=self._kv.get(ORDER_TOPIC_CONFIG, header.topic))
        standard = header.accept_standard_json_only or request.version >= V4_9_4
        return with_json(route.to_wire(), standard=standard)

    def _viewpoint(self, request: Request) -> Viewpoint:
        """Where the client asks: it is told addresses by which it reaches the brokers."""
        channel, names = request.channel, self._listeners
        host, port = channel.local_host, channel.local_port
        return Viewpoint((names.get((host, port)) or names.get(("", port), "")) if names else "", host)

    def wipe_write_perm(self, request: Request) -> Response:
        count = self._routes.wipe_write_perm(request.header(WipeWritePermOfBrokerRequestHeader).broker_name)
        return with_header(WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def add_write_perm(self, request: Request) -> Response:
        count = self._routes.add_write_perm(request.header(AddWritePermOfBrokerRequestHeader).broker_name)
        return with_header(AddWritePermOfBrokerResponseHeader(add_topic_count=count))

    def delete_topic(self, request: Request) -> Response:
        header = request.header(DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return Response()

    def topics_by_cluster(self, request: Request) -> Response:
        return _topic_list(self._routes.topics_by_cluster(request.header(GetTopicsByClusterRequestHeader).cluster))


def _advertised(text: str | None, request: Request) -> Advertised:
    """What a broker says of its addresses. That it is reached where this name server is counts on the same machine only: there
    a connection comes from the address that it goes to."""
    if not text:
        return Advertised()
    said = Advertised.parse(text)
    channel = request.channel
    return attrs.evolve(said, as_client=said.as_client and channel.remote_host == channel.local_host)


def _topic_list(topics: list[str], broker_address: str | None = None) -> Response:
    return Response(body=bodies.TopicList(broker_address, topics).encode())


def _version(body: bodies.DataVersion) -> DataVersion:
    return DataVersion(body.timestamp_ms, body.counter)


def _topic(name: str, config: bodies.TopicConfig) -> TopicConfig:
    return TopicConfig(
        topic_name=config.topic_name or name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
    )
