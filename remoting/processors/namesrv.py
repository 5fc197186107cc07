"""Answers the requests that a name server receives.

Brokers register, clients ask for routes, and administration tools change the key-value table and the settings. See
docs/internals/protocol.md, Request codes and Name server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from flintmq.config.runtime import NAMESRV_RUNTIME_KEYS, evolve_namesrv, namesrv_as_properties
from flintmq.config.sections.models import NamesrvConfig
from flintmq.core.broker.address import Advertised, Viewpoint, is_address
from flintmq.core.client_log import printable
from flintmq.core.errors import RefusedError
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.kernel.ports.access import ACCOUNT, ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.core.response_code import ResponseCode
from flintmq.core.route.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.remoting.processors.answers import (
    changed,
    format_properties,
    read_properties,
    wants_standard_json,
    with_header,
    with_json,
)
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import V4_9_4, RequestCode
from flintmq.remoting.wire.headers_route import (
    LEFT_BROKERS,
    AddWritePermOfBrokerResponseHeader,
    BrokerIdentityRequestHeader,
    BrokerNameRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    KVKeyRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    WipeWritePermOfBrokerResponseHeader,
    decode_register_broker_body,
)
from flintmq.remoting.wire.json_body import decode_request_body, dumps

_NAME_MAX_CHARS: Final = 255


class NamesrvRouteProcessor(DeclaredProcessor):
    """Answers requests about brokers, topics and routes. Used only on the event loop's thread.

    Args:
        routes: the tables of brokers and topics.
        kv: the key-value table, which contains the order configuration of topics.
        order_message_enable: returns whether routes contain the order configuration. It is called for each request, because the
            setting may change.
        listeners: names of the listeners in the setting ``nameserver.listeners``, keyed by (host, port). An empty host means
            any interface. A client that connects to a listener gets the addresses that brokers advertise for the listener's
            name.
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

    @handles(
        RequestCode.REGISTER_BROKER,
        header=RegisterBrokerRequestHeader,
        answer=RegisterBrokerResponseHeader,
        needs=ADMIN,
    )
    def register_broker(self, request: Request) -> Response:
        """Register a broker with its topics.

        The answer contains the addresses of the broker's master if the broker is a slave.
        """
        header = request.header(RegisterBrokerRequestHeader)
        body = decode_register_broker_body(
            request.body, compressed=header.compressed, version=request.version, crc32=header.body_crc32
        )
        _check_registration(header, body.filter_server_list)
        wrapper = body.topic_config_serialize_wrapper
        result = self._routes.register(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            broker_address=header.broker_addr,
            ha_server_address=header.ha_server_addr,
            channel=request.channel,
            data_version=wrapper.data_version,
            topics=[
                config if config.topic_name else replace(config, topic_name=name)
                for name, config in wrapper.topic_config_table.items()
            ],
            filter_servers=body.filter_server_list,
            advertised=_advertised(header.flint_advertised, request),
            is_whole=header.flint_whole,
        )
        order = self._kv.list_namespace(ORDER_TOPIC_CONFIG)
        return with_header(
            RegisterBrokerResponseHeader(ha_server_addr=result.ha_server_address, master_addr=result.master_address),
            bodies.KVTable(order).encode() if order is not None else b"",
        )

    @handles(RequestCode.UNREGISTER_BROKER, header=BrokerIdentityRequestHeader, needs=ADMIN)
    def unregister_broker(self, request: Request) -> Response:
        """Remove a broker from the name server's routes."""
        header = request.header(BrokerIdentityRequestHeader)
        self._routes.unregister(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            broker_address=header.broker_addr,
        )
        return Response()

    @handles(
        RequestCode.QUERY_DATA_VERSION,
        header=BrokerIdentityRequestHeader,
        answer=QueryDataVersionResponseHeader,
        needs=ADMIN,
    )
    def query_data_version(self, request: Request) -> Response:
        """Return whether a broker's data version differs from the registered one.

        If the two are equal, renew the registration.
        """
        header = request.header(BrokerIdentityRequestHeader)
        changed = self._routes.is_data_version_changed(
            header.broker_addr, decode_request_body(request.body, DataVersion)
        )
        if not changed:
            self._routes.touch(header.broker_addr)
        known = self._routes.data_version(header.broker_addr)
        body = dumps(known) if known is not None else b""
        return with_header(QueryDataVersionResponseHeader(changed=changed), body)

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, header=GetRouteInfoRequestHeader, needs=ACCOUNT)
    def route_info(self, request: Request) -> Response:
        """Return the brokers and queues of a topic to a client.

        Old clients need JSON with unquoted numeric keys. New clients need standard JSON (docs/internals/protocol.md, JSON
        dialect).
        """
        header = request.header(GetRouteInfoRequestHeader)
        route = self._routes.pick_up_topic_route_data(header.topic, self._viewpoint(request))
        left = self._routes.left_brokers(header.topic)
        if route is None and left:
            text = f"No topic route info in name server for the topic: {header.topic}"
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"{text} [route.missing]", {LEFT_BROKERS: ";".join(left)})
        if route is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}",
                reason="route.missing",
            )
        if self._order_message_enable():
            route = replace(route, order_topic_conf=self._kv.get(ORDER_TOPIC_CONFIG, header.topic))
        standard = header.accept_standard_json_only or request.version >= V4_9_4
        answer = with_json(route, standard=standard)
        if left:
            # The field flintLeftBrokers is sent to every client, because RocketMQ's clients ignore it.
            answer.ext_fields = {LEFT_BROKERS: ";".join(left)}
        return answer

    def _viewpoint(self, request: Request) -> Viewpoint:
        """Return the listener through which a client reached the name server, and the local address of the connection.

        The listener and the address decide which of a broker's addresses the client gets.
        """
        channel, names = request.channel, self._listeners
        host, port = channel.local_host, channel.local_port
        return Viewpoint((names.get((host, port)) or names.get(("", port), "")) if names else "", host)

    @handles(RequestCode.GET_BROKER_CLUSTER_INFO, needs=ACCOUNT)
    def cluster_info(self, request: Request) -> Response:
        """Return every registered broker with its cluster and its addresses."""
        return with_json(self._routes.cluster_info(self._viewpoint(request)), standard=wants_standard_json(request))

    @handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, needs=ADMIN)
    def all_topics(self, _request: Request) -> Response:
        """Return the names of all topics that brokers have registered."""
        return _topic_list(self._routes.topics.topics())

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, needs=ACCOUNT)
    def system_topics(self, request: Request) -> Response:
        """Return the names of all clusters and brokers, and the address of an arbitrary broker.

        RocketMQ lists these names as system topics, because each name is also the name of a topic. RocketMQ's client then
        asks the broker at the address for further system topics.
        """
        return _topic_list(*self._routes.system_topics(self._viewpoint(request)))

    @handles(RequestCode.GET_UNIT_TOPIC_LIST, needs=ADMIN)
    def unit_topics(self, _request: Request) -> Response:
        """Return the topics whose ``topicSysFlag`` has RocketMQ's unit flag (1) at any broker."""
        return _topic_list(self._routes.topics.unit_topics())

    @handles(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, needs=ADMIN)
    def unit_sub_topics(self, _request: Request) -> Response:
        """Return the topics whose ``topicSysFlag`` has RocketMQ's flag for unit subscriptions (2) at any broker."""
        return _topic_list(self._routes.topics.unit_sub_topics())

    @handles(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, needs=ADMIN)
    def unit_sub_ununit_topics(self, _request: Request) -> Response:
        """Return the topics whose ``topicSysFlag`` has the unit subscription flag (2), but not the unit flag (1)."""
        return _topic_list(self._routes.topics.unit_sub_ununit_topics())

    @handles(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        header=BrokerNameRequestHeader,
        answer=WipeWritePermOfBrokerResponseHeader,
        needs=ADMIN,
        audited=True,
    )
    def wipe_write_perm(self, request: Request) -> Response:
        """Remove the write permission from all topics of a broker."""
        count = self._routes.topics.wipe_write_perm(request.header(BrokerNameRequestHeader).broker_name)
        return with_header(WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    @handles(
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        header=BrokerNameRequestHeader,
        answer=AddWritePermOfBrokerResponseHeader,
        needs=ADMIN,
        audited=True,
    )
    def add_write_perm(self, request: Request) -> Response:
        """Restore the write permission of all topics of a broker."""
        count = self._routes.topics.add_write_perm(request.header(BrokerNameRequestHeader).broker_name)
        return with_header(AddWritePermOfBrokerResponseHeader(add_topic_count=count))

    @handles(RequestCode.DELETE_TOPIC_IN_NAMESRV, header=DeleteTopicFromNamesrvRequestHeader, needs=ADMIN, audited=True)
    def delete_topic(self, request: Request) -> Response:
        """Remove a topic from the name server's routes."""
        header = request.header(DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return Response()

    @handles(RequestCode.GET_TOPICS_BY_CLUSTER, header=GetTopicsByClusterRequestHeader, needs=ADMIN)
    def topics_by_cluster(self, request: Request) -> Response:
        """Return the names of the topics that the brokers of a cluster have registered."""
        return _topic_list(self._routes.topics_by_cluster(request.header(GetTopicsByClusterRequestHeader).cluster))


def _check_registration(header: RegisterBrokerRequestHeader, filter_servers: Sequence[str] | None) -> None:
    """Raise ``RefusedError`` if a broker's registration contains addresses or names that clients cannot use.

    Clients would get the addresses and names with every route. RocketMQ's name server accepts any text in a registration. If
    a registration is refused, RocketMQ's broker throws an ``MQBrokerException`` with the remark of the refusal, and continues
    to run.
    """
    told = [("brokerAddr", header.broker_addr), *(("filterServerList", one) for one in filter_servers or ())]
    told += [("haServerAddr", header.ha_server_addr)] if header.ha_server_addr else []
    for field, address in told:
        if not is_address(address):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"{field} '{printable(address, 100)}' is not HOST:PORT: register with an address that clients can connect with "
                "(brokerIP1, listenPort; listen.advertised_host)",
                reason="broker.address_wrong",
            )
    for field, name in (("brokerName", header.broker_name), ("clusterName", header.cluster_name)):
        if not name or len(name) > _NAME_MAX_CHARS or printable(name) != name:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"{field} '{printable(name, 100)}' is empty, longer than {_NAME_MAX_CHARS}, or has control characters",
                reason="broker.name_wrong",
            )


