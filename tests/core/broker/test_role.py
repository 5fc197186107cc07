"""The role is a value that may change while the broker runs: whoever decided once at the start would be wrong after that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq import Message
from flintmq.client import AdminClient
from flintmq.core.broker.role import ASYNC_MASTER, MASTER_ID, SLAVE, SYNC_MASTER, Role
from flintmq.core.errors import RefusedError
from flintmq.core.log.log_chunk import LogChunk
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.testing.store import BY_HAND, BY_HAND_SYNCHRONOUS, message, opened
from flintmq.tests.support.roles import become_master, become_slave, on_loop


@pytest.mark.parametrize(
    ("kind", "broker_id", "takes_writes"), [(ASYNC_MASTER, 0, True), (SYNC_MASTER, 0, True), (SLAVE, 1, False)]
)
def test_synchronous_and_asynchronous_masters_accept_writes_and_slaves_refuse_writes(
    kind: str, broker_id: int, takes_writes: bool
) -> None:
    """Both masters do."""
    role = Role(kind, broker_id)
    assert (role.kind, role.broker_id, role.epoch, role.takes_writes) == (kind, broker_id, 0, takes_writes)


@pytest.mark.parametrize(
    ("kind", "broker_id", "epoch", "told"),
    [
        ("leader", 0, None, "one of async_master, sync_master, slave; found 'leader'"),
        (SLAVE, MASTER_ID, None, "broker_id is 0, which is the id of the master"),
        (SLAVE, 1, 7, "greater than the present epoch, 7; found 7"),
    ],
)
def test_a_role_change_is_refused_if_the_role_is_invalid_or_the_epoch_is_not_above_the_present_one(
    kind: str, broker_id: int, epoch: int | None, told: str
) -> None:
    """An order of an earlier epoch that comes late must not undo a later one."""
    role, changes = Role(), list[str]()
    role.change(SYNC_MASTER, MASTER_ID, 7)
    role.changed.subscribe(lambda: changes.append(role.kind))
    with pytest.raises(ValueError, match=told):
        role.change(kind, broker_id, epoch)
    assert (role.kind, role.broker_id, role.epoch, changes) == (SYNC_MASTER, MASTER_ID, 7, [])


def test_subscribers_to_role_changes_see_the_new_role_and_a_greater_epoch() -> None:
    """Each change has a greater epoch than the last."""
    role, seen = Role(), list[tuple[str, int, int, bool]]()
    role.changed.subscribe(lambda: seen.append((role.kind, role.broker_id, role.epoch, role.takes_writes)))
    role.change(SLAVE, 2)
    role.change(ASYNC_MASTER, 0, epoch=9)
    assert seen == [(SLAVE, 2, 1, False), (ASYNC_MASTER, 0, 9, True)]


def test_a_broker_refuses_writes_after_a_failed_role_change() -> None:
    """Some features have the new role then, and others the former one: nothing may be acknowledged."""
    role = Role(SLAVE, 1)

    def fail() -> None:
        raise OSError("the disk")

    role.changed.subscribe(fail)
    with pytest.raises(OSError, match="the disk"):
        role.change(ASYNC_MASTER, MASTER_ID)
    assert not role.takes_writes
    role.changed.unsubscribe(fail)
    role.change(ASYNC_MASTER, MASTER_ID)
    assert role.takes_writes


def test_a_broker_feature_for_masters_stops_on_demotion_to_slave_and_starts_on_promotion_to_master() -> None:
    """It starts and stops once for each time that the condition begins to hold, however often the role changes meanwhile."""
    role, told = Role(), list[str]()

    def start() -> Callable[[], None]:
        told.append("start")
        return lambda: told.append("stop")

    role.run_while(lambda: role.takes_writes, start)
    assert told == ["start"]
    role.change(SYNC_MASTER, MASTER_ID)
    assert told == ["start"]
    role.change(SLAVE, 1)
    role.change(SLAVE, 2)
    assert told == ["start", "stop"]
    role.change(ASYNC_MASTER, MASTER_ID)
    assert told == ["start", "stop", "start"]


def test_a_broker_feature_for_slaves_does_not_start_on_a_master() -> None:
    role, told = Role(), list[str]()
    role.run_while(lambda: role.kind == SLAVE, lambda: told.append("start") or (lambda: told.append("stop")))
    assert told == []
    role.change(SLAVE, 1)
    role.change(ASYNC_MASTER, MASTER_ID)
    assert told == ["start", "stop"]


def test_a_broker_refuses_messages_while_it_is_a_slave(tmp_path: Path) -> None:
    """Its own program's, too; the messages from before and after follow one another."""
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.put([Message("T", b"1")])[0].queue_offset == 0
        become_slave(broker)
        with pytest.raises(RefusedError) as refused:
            broker.put([Message("T", b"2")])
        assert (refused.value.reason, refused.value.key) == ("store.slave", "broker.role (brokerRole)")
        with pytest.raises(RefusedError):
            on_loop(broker, lambda state: state.sink.put([message("T")]))
        become_master(broker)
        broker.put([Message("T", b"3")])
        assert sorted(one.body for one in broker.messages("T")) == [b"1", b"3"]


def test_a_promoted_slave_assigns_queue_offsets_after_those_of_its_master(tmp_path: Path) -> None:
    """Those whose bytes it has copied and not yet made visible count: two messages of one offset would hide one of them."""
    with opened(tmp_path / "master", strategy=BY_HAND) as master:
        master.put([message("T"), message("T"), message("Gone")])
        master.delete_topic("Gone")
        master.put([message("Gone")])
        copied = bytes(master.commit_log.slice(0, master.watermarks.wrote) or b"")
        role = Role(SLAVE, 1)
        slave_role = {"takes_writes": lambda: role.takes_writes, "strategy": BY_HAND_SYNCHRONOUS}
        with opened(tmp_path / "slave", **slave_role) as slave:
            slave.writer.append_raw([LogChunk(0, copied, master.watermarks.tail[1], 5, len(copied))])
            assert slave.watermarks.dispatched == 0
            role.change(ASYNC_MASTER, MASTER_ID)
            slave.number_messages()
            stored = slave.put([message("T"), message("Gone"), message("New")]).records
            assert [one.queue_offset for one in stored] == [2, 1, 0]


def test_the_broker_configuration_and_the_routes_sent_to_clients_show_the_role_after_a_role_change(
    tmp_path: Path,
) -> None:
    """By request 26, and by the routes of a broker that is its own name server; the configuration has the former role."""

    async def asked(broker: EmbeddedBroker) -> tuple[set[str], dict[int, str]]:
        async with RemotingClient() as client, AdminClient(broker.broker) as admin:
            answer = await client.invoke(broker.address, request(RequestCode.GET_BROKER_CONFIG), 5_000)
            told = {line for line in answer.body.decode().splitlines() if line.startswith(("brokerRole=", "brokerId="))}
            (found,) = (await admin.cluster_info()).broker_addr_table.values()
            return told, found.broker_addrs

    with EmbeddedBroker(tmp_path) as broker:
        address = broker.address
        assert asyncio.run(asked(broker)) == ({"brokerRole=ASYNC_MASTER", "brokerId=0"}, {0: address})
        become_slave(broker)
        assert asyncio.run(asked(broker)) == ({"brokerRole=SLAVE", "brokerId=1"}, {1: address})
