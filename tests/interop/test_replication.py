"""Either broker follows either: FlintMQ and the real broker as master and as slave, with logs that are equal byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import msgspec
import pytest
from bare_wire import Wire
from replicas import QUICK, assert_same_log, assert_same_queues, eventually, fill_log, plain_bodies

import flintmq
from flintmq.config import load_config
from flintmq.remoting.wire.codes import RequestCode
from flintmq.tests.support.ports import free_ports

from .conftest import Peer

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(400)]

SIZES = ("mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=20000", "maxHashSlotNum=1000", "maxIndexNum=4000")
CALM = ("slaveReadEnable=true", "transactionTimeOut=600000", "transactionCheckInterval=600000")


@attrs.frozen
class Ends:
    """The brokers of one pairing, each on ports of its own."""

    peer: Peer
    work: Path
    namesrv: str
    master_port: int
    slave_port: int

    @contextmanager
    def run(self, kind: str, role: str) -> Iterator[str]:
        """A broker of a kind in a role; gives its address."""
        store = self.work / role
        port = self.master_port if role == "master" else self.slave_port
        if kind == "java":
            java_role = "ASYNC_MASTER" if role == "master" else "SLAVE"
            with self.peer.broker(store, *SIZES, *CALM, role=java_role, port=port):
                yield f"127.0.0.1:{port}"
            return
        named = [f"namesrv.addresses={self.namesrv}", f"listen.port={port}", f"store.path={store}"]
        roles = ["broker.role=slave", "broker.id=1"] if role == "slave" else ["ha.enable=true"]
        # The real broker says that it lives every 5 s.
        other = ("ha.secret", "ha.send_heartbeat", "ha.housekeeping", "store.commit_log")
        plain = [setting for setting in QUICK if not setting.startswith(other)]
        config = load_config(None, [*plain, *SIZES, *CALM, *named, *roles, "ha.compat=rocketmq"], {})
        with flintmq.Broker(config) as broker:
            yield broker.address


def log_end(address: str) -> int:
    """Return the end of a broker's log, as the broker reports it, in bytes."""
    with connected(address) as wire:
        answer = wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        if answer.code != 0:
            return -1  # the real broker fails in its own statistics until it has sampled them once
        return int(msgspec.json.decode(answer.body)["table"]["commitLogMaxOffset"])


def messages_put(address: str) -> int:
    """How many messages a broker has put, as it says itself."""
    with connected(address) as wire:
        return int(
            msgspec.json.decode(wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]["putMessageTimesTotal"]
        )


@contextmanager
def connected(address: str) -> Iterator[Wire]:
    wire = Wire(address)
    try:
        yield wire
    finally:
        wire.close()


def caught_up(master: str, slave: str) -> None:
    """Twice, so that nothing is under way any more: delayed messages are delivered meanwhile."""
    for _ in range(2):
        eventually(lambda: log_end(master) == log_end(slave) > 0, "the slave has caught up", 60)


def readable(slave: str, bodies: list[bytes]) -> bool:
    """Whether a slave gives out every message."""
    with suppress(EOFError, ConnectionError), connected(slave) as wire:
        return set(plain_bodies(wire)) >= set(bodies)
    return False


@pytest.mark.parametrize(
    ("master_kind", "slave_kind"), [("flint", "java"), ("java", "flint"), ("flint", "flint"), ("java", "java")]
)
def test_a_slaves_log_equals_its_masters_log_for_every_pairing_of_java_and_flintmq_brokers(
    peer: Peer, tmp_path: Path, master_kind: str, slave_kind: str
) -> None:
    """A cluster is moved from one broker to the other a node at a time: each must follow the other's log, whatever is in it."""
    master_port, slave_port = free_ports(2)
    with flintmq.NameServer(load_config(None, [f"nameserver.port={peer.namesrv_port}"], {})):
        ends = Ends(peer, tmp_path, peer.namesrv, master_port, slave_port)
        with ends.run(master_kind, "master") as master:
            with connected(master) as wire:
                bodies = fill_log(wire, 10, "before")  # within one file: an empty slave is given the last one only
            with ends.run(slave_kind, "slave") as slave:
                caught_up(master, slave)
                with connected(master) as wire:
                    bodies += fill_log(wire, 60, "beside")
                caught_up(master, slave)
                eventually(
                    lambda: messages_put(slave) == messages_put(master) > 60, "the slave counts what it copies", 60
                )
            with connected(master) as wire:
                bodies += fill_log(wire, 60, "without")
            with ends.run(slave_kind, "slave") as slave:
                caught_up(master, slave)
                eventually(lambda: readable(slave, bodies), "the slave has the topics, too", 60)
                log_ends = log_end(slave)
    assert log_ends > 3 * 65536
    assert_same_log(tmp_path / "master", tmp_path / "slave")
    assert_same_queues(tmp_path / "master", tmp_path / "slave")


@pytest.mark.parametrize(("master_kind", "slave_kind"), [("flint", "java"), ("java", "flint")])
def test_consumers_read_from_a_slave_while_its_master_is_down(
    peer: Peer, tmp_path: Path, master_kind: str, slave_kind: str
) -> None:
    """That is what a slave is for."""
    master_port, slave_port = free_ports(2)
    with flintmq.NameServer(load_config(None, [f"nameserver.port={peer.namesrv_port}"], {})):
        ends = Ends(peer, tmp_path, peer.namesrv, master_port, slave_port)
        with ends.run(slave_kind, "slave") as slave:
            with ends.run(master_kind, "master") as master:
                with connected(master) as wire:
                    bodies = fill_log(wire, 10, "first")
                caught_up(master, slave)  # it begins with the last file that there is when it comes
                with connected(master) as wire:
                    bodies += fill_log(wire, 40, "then")
                caught_up(master, slave)
                eventually(lambda: readable(slave, bodies), "the slave has the topics, too", 90)
            assert readable(slave, bodies)


def test_a_flintmq_slave_deletes_a_topic_deleted_at_its_java_master(peer: Peer, tmp_path: Path) -> None:
    """Its log does not say that a topic was deleted: only its table of topics does."""
    master_port, slave_port = free_ports(2)
    with flintmq.NameServer(load_config(None, [f"nameserver.port={peer.namesrv_port}"], {})):
        ends = Ends(peer, tmp_path, peer.namesrv, master_port, slave_port)
        with ends.run("java", "master") as master, ends.run("flint", "slave") as slave:
            folders = tmp_path / "slave" / "consumequeue"
            with connected(master) as wire:
                for topic in ("Kept", "Gone"):
                    assert wire.send(topic, b"x").code == 0
                eventually(lambda: (folders / "Gone").exists(), "the slave has the topic", 60)
                assert wire.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == 0
            eventually(lambda: not (folders / "Gone").exists(), "the slave has forgotten the topic", 60)
            assert wire_end(slave, "Kept") == 1


def wire_end(address: str, topic: str) -> int:
    """Return the end of a topic's first queue at a broker, as a queue offset."""
    with connected(address) as wire:
        return int(wire.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}).ext_fields["offset"])
