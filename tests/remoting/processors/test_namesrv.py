"""Brokers and clients of every age meet at the name server: what it answers decides whether they find each other."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from flintmq.config import NamesrvConfig
from flintmq.core.io import fastjson
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.core.route.kv_config import KVConfigManager
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.remoting.processors.namesrv import NamesrvConfigProcessor, NamesrvRouteProcessor, NamesrvSettings
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.testing.processor_kit import Sample, check_request_processor

from .conftest import ClientChannel


class Names:
    """A name server without a socket."""

    def __init__(self, bench: Any, ask: Any) -> None:
        self.bench = bench
        self.routes = RouteInfoManager(bench.clock)
        self.kv = KVConfigManager()
        self.settings = NamesrvSettings(NamesrvConfig())
        routes = NamesrvRouteProcessor(
            self.routes,
            self.kv,
            lambda: self.settings.config.order_message_enable,
            {("", 19876): "outside", ("10.0.0.9", 9876): "vpn"},
        )
        self.handlers = routes.handlers() | NamesrvConfigProcessor(self.kv, self.settings).handlers()
        self._ask = ask

    def ask(self, code: int, body: object = b"", *, version: int = 407, channel: Any = None, **fields: str) -> Any:
        request = self.bench.request(code, fields, body, version=version, channel=channel)
        return self._ask(self.handlers, request)

    def register(
        self,
        broker_id: int = 0,
        address: str = "h:1",
        crc: int | None = None,
        channel: Any = None,
        advertised: str | None = None,
        filters: tuple[str, ...] = (),
        more: dict[str, str] | None = None,
        **topics: int,
    ) -> Any:
        body = fastjson.dumps(
            {
                "filterServerList": list(filters),
                "topicConfigSerializeWrapper": {
                    "dataVersion": {"counter": 1, "timestamp": 2},
                    "topicConfigTable": {
                        name: {"topicName": name, "readQueueNums": nums, "writeQueueNums": nums, "perm": 6}
                        for name, nums in topics.items()
                    },
                },
            }
        ).encode()
        fields = {"brokerName": "a", "clusterName": "C", "haServerAddr": address + "0"} | (more or {})
        return self.ask(
            Code.REGISTER_BROKER,
            body,
            **fields,
            brokerAddr=address,
            brokerId=str(broker_id),
            compressed="false",
            bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc),
            channel=channel,
            **({"flintAdvertised": advertised} if advertised else {}),
        )


@pytest.fixture
def names(bench: Any, ask: Any) -> Names:
    return Names(bench, ask)


@pytest.mark.parametrize(
    ("broker_from", "client_came_to", "told"),
    [
        ("127.0.0.1", ("127.0.0.1", 9876), "127.0.0.1:1"),
        ("127.0.0.1", ("192.168.1.7", 9876), "192.168.1.7:1"),
        ("127.0.0.1", ("192.168.1.7", 19876), "mq:2"),
        ("127.0.0.1", ("10.0.0.9", 9876), "10.8.0.1:3"),
        ("10.0.0.5", ("192.168.1.7", 9876), "h:1"),
        ("10.0.0.5", ("192.168.1.7", 19876), "mq:2"),
    ],
)
def test_clients_get_the_broker_address_advertised_for_their_network(
    bench: Any, ask: Any, broker_from: str, client_came_to: tuple[str, int], told: str
) -> None:
    """A broker on another machine is not where the name server is, whatever it says."""
    names = Names(bench, ask)
    broker, client = ClientChannel(f"{broker_from}:4000"), ClientChannel("192.168.1.9:5000")
    names.register(channel=broker, advertised="client,outside=mq:2,vpn=10.8.0.1:3", T=1)
    client.local_host, client.local_port = client_came_to
    route = fastjson.loads(names.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T", channel=client).body)
    assert list(route["brokerDatas"][0]["brokerAddrs"].values()) == [told]
    info = fastjson.loads(names.ask(Code.GET_BROKER_CLUSTER_INFO, channel=client).body)
    assert info["brokerAddrTable"]["a"]["brokerAddrs"] == {0: told}


def test_a_route_has_quoted_json_keys_only_for_clients_that_can_read_quoted_keys(names: Names) -> None:
    assert names.register(T=4).code == 0
    old = names.ask(Code.GET_ROUTEINFO_BY_TOPIC, version=317, topic="T").body.decode()
    assert '"brokerAddrs":{0:"h:1"}' in old
    for new in (
        names.ask(Code.GET_ROUTEINFO_BY_TOPIC, version=401, topic="T"),
        names.ask(Code.GET_ROUTEINFO_BY_TOPIC, version=313, topic="T", acceptStandardJsonOnly="true"),
    ):
        assert '"brokerAddrs":{"0":"h:1"}' in new.body.decode()
    assert fastjson.loads(old)["queueDatas"][0]["readQueueNums"] == 4
    missing = names.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="U")
    assert missing.code == 17
    assert missing.remark == "No topic route info in name server for the topic: U [route.missing]"
    assert names.ask(Code.GET_ROUTEINFO_BY_TOPIC).code == 1


def test_cluster_info_is_returned_in_standard_json_on_request(bench: Any, ask: Any) -> None:
    names = Names(bench, ask)
    names.register(T=1)
    reference = names.ask(Code.GET_BROKER_CLUSTER_INFO).body
    assert b'{0:"h:1"}' in reference
    standard = json.loads(names.ask(Code.GET_BROKER_CLUSTER_INFO, acceptStandardJsonOnly="true").body)
    assert standard["brokerAddrTable"]["a"]["brokerAddrs"] == {"0": "h:1"}


def test_a_registration_with_a_wrong_checksum_is_refused(names: Names) -> None:
    assert names.register(crc=12345, T=4).code == 1
    assert names.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T").code == 17


def test_a_registration_returns_the_master_and_the_order_configuration(names: Names) -> None:
    names.ask(Code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
    master = names.register(T=4)
    assert master.ext_fields == {}
    assert fastjson.loads(master.body) == {"table": {"T": "a:4"}}
    assert names.register(1, "h:2").ext_fields == {"haServerAddr": "h:10", "masterAddr": "h:1"}
    assert "orderTopicConf" not in fastjson.loads(names.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T").body)
    assert names.ask(Code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n").code == 0
    assert fastjson.loads(names.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T").body)["orderTopicConf"] == "a:4"


def test_a_data_version_query_says_whether_the_registration_of_a_broker_changed(names: Names) -> None:
    identity = {"brokerName": "a", "brokerAddr": "h:1", "clusterName": "C", "brokerId": "0"}
    assert names.ask(Code.QUERY_DATA_VERSION, b'{"counter":1,"timestamp":2}', **identity).ext_fields == {
        "changed": "true"
    }
    names.register(T=4)
    same = names.ask(Code.QUERY_DATA_VERSION, b'{"counter":1,"timestamp":2}', **identity)
    assert same.ext_fields == {"changed": "false"}
    assert fastjson.loads(same.body) == {"counter": 1, "timestamp": 2}
    assert names.ask(Code.QUERY_DATA_VERSION, b'{"counter":2,"timestamp":2}', **identity).ext_fields == {
        "changed": "true"
    }
    assert names.ask(Code.UNREGISTER_BROKER, **identity).code == 0
    assert names.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T").code == 17


def test_the_name_server_lists_topics_and_changes_the_write_permissions_of_a_broker(names: Names) -> None:
    names.register(T=4, U=1)
    for code, fields in (
        (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
        (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}),
    ):
        assert fastjson.loads(names.ask(code, **fields).body) == {"topicList": ["T", "U"]}
    assert fastjson.loads(names.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS).body) == {
        "brokerAddr": "h:1",
        "topicList": ["C", "a"],
    }
    for code in (
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ):
        assert fastjson.loads(names.ask(code).body) == {"topicList": []}
    assert fastjson.loads(names.ask(Code.GET_BROKER_CLUSTER_INFO).body)["clusterAddrTable"] == {"C": ["a"]}
    assert names.ask(Code.WIPE_WRITE_PERM_OF_BROKER, brokerName="a").ext_fields == {"wipeTopicCount": "2"}
    assert fastjson.loads(names.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T").body)["queueDatas"][0]["perm"] == 4
    assert names.ask(Code.ADD_WRITE_PERM_OF_BROKER, brokerName="a").ext_fields == {"addTopicCount": "2"}
    assert names.ask(Code.DELETE_TOPIC_IN_NAMESRV, topic="T").code == 0
    assert names.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T").code == 17


def test_key_value_configurations_are_stored_and_listed_and_deleted(names: Names) -> None:
    assert names.ask(Code.PUT_KV_CONFIG, namespace="n", key="k", value="wörld=2").code == 0
    assert names.ask(Code.GET_KV_CONFIG, namespace="n", key="k").ext_fields == {"value": "wörld=2"}
    assert fastjson.loads(names.ask(Code.GET_KVLIST_BY_NAMESPACE, namespace="n").body) == {"table": {"k": "wörld=2"}}
    assert names.ask(Code.DELETE_KV_CONFIG, namespace="n", key="k").code == 0
    assert names.ask(Code.GET_KV_CONFIG, namespace="n", key="k").code == 22
    assert names.ask(Code.GET_KVLIST_BY_NAMESPACE, namespace="none").code == 22


def test_a_name_server_setting_outside_the_allow_list_cannot_be_changed(names: Names) -> None:
    text = names.ask(Code.GET_NAMESRV_CONFIG).body.decode()
    assert "orderMessageEnable=false\n" in text
    assert "listenPort=9876\n" in text
    assert names.ask(Code.UPDATE_NAMESRV_CONFIG, b"serverChannelMaxIdleTimeSeconds=121").code == 0
    assert "serverChannelMaxIdleTimeSeconds=121\n" in names.ask(Code.GET_NAMESRV_CONFIG).body.decode()
    for refused, code in ((b"kvConfigPath=/etc/passwd", 16), (b"orderMessageEnable=maybe", 1), (b"\xff", 1)):
        assert names.ask(Code.UPDATE_NAMESRV_CONFIG, refused).code == code


def test_the_name_server_config_processor_passes_the_conformance_checks_for_request_processors() -> None:
    """A value that was put is found until it is deleted; settings are told without an error."""
    key = {"namespace": "N", "key": "k"}
    samples = [
        Sample(RequestCode.PUT_KV_CONFIG, {**key, "value": "v"}),
        Sample(RequestCode.GET_KV_CONFIG, key),
        Sample(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}),
        Sample(RequestCode.DELETE_KV_CONFIG, key),
        Sample(RequestCode.GET_KV_CONFIG, key),
        Sample(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true"),
        Sample(RequestCode.GET_NAMESRV_CONFIG),
    ]
    settings = NamesrvSettings(NamesrvConfig())
    answers = check_request_processor(
        lambda: NamesrvConfigProcessor(KVConfigManager(), settings), declared_by(NamesrvConfigProcessor), samples
    )
    assert [answer.code for answer in answers] == [0, 0, 0, 0, 22, 0, 0]
    assert answers[1].ext_fields == {"value": "v"}
    assert settings.config.order_message_enable
    assert b"orderMessageEnable=true" in bytes(answers[-1].body)


@pytest.mark.parametrize(
    "address", ["nonsense", "h", "h:0", "a b:1", "h:1\n", "\x1b[2J:1", "http://h:1", "", "h:99999"]
)
def test_a_registration_without_a_valid_address_is_refused(names: Names, address: str) -> None:
    """Every client would be told it: creating a topic failed for everybody then."""
    names.register(T=4)
    refused = names.register(address=address, T=4)
    assert refused.code == 1
    assert refused.remark.isprintable()
    assert "HOST:PORT" in refused.remark
    assert refused.remark.endswith("[broker.address_wrong]")
    info = fastjson.loads(names.ask(Code.GET_BROKER_CLUSTER_INFO).body)
    assert info["brokerAddrTable"]["a"]["brokerAddrs"] == {0: "h:1"}


@pytest.mark.parametrize(
    ("more", "filters", "reason"),
    [
        ({"haServerAddr": "nonsense"}, (), "broker.address_wrong"),
        ({}, ("h:1", "nonsense"), "broker.address_wrong"),
        ({"brokerName": ""}, (), "broker.name_wrong"),
        ({"brokerName": "a\x1b[2J"}, (), "broker.name_wrong"),
        ({"clusterName": "x" * 256}, (), "broker.name_wrong"),
        ({"clusterName": "a\u202eb"}, (), "broker.name_wrong"),
    ],
)
def test_a_registration_with_invalid_fields_is_refused(
    names: Names, more: dict[str, str], filters: tuple[str, ...], reason: str
) -> None:
    refused = names.register(more=more, filters=filters, T=4)
    assert (refused.code, refused.remark.endswith(f"[{reason}]")) == (1, True)
    assert refused.remark.isprintable()
    assert fastjson.loads(names.ask(Code.GET_BROKER_CLUSTER_INFO).body)["brokerAddrTable"] == {}
    assert names.register(more={"haServerAddr": ""}, T=4).code == 0
