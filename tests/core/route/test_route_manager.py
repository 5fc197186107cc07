"""Clients find every queue through these tables: a wrong one sends them nowhere, a stale one to a dead broker."""

from __future__ import annotations

import msgspec
import pytest

from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import RefusedError
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.route import route_manager
from flintmq.core.route.route_data import ClusterInfo, RegisterResult
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel


class Names:
    """A name server's tables, and brokers that register there."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.routes = RouteInfoManager(self.clock)

    def register(
        self,
        name: str = "a",
        broker_id: int = 0,
        address: str = "h:1",
        *topics: TopicConfig,
        version: DataVersion | None = None,
        channel: RecordingChannel | None = None,
        cluster: str = "C",
        filters: list[str] | None = None,
        whole: bool = False,
    ) -> RegisterResult:
        return self.routes.register(
            cluster=cluster,
            broker_name=name,
            broker_id=broker_id,
            broker_address=address,
            ha_server_address=address + "0",
            channel=channel or RecordingChannel(),
            data_version=version or DataVersion(timestamp_ms=1, counter=1),
            topics=topics,
            filter_servers=filters,
            is_whole=whole,
        )

    def perms(self, topic: str) -> list[int]:
        route = self.routes.pick_up_topic_route_data(topic)
        return [queue.perm for queue in route.queue_datas] if route else []

    def addresses(self, topic: str) -> list[dict[int, str]]:
        route = self.routes.pick_up_topic_route_data(topic)
        return [dict(broker.broker_addrs) for broker in route.broker_datas] if route else []


def test_a_topic_route_contains_a_broker_from_its_registration_until_its_unregistration() -> None:
    names = Names()
    assert (
        names.register("a", 0, "h:1", TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=3, perm=6))
        == RegisterResult()
    )
    route = names.routes.pick_up_topic_route_data("T")
    assert route is not None
    assert msgspec.to_builtins(route) == {
        "brokerDatas": [{"brokerAddrs": {0: "h:1"}, "brokerName": "a", "cluster": "C"}],
        "filterServerTable": {},
        "orderTopicConf": None,
        "queueDatas": [{"brokerName": "a", "perm": 6, "readQueueNums": 2, "topicSysFlag": 0, "writeQueueNums": 3}],
    }
    assert msgspec.to_builtins(names.routes.cluster_info()) == {
        "brokerAddrTable": {"a": {"brokerAddrs": {0: "h:1"}, "brokerName": "a", "cluster": "C"}},
        "clusterAddrTable": {"C": ["a"]},
    }
    names.routes.unregister(cluster="C", broker_name="a", broker_id=0, broker_address="h:1")
    assert names.routes.pick_up_topic_route_data("T") is None
    assert names.routes.topics.topics() == []
    assert names.routes.cluster_info() == ClusterInfo()


def test_registering_a_slave_returns_the_address_of_its_master_and_adds_no_topics() -> None:
    names = Names()
    assert names.register("a", 1, "h:2", TopicConfig(topic_name="S")) == RegisterResult()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"))
    assert names.register("a", 1, "h:2") == RegisterResult("h:10", "h:1")
    assert names.addresses("T") == [{0: "h:1", 1: "h:2"}]
    assert names.routes.pick_up_topic_route_data("S") is None
    names.routes.unregister(cluster="C", broker_name="a", broker_id=0, broker_address="h:1")
    assert names.addresses("T") == [{1: "h:2"}]


def test_a_promoted_slave_is_routed_under_its_new_broker_id() -> None:
    names = Names()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"))
    names.register("a", 1, "h:2")
    names.register("a", 0, "h:2", TopicConfig(topic_name="U"))
    assert names.addresses("T") == [{0: "h:2"}]
    assert names.addresses("U") == [{0: "h:2"}]
    names.clock.advance_ms(60_000)
    names.register("a", 0, "h:2")
    names.clock.advance_ms(61_000)
    names.routes.remove_expired()
    assert names.addresses("T") == [{0: "h:2"}], "the old master's end does not take the new one away"


def test_registering_a_single_topic_keeps_the_other_topics_of_the_broker() -> None:
    names = Names()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    names.register("a", 0, "h:1", TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=8))
    route = names.routes.pick_up_topic_route_data("T")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 4
    assert names.routes.is_data_version_changed("h:1", DataVersion(timestamp_ms=1, counter=2))
    assert not names.routes.is_data_version_changed("h:1", DataVersion(timestamp_ms=1, counter=1))
    assert names.routes.is_data_version_changed("h:9", DataVersion())
    names.register("a", 0, "h:1", TopicConfig(topic_name="U"), version=DataVersion(timestamp_ms=1, counter=2))
    assert names.routes.topics.topics() == ["T", "U"]
    assert names.routes.data_version("h:1") == DataVersion(timestamp_ms=1, counter=2)


def test_a_registration_with_all_topics_replaces_the_former_topics_of_a_broker() -> None:
    """Tools that know only the broker leave no route of a deleted topic behind; RocketMQ's brokers send single topics, too."""
    names, channel = Names(), RecordingChannel()
    t, u = TopicConfig(topic_name="T"), TopicConfig(topic_name="U")
    names.register("a", 0, "h:1", t, u, channel=channel, whole=True)
    names.register("b", 0, "h:2", t, u)
    names.register("a", 0, "h:1", u, version=DataVersion(timestamp_ms=2, counter=2), channel=channel, whole=True)
    assert names.addresses("T") == [{0: "h:2"}]
    assert names.addresses("U") == [{0: "h:1"}, {0: "h:2"}]
    names.register("b", 0, "h:2", u, version=DataVersion(timestamp_ms=2, counter=2))
    assert names.addresses("T") == [{0: "h:2"}]


