"""A cluster in one process behaves as one of several machines: topics spread, slaves copy, and each member fails by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flintmq
from flintmq.client.sync import Message, Producer, PullConsumer
from flintmq.core.errors import FlintError
from flintmq.remoting.client.send_result import SendStatus
from flintmq.testing.clock import VirtualClock
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.testing.embedded import EmbeddedBroker

SYNC_MASTER = ("flush.strategy=group_commit", "broker.role=sync_master", "ha.slave_timeout_ms=300ms")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path, with_faults=True) as cluster:
        yield cluster


def until(condition: Callable[[], bool]) -> None:
    """Wait, in real time, as replication goes on in it."""
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def bodies(broker: EmbeddedBroker, topic: str = "T") -> set[bytes]:
    return {message.body for message in broker.messages(topic)}


def test_a_producer_sends_messages_of_a_topic_to_queues_on_every_master(cluster: EmbeddedCluster) -> None:
    """Clients get a route with both, and what is consumed is what was sent."""
    cluster.create_topic("T", 2)
    with Producer("g", cluster.name_server_address) as producer:
        results = [producer.send(Message("T", b"%d" % number)) for number in range(8)]
    assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
    sent = {b"%d" % number for number in range(8)}
    assert bodies(cluster["broker-a"]) | bodies(cluster["broker-b"]) == sent
    assert {message.body for message in cluster.messages("T")} == sent
    with PullConsumer("c", cluster.name_server_address) as consumer:
        consumer.assign("T", consume_from="CONSUME_FROM_FIRST_OFFSET")
        found: set[bytes] = set()
        while found != sent:
            found |= {message.body for message in consumer.poll()}


def test_a_slave_copies_the_messages_that_it_missed_while_its_connection_to_the_master_was_cut(
    cluster: EmbeddedCluster,
) -> None:
    """The cut affects only the link of the slave, and clients still reach the master."""
    cluster.create_topic("T", 1)
    master, (slave,) = cluster["broker-a"], cluster.slaves("broker-a")
    master.put([flintmq.Message("T", b"before")])
    until(lambda: bodies(slave) == {b"before"})
    with slave.faults.cut_master():
        master.put([flintmq.Message("T", b"meanwhile")])
        master.wait_for_messages("T", 2)
        assert bodies(slave) == {b"before"}
    until(lambda: bodies(slave) == {b"before", b"meanwhile"})


def test_a_send_status_reports_missing_replication_if_the_slave_of_a_sync_master_is_disconnected(
    tmp_path: Path,
) -> None:
    """The message is stored, and the sender knows how durable it is not."""
    with EmbeddedCluster(tmp_path, layout={"broker-a": 1}, settings=SYNC_MASTER, with_faults=True) as cluster:
        cluster.create_topic("T", 1)
        (slave,) = cluster.slaves("broker-a")
        with Producer("g", cluster.name_server_address) as producer:
            until(lambda: producer.send(Message("T", b"both")).status is SendStatus.SEND_OK)
            with slave.faults.cut_master(silently=True):
                status = producer.send(Message("T", b"one")).status
                assert status in {SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE}
            until(lambda: producer.send(Message("T", b"both again")).status is SendStatus.SEND_OK)
            until(lambda: bodies(slave) == {b"both", b"one", b"both again"})


def test_a_producer_sends_to_the_remaining_master_while_a_master_is_down(cluster: EmbeddedCluster) -> None:
    """A producer turns to the master that is left, and its topic is whole again when the other is back."""
    cluster.create_topic("T", 1)
    crashed = cluster["broker-b"]
    with Producer("g", cluster.name_server_address, retries=3) as producer:
        producer.send(Message("T", b"warm"))
        crashed.stop()
        assert not crashed.runs
        sent = [producer.send(Message("T", b"%d" % number), timeout_ms=10_000) for number in range(4)]
        assert {result.queue.broker_name for result in sent} == {"broker-a"}
        assert {message.body for message in cluster.messages("T")} >= {b"0", b"1", b"2", b"3"}
        crashed.start()
        crashed.faults.crash()
        cluster.create_topic("U", 1)
        assert crashed.messages("U") == []


def test_all_brokers_of_a_cluster_share_the_virtual_clock(tmp_path: Path) -> None:
    """Two hours pass on every broker, and a delayed message comes on each."""
    clock = VirtualClock()
    with EmbeddedCluster(tmp_path, layout={"broker-a": 0, "broker-b": 0}, clock=clock) as cluster:
        cluster.create_topic("T", 1)
        for master in cluster:
            master.put([flintmq.Message("T", b"later", delay_level=18)])
        clock.advance("1h")
        assert cluster.messages("T") == []
        clock.advance("1h")
        assert [message.body for message in cluster.messages("T")] == [b"later", b"later"]


def test_delayed_messages_reach_slaves_and_restarted_brokers_after_virtual_time_advances(tmp_path: Path) -> None:
    """A slave copies what fell due on its master; a master that was down then delivers when it is back."""
    clock = VirtualClock()
    with EmbeddedCluster(tmp_path, clock=clock, with_faults=True) as cluster:
        cluster.create_topic("T", 1)
        up, down, (slave,) = cluster["broker-a"], cluster["broker-b"], cluster.slaves("broker-a")
        for master in cluster:
            master.put([flintmq.Message("T", b"level", delay_level=18)])
            master.put([flintmq.Message("T", b"timer", properties={"TIMER_DELAY_MS": "5400000"})])
        down.stop()
        clock.advance("2h")
        assert [message.body for message in up.messages("T")] == [b"timer", b"level"]
        until(lambda: bodies(slave) == {b"timer", b"level"})
        down.start()
        clock.advance("1s")
        assert bodies(down) == {b"timer", b"level"}


def test_an_embedded_cluster_stops_all_its_brokers_if_one_of_them_fails_to_start(tmp_path: Path) -> None:
    """The failed test must leave no listening socket behind."""
    cluster = EmbeddedCluster(tmp_path, settings=("flush.strategy=no-such",))
    with pytest.raises(FlintError, match="no-such"), cluster:
        raise AssertionError("unreachable")
    assert not any(master.runs for master in cluster)


def test_cutting_the_replication_of_a_broker_that_has_no_master_is_an_error(cluster: EmbeddedCluster) -> None:
    """The mistake in the test must be named, and not pass as a fault without effect."""
    with pytest.raises(ValueError, match="no master"):
        cluster["broker-b"].faults.cut_master()