def _advertised(text: str | None, request: Request) -> Advertised:
    """Return the addresses that a broker advertises in its registration.

    A broker may state that clients reach it at the name server's host. This statement is accepted only from a broker on the
    name server's machine, whose connection has the same remote and local host.
    """
    if not text:
        return Advertised()
    said = Advertised.parse(text)
    channel = request.channel
    return replace(said, as_client=said.as_client and channel.remote_host == channel.local_host)


def _topic_list(topics: list[str], broker_address: str | None = None) -> Response:
    return Response(body=bodies.TopicList(broker_address, topics).encode())


class NamesrvSettings:
    """Holds a name server's current configuration, which requests may change. Used only on the event loop's thread.

    Args:
        config: the configuration at the start.
        on_change: called with each new configuration.
    """

    def __init__(self, config: NamesrvConfig, on_change: Callable[[NamesrvConfig], None] = lambda config: None) -> None:
        self.config = config
        self._on_change = on_change

    def update(self, changes: dict[str, str]) -> None:
        """Change the name server's settings to values given as text. If one value is refused, no setting is changed.

        Raises:
            RefusedError: a setting may not be changed, or a value is invalid.
        """
        self.config = changed(self.config, changes, NAMESRV_RUNTIME_KEYS, evolve_namesrv)
        self._on_change(self.config)