def test_a_registration_with_an_older_version_changes_no_topics() -> None:
    """It was on its way while a topic was deleted. A broker that starts anew, perhaps from an older copy, is taken as it is."""
    names, channel = Names(), RecordingChannel()
    u = TopicConfig(topic_name="U")
    names.register("a", 0, "h:1", u, version=DataVersion(timestamp_ms=7, counter=3), channel=channel, whole=True)
    old = DataVersion(timestamp_ms=6, counter=2)
    for whole in (True, False):
        names.register("a", 0, "h:1", TopicConfig(topic_name="T"), version=old, channel=channel, whole=whole)
        assert names.routes.topics.topics() == ["U"]
    assert names.routes.data_version("h:1") == DataVersion(timestamp_ms=7, counter=3)
    set_back = DataVersion(timestamp_ms=5, counter=4)
    names.register("a", 0, "h:1", TopicConfig(topic_name="V"), version=set_back, channel=channel, whole=True)
    assert names.routes.topics.topics() == ["V"], "the clock was set back, and the table has changed"
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"), version=old, channel=RecordingChannel(), whole=True)
    assert names.routes.topics.topics() == ["T"]


def test_the_topics_of_a_broker_are_always_replaced_if_it_registers_on_a_new_connection() -> None:
    """A machine that lost its power and starts again, with another permission in its file, has the same table of topics."""
    names = Names()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T", perm=6), whole=True)
    names.register("a", 0, "h:1", TopicConfig(topic_name="T", perm=4), whole=True)
    assert names.perms("T") == [4]


def test_a_broker_is_removed_only_if_the_connection_of_its_last_registration_closes() -> None:
    names = Names()
    old, new = RecordingChannel(), RecordingChannel()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"), channel=old)
    names.register("a", 0, "h:1", channel=new)
    assert names.routes.close_channel(old) == []
    assert names.addresses("T") == [{0: "h:1"}]
    assert names.routes.close_channel(new) == ["h:1"]
    assert names.addresses("T") == []


def test_a_silent_broker_is_removed_after_120_seconds() -> None:
    names = Names()
    silent, alive = RecordingChannel(), RecordingChannel()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"), channel=silent, filters=["f:1"])
    names.register("b", 0, "h:2", TopicConfig(topic_name="T"), channel=alive)
    names.clock.advance_ms(120_000)
    assert names.routes.remove_expired() == []
    names.routes.touch("h:2")
    names.routes.touch("h:9")
    names.clock.advance_ms(1)
    assert names.routes.remove_expired() == [silent]
    assert names.addresses("T") == [{0: "h:2"}]


def test_unregistering_a_broker_with_a_wrong_name_or_address_removes_nothing() -> None:
    names = Names()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"))
    names.routes.unregister(cluster="C", broker_name="b", broker_id=0, broker_address="h:1")
    names.routes.unregister(cluster="C", broker_name="a", broker_id=0, broker_address="h:2")
    assert names.addresses("T") == [{0: "h:1"}]


