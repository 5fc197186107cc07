"""A broker's address: clients and records see the same broker by a name and by an address."""

from __future__ import annotations

import pytest

from flintmq.core.broker.address import HERE, Advertised, Viewpoint, address_of, host_port, is_address
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.record.host import pack_host
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel


def test_a_record_contains_the_ip_address_of_a_broker_that_advertises_a_host_name() -> None:
    """A record has four bytes for a host, and a container's name is not its address."""
    address = address_of("mq.example", 10911, "10.0.0.7", listening_port=20911)
    assert address.host_port == "mq.example:10911"
    assert address.packed == pack_host("10.0.0.7", 10911)
    assert address.listening_port == 20911


def test_the_advertised_port_defaults_to_the_listening_port() -> None:
    """Only behind a proxy are there two ports."""
    assert address_of("127.0.0.1", 10911).listening_port == 10911


REGISTERED = "172.17.0.2:10911"


def test_all_advertised_addresses_are_encoded_in_a_single_text_field() -> None:
    said = Advertised.of(["outside=mq.example.com:20911", "vpn=10.8.0.1:10911"], as_client=True)
    assert said.to_text() == "client,outside=mq.example.com:20911,vpn=10.8.0.1:10911"
    assert Advertised.parse(said.to_text()) == said
    assert not Advertised()
    assert Advertised.of([], as_client=False).to_text() == ""


@pytest.mark.parametrize("text", ["", "nonsense", "a=b", "=h:1", "a=h:1:", "a b=h:1", "x=h:123456", "a=;h:1"])
def test_only_malformed_advertised_addresses_are_ignored(text: str) -> None:
    assert not Advertised.parse(text)
    assert Advertised.parse(f"{text},ok=h:1").by_listener == {"ok": "h:1"}


def test_at_most_64_advertised_addresses_are_read() -> None:
    assert len(Advertised.parse(",".join(f"l{number}=h:1" for number in range(10_000))).by_listener) == 64


@pytest.mark.parametrize(
    ("said", "viewpoint", "told"),
    [
        (Advertised(), Viewpoint("", "127.0.0.1"), REGISTERED),
        (Advertised(as_client=True), Viewpoint("", "127.0.0.1"), "127.0.0.1:10911"),
        (Advertised(as_client=True), Viewpoint("", "192.168.1.7"), "192.168.1.7:10911"),
        (Advertised(as_client=True), Viewpoint("", "::1"), "[::1]:10911"),
        (Advertised(as_client=True), HERE, REGISTERED),
        (Advertised({"outside": "mq:20911"}), Viewpoint("outside", "172.17.0.2"), "mq:20911"),
        (Advertised({"outside": "mq:20911"}), Viewpoint("", "172.17.0.2"), REGISTERED),
        (Advertised({"outside": "mq:20911"}), Viewpoint("other", "172.17.0.2"), REGISTERED),
        (Advertised({"outside": "mq:20911"}, as_client=True), Viewpoint("outside", "127.0.0.1"), "mq:20911"),
    ],
)
def test_clients_of_each_network_get_the_address_advertised_for_that_network(
    said: Advertised, viewpoint: Viewpoint, told: str
) -> None:
    assert said.address(REGISTERED, viewpoint) == told


def test_the_name_server_returns_the_advertised_address_of_a_broker_in_routes_and_cluster_info() -> None:
    """Routes for clients, the cluster for tools, and the broker that a list of system topics names."""
    routes = RouteInfoManager(ManualClock())
    for name, said in (("a", Advertised({"outside": "mq:1"})), ("b", Advertised())):
        routes.register(
            cluster="C",
            broker_name=name,
            broker_id=0,
            broker_address=f"{name}:10911",
            ha_server_address="",
            channel=RecordingChannel(),
            data_version=DataVersion(timestamp_ms=1, counter=1),
            topics=[TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)],
            advertised=said,
        )
    outside = Viewpoint("outside", "10.0.0.1")
    for viewpoint, wanted in ((outside, ["mq:1", "b:10911"]), (HERE, ["a:10911", "b:10911"])):
        route = routes.pick_up_topic_route_data("T", viewpoint)
        assert route is not None
        assert [broker.broker_addrs[0] for broker in route.broker_datas] == wanted
        table = routes.cluster_info(viewpoint).broker_addr_table
        assert [table[name].broker_addrs[0] for name in "ab"] == wanted
        assert routes.system_topics(viewpoint)[1] == wanted[0]


def test_ipv6_addresses_are_written_in_brackets_before_a_port() -> None:
    assert host_port("10.0.0.1", 1) == "10.0.0.1:1"
    assert host_port("fe80::1%eth0", 1) == "[fe80::1]:1"
    assert host_port("::ffff:10.0.0.1", "2") == "10.0.0.1:2"
    assert host_port("mq.example.com", 3) == "mq.example.com:3"


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1:10911",
        "broker-a.example.com:1",
        "my_broker:65535",
        "[::1]:9876",
        "fe80::1:10911",
        "[fe80::1%eth0]:1",
        "h.:7",
    ],
)
def test_host_names_and_ip_addresses_with_a_port_are_valid_broker_addresses(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "h",
            "h:",
            ":1",
            "h:0",
            "h:65536",
            "h:1x",
            "h:-1",
            "h:1:",
            "a b:1",
            "h\n:1",
            "h:1\n",
            "h:\u0661",
            "<b>:1",
            "a/b:1",
        ),
        *(
            "[::1]",
            "[::1:9",
            "::g:1",
            "http://h:1",
            "a/b:1",
            "h,g:1",
            "h;g:1",
            "\x1b[2J:1",
            "-h:1",
            "h" * 300 + ":1",
            "null",
        ),
    ],
)
def test_a_text_with_a_missing_or_invalid_host_or_port_is_not_a_broker_address(text: str) -> None:
    assert not is_address(text)
