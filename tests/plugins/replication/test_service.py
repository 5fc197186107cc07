"""Replication follows the role of a broker that runs: the ends change, and the log stays one log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq import Message
from flintmq.config import ConfigError
from flintmq.core.broker.role import SYNC_MASTER
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.log.epochs import MASTER
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.replication.service import ReplicationService
from flintmq.remoting.server.descriptors import bind
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.support.roles import become_master, become_slave, on_loop

SECRET = "ha.secret=0123456789abcdef"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """A master and its slave, both under one name server."""
    with EmbeddedCluster(tmp_path, layout={"broker-a": 1}) as made:
        yield made


def settled(broker: EmbeddedBroker) -> None:
    """Wait until the change of the role is complete."""

    async def settle() -> None:
        await broker.broker.state.service(ReplicationService).settle()

    broker.broker.call(settle)


def end_of(broker: EmbeddedBroker) -> int:
    """Return the end of a broker's log, in bytes."""
    return on_loop(broker, lambda state: state.store.watermarks.wrote)


def bodies(broker: EmbeddedBroker, count: int) -> list[bytes]:
    """What consumers can see once there are so many messages, in the order of the bodies."""
    return sorted(message.body for message in broker.wait_for_messages("T", count, timeout_s=30))


def test_no_message_is_lost_or_repeated_if_master_and_slave_swap_their_roles(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """Each finds the other by the name server; the queue goes on where the other one stopped."""
    ends, wanted = [cluster["broker-a"], *cluster.slaves("broker-a")], list[bytes]()
    ends[0].create_topic("T", 1)
    for turn in range(4):
        master, slave = ends
        for number in range(5):
            wanted.append(b"%d-%d" % (turn, number))
            (put,) = master.put([Message("T", wanted[-1])])
            assert put.queue_offset == len(wanted) - 1
        assert bodies(slave, len(wanted)) == bodies(master, len(wanted)) == wanted
        assert on_loop(master, lambda state: state.store.epochs.epochs.current.cause) == MASTER
        become_slave(master)
        with pytest.raises(RefusedError, match="slave"):
            master.put([Message("T", b"nobody's")])
        become_master(slave)
        settled(master)
        settled(slave)
        ends.reverse()
    assert end_of(ends[0]) == end_of(ends[1])


def test_a_promoted_slave_copies_nothing_more_from_its_former_master(cluster: EmbeddedCluster) -> None:
    """Two masters append for themselves: bytes of the one in the log of the other would be in the middle of its own."""
    master, (slave,) = cluster["broker-a"], cluster.slaves("broker-a")
    master.put([Message("T", b"1")])
    assert bodies(slave, 1) == [b"1"]
    become_master(slave)
    end_bytes = end_of(slave)
    master.put([Message("T", b"of the old master")])
    settled(slave)
    assert end_of(slave) == end_bytes
    assert slave.put([Message("T", b"2")])[0].commit_log_offset_bytes == end_bytes
    assert bodies(slave, 2) == [b"1", b"2"]


def test_a_broker_without_slaves_refuses_sends_only_while_its_role_is_sync_master(tmp_path: Path) -> None:
    """Without a slave it answers that there is none, and shows nothing; as an async master it shows all."""
    with EmbeddedBroker(tmp_path, settings=(SECRET, "ha.enable=true", "listen.ha_port=0")) as broker:
        broker.put([Message("T", b"1")])
        for turn in range(2):
            become_master(broker, SYNC_MASTER)
            settled(broker)
            with pytest.raises(RefusedError, match="slave"):
                broker.put([Message("T", b"2")])
            assert len(broker.messages("T")) == 2 * turn + 1
            become_master(broker)
            settled(broker)
            broker.put([Message("T", b"1")])
            assert len(broker.messages("T")) == 2 * turn + 3
        store = broker.broker.state.store
        subscribed = len(store.appended._subscribers), len(store.progressed._subscribers)
        become_slave(broker)
        become_master(broker)
        settled(broker)
        assert (len(store.appended._subscribers), len(store.progressed._subscribers)) == subscribed


def test_a_broker_keeps_its_replication_port_if_its_role_is_changed_and_changed_back(tmp_path: Path) -> None:
    """The former end gives the port back before the new one takes it, and the last one at the stop."""
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    with EmbeddedBroker(tmp_path, settings=(SECRET, "ha.enable=true", f"listen.ha_port={port}")) as broker:
        service = broker.broker.state.service(ReplicationService)
        for _ in range(3):
            become_slave(broker)
            become_master(broker)
        settled(broker)
        assert (service.health(), broker.broker.ha_port, service.ha_port) == ("", port, port)
    with bind("127.0.0.1", port):
        pass


def test_a_new_master_raises_an_alarm_if_its_replication_port_is_in_use(tmp_path: Path) -> None:
    """The new master serves its clients, and no slave can follow: somebody must look."""
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        settings = (SECRET, f"listen.ha_port={port}", "broker.role=slave", "broker.id=1", "ha.enable=true")
        with EmbeddedBroker(tmp_path, settings=settings) as broker:
            become_master(broker)
            settled(broker)
            broker.put([Message("T", b"1")])
            (alarm,) = (
                one for one in on_loop(broker, lambda state: state.alarms.current()) if one.id == "service.trouble"
            )
            assert (alarm.subject, str(port) in alarm.message) == ("replication", True)
            become_slave(broker)
            settled(broker)
            assert "service.trouble" not in {one.id for one in on_loop(broker, lambda state: state.alarms.current())}


def test_a_new_master_that_cannot_begin_an_epoch_refuses_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two masters would share an epoch otherwise, and no slave could tell their logs apart. The next change may succeed."""
    with EmbeddedBroker(tmp_path, settings=(SECRET, "ha.enable=true")) as broker:
        become_slave(broker)
        settled(broker)

        def refuse(_store: MessageStore) -> None:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(MessageStore, "become_master", refuse)
            with pytest.raises(StoreError, match="the disk is full"):
                become_master(broker)
        with pytest.raises(RefusedError):
            broker.put([Message("T", b"1")])
        become_slave(broker)
        become_master(broker)
        settled(broker)
        broker.put([Message("T", b"2")])


def test_a_broker_without_replication_has_no_replication_service(tmp_path: Path) -> None:
    """Its role changes all the same, but not to one that promises what only a service keeps."""
    with EmbeddedBroker(tmp_path) as broker:
        become_slave(broker)
        with pytest.raises(LookupError):
            broker.broker.state.service(ReplicationService)
        become_master(broker)
        broker.put([Message("T", b"1")])
        with pytest.raises(ConfigError, match=r"ha\.enable"):
            become_master(broker, SYNC_MASTER)
        with pytest.raises(RefusedError):
            broker.put([Message("T", b"2")])