class NamesrvConfigProcessor(DeclaredProcessor):
    """Answers requests that read or change the name server's key-value table or the name server's settings.

    Used only on the event loop's thread.
    """

    def __init__(self, kv: KVConfigManager, settings: NamesrvSettings) -> None:
        self._kv = kv
        self._settings = settings

    @handles(RequestCode.PUT_KV_CONFIG, header=PutKVConfigRequestHeader, needs=ADMIN, audited=True)
    async def put(self, request: Request) -> Response:
        """Set the value of a key in a namespace of the name server's key-value table."""
        header = request.header(PutKVConfigRequestHeader)
        self._kv.put(header.namespace, header.key, header.value)
        await self._kv.durable()
        return Response()

    @handles(RequestCode.GET_KV_CONFIG, header=KVKeyRequestHeader, answer=GetKVConfigResponseHeader, needs=ACCOUNT)
    def get(self, request: Request) -> Response:
        """Return the value of a key in a namespace of the name server's key-value table."""
        header = request.header(KVKeyRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            raise RefusedError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
                reason="kv.missing",
            )
        return with_header(GetKVConfigResponseHeader(value=value))

    @handles(RequestCode.DELETE_KV_CONFIG, header=KVKeyRequestHeader, needs=ADMIN, audited=True)
    async def delete(self, request: Request) -> Response:
        """Delete a key and its value from a namespace of the name server's key-value table."""
        header = request.header(KVKeyRequestHeader)
        self._kv.delete(header.namespace, header.key)
        await self._kv.durable()
        return Response()

    @handles(RequestCode.GET_KVLIST_BY_NAMESPACE, header=GetKVListByNamespaceRequestHeader, needs=ACCOUNT)
    def list_namespace(self, request: Request) -> Response:
        """Return all keys and values in a namespace of the name server's key-value table."""
        namespace = request.header(GetKVListByNamespaceRequestHeader).namespace
        values = self._kv.list_namespace(namespace)
        if values is None:
            raise RefusedError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}", reason="kv.missing"
            )
        return Response(body=bodies.KVTable(values).encode())

    @handles(RequestCode.UPDATE_NAMESRV_CONFIG, needs=ADMIN, audited=True)
    def update_config(self, request: Request) -> Response:
        """Change the name server's settings that a request names in its body, while the name server runs.

        If one setting is refused, none is changed. Only settings that :mod:`flintmq.config.runtime` lists may be changed.
        """
        self._settings.update(read_properties(request.body))
        return Response()

    @handles(RequestCode.GET_NAMESRV_CONFIG, needs=ADMIN)
    def get_config(self, _request: Request) -> Response:
        """Return every setting of the name server under RocketMQ's name."""
        return Response(body=format_properties(namesrv_as_properties(self._settings.config)))