def test_filter_servers_of_a_broker_are_kept_if_its_next_registration_does_not_mention_them() -> None:
    names = Names()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"), filters=["f:1"])
    names.register("a", 0, "h:1")
    route = names.routes.pick_up_topic_route_data("T")
    assert route is not None
    assert route.filter_server_table == {"h:1": ["f:1"]}
    names.register("a", 0, "h:1", filters=[])
    route = names.routes.pick_up_topic_route_data("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_lists_of_topics_by_cluster_and_by_unit_flag_contain_the_matching_topics() -> None:
    names = Names()
    names.register(
        "a", 0, "h:1", TopicConfig(topic_name="T", topic_sys_flag=1), TopicConfig(topic_name="U", topic_sys_flag=2)
    )
    names.register("b", 0, "h:2", TopicConfig(topic_name="V", topic_sys_flag=3), cluster="D")
    assert names.routes.topics_by_cluster("C") == ["T", "U"]
    assert names.routes.topics_by_cluster("none") == []
    assert names.routes.topics.unit_topics() == ["T", "V"]
    assert names.routes.topics.unit_sub_topics() == ["U", "V"]
    assert names.routes.topics.unit_sub_ununit_topics() == ["U"]
    assert names.routes.system_topics() == (["C", "D", "a", "b"], "h:1")


def test_a_broker_that_changes_its_cluster_leaves_the_former_cluster() -> None:
    names = Names()
    names.register("a", 0, "h:1")
    names.register("a", 0, "h:1", cluster="D")
    assert names.routes.cluster_info().cluster_addr_table == {"D": ["a"]}


def test_the_write_permission_of_a_broker_is_wiped_from_its_topics_and_restored_on_request() -> None:
    names = Names()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T", perm=7), TopicConfig(topic_name="U"))
    names.register("b", 0, "h:2", TopicConfig(topic_name="T"))
    assert names.routes.topics.wipe_write_perm("a") == 2
    route = names.routes.pick_up_topic_route_data("T")
    assert route is not None
    assert [queue.perm for queue in route.queue_datas] == [5, 6]
    assert names.routes.topics.add_write_perm("a") == 2
    route = names.routes.pick_up_topic_route_data("T")
    assert route is not None
    assert [queue.perm for queue in route.queue_datas] == [6, 6]
    assert names.routes.topics.wipe_write_perm("none") == 0


def test_the_wiped_write_permission_of_a_broker_is_not_restored_by_a_new_registration() -> None:
    """A drained broker must get no messages again because somebody makes a topic."""
    names, channel = Names(), RecordingChannel()
    t, u = TopicConfig(topic_name="T"), TopicConfig(topic_name="U")
    names.register("a", 0, "h:1", t, channel=channel)
    names.register("b", 0, "h:2", t)
    names.routes.topics.wipe_write_perm("a")
    names.routes.topics.wipe_write_perm("unknown")
    names.register("a", 0, "h:1", t, u, version=DataVersion(timestamp_ms=2, counter=2), channel=channel, whole=True)
    assert (names.perms("T"), names.perms("U")) == ([4, 6], [4])
    names.routes.topics.add_write_perm("a")
    names.register("a", 0, "h:1", t, u, version=DataVersion(timestamp_ms=3, counter=3), channel=channel, whole=True)
    assert (names.perms("T"), names.perms("U")) == ([6, 6], [6])


@pytest.mark.parametrize("has_slave", [False, True])
def test_a_broker_whose_write_permission_was_wiped_is_writable_again_after_a_restart(has_slave: bool) -> None:
    """It was drained to be replaced; whether a slave was there meanwhile makes no difference."""
    names, channel = Names(), RecordingChannel()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"), channel=channel)
    if has_slave:
        names.register("a", 1, "h:3")
    names.routes.topics.wipe_write_perm("a")
    names.routes.close_channel(channel)
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"))
    assert names.perms("T") == [6]


def test_a_topic_is_deleted_in_all_clusters_or_in_the_named_cluster() -> None:
    names = Names()
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"))
    names.register("b", 0, "h:2", TopicConfig(topic_name="T"), cluster="D")
    names.routes.delete_topic("T", "C")
    assert names.addresses("T") == [{0: "h:2"}]
    names.routes.delete_topic("T")
    names.routes.delete_topic("T")
    assert names.routes.topics.topics() == []


def test_a_broker_is_no_longer_listed_under_its_old_name_after_it_registers_under_a_new_name() -> None:
    """Nobody would ever forget the other one: it is known by the address, which is alive."""
    names, connection = Names(), RecordingChannel()
    topic = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1, perm=6)
    names.register("a", 0, "h:1", topic, channel=connection)
    names.register("a", 1, "h:2", channel=connection)
    names.register("b", 0, "h:1", topic, channel=connection)
    assert names.routes.cluster_info().broker_addr_table.keys() == {"a", "b"}
    assert names.routes.cluster_info().broker_addr_table["a"].broker_addrs == {1: "h:2"}
    names.routes.close_channel(connection)
    assert names.routes.cluster_info() == ClusterInfo(broker_addr_table={}, cluster_addr_table={})
    assert names.routes.topics.size == 0


def test_the_number_of_brokers_is_bounded_per_connection_and_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone who may register makes new ones; those that are known go on, and a connection that ends makes room."""
    monkeypatch.setattr(route_manager, "REGISTERED_BROKERS_PER_CONNECTION_MAX", 3)
    monkeypatch.setattr(route_manager, "REGISTERED_BROKERS_MAX", 5)
    names, first, second = Names(), RecordingChannel(), RecordingChannel()
    for at in range(1, 4):
        names.register(f"a{at}", 0, f"h:{at}", channel=first)
    for at in range(100):  # names alone take no room
        names.register(f"x{at}", 0, "h:1", channel=first)
    with pytest.raises(RefusedError, match="3 brokers are registered by one connection; at most 3"):
        names.register("a4", 0, "h:4", channel=first)
    names.register("a4", 0, "h:4", channel=second)
    names.register("a5", 0, "h:5", channel=second)
    with pytest.raises(RefusedError, match="5 brokers are registered; at most 5") as full:
        names.register("a6", 0, "h:6", channel=second)
    assert full.value.reason == "register.too_many"
    names.register("a5", 0, "h:5", channel=second)
    assert names.routes.cluster_info().broker_addr_table.keys() == {"x99", "a2", "a3", "a4", "a5"}
    names.routes.close_channel(first)
    names.register("a6", 0, "h:6", channel=second)


def test_the_total_number_of_registered_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_manager, "REGISTERED_TOPICS_IN_ALL_MAX", 10)
    names, connection = Names(), RecordingChannel()
    some = [TopicConfig(topic_name=f"T{at}", read_queue_nums=1, write_queue_nums=1, perm=6) for at in range(6)]
    names.register("a", 0, "h:1", *some, channel=connection)
    assert names.routes.topics.size == 6
    with pytest.raises(RefusedError, match="6 topics of all brokers are registered, and 6 would come; at most 10"):
        names.register("b", 0, "h:2", *some)
    assert "b" not in names.routes.cluster_info().broker_addr_table
    names.register("b", 0, "h:2", *some[:4])
    names.register("a", 0, "h:1", *some, channel=connection)  # as every 30 s
    assert names.routes.topics.size == 10
    names.routes.delete_topic("T0")
    names.routes.close_channel(connection)
    assert names.routes.topics.size == 3


def test_the_name_server_remembers_unregistered_brokers_for_a_day() -> None:
    """Who reads all of a topic must hear that a part of it is away; not for ever, and not of a topic that was deleted."""
    names = Names()
    for name, address in (("a", "h:1"), ("b", "h:2")):
        names.register(name, 0, address, TopicConfig(topic_name="T"), TopicConfig(topic_name="U"))
    assert names.routes.left_brokers("T") == []
    names.routes.unregister(cluster="C", broker_name="b", broker_id=0, broker_address="h:2")
    assert (names.routes.left_brokers("T"), names.routes.left_brokers("V")) == (["b"], [])
    names.routes.delete_topic("U")
    assert names.routes.left_brokers("U") == []
    names.clock.advance_ms(1000 * (24 * 3600 + 1))
    assert names.routes.left_brokers("T") == []
    names.routes.unregister(cluster="C", broker_name="a", broker_id=0, broker_address="h:1")
    names.register("a", 0, "h:1", TopicConfig(topic_name="T"))
    assert names.routes.left_brokers("T") == []


def test_the_name_server_keeps_the_names_of_a_limited_number_of_unregistered_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anyone who may register could fill the memory; and a broker that was renamed has not left."""
    monkeypatch.setattr(route_manager, "LEFT_BROKERS_MAX", 3)
    monkeypatch.setattr(route_manager, "LEFT_TOPICS_MAX", 5)
    names = Names()

    def come_and_go(name: str, *topics: str) -> None:
        names.register(name, 0, "h:1", *(TopicConfig(topic_name=topic) for topic in topics))
        names.routes.unregister(cluster="C", broker_name=name, broker_id=0, broker_address="h:1")

    for number in range(5):
        come_and_go(f"b{number}", "T")
    assert names.routes.left_brokers("T") == ["b2", "b3", "b4"]
    come_and_go("wide", "T", "U", "V", "W")
    assert names.routes.left_brokers("T") == ["b4", "wide"]
    connection = RecordingChannel()
    names.register("old", 0, "h:9", TopicConfig(topic_name="X"), channel=connection)
    names.register("new", 0, "h:9", TopicConfig(topic_name="X"), channel=connection)
    assert names.routes.left_brokers("X") == []
