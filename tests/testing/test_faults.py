"""Faults that are scripted strike, what a broker promises holds under them, and what it does not promise is really lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import flintmq
from flintmq.client.sync import Message, Producer, RemotingError, RemotingTimeoutError
from flintmq.core.errors import RefusedError
from flintmq.remoting.client.send_result import SendStatus
from flintmq.remoting.wire.codes import RequestCode
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.testing.fault import Fault
from flintmq.testing.faults import Faults

SYNC = ("flush.strategy=group_commit",)
ASYNC = ("flush.strategy=flush_real_time", "flush.flush_real_time.interval_ms=10m")
SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, settings=SYNC, with_faults=True) as broker:
        broker.create_topic("T", 1)
        yield broker


@pytest.fixture
def faults(broker: EmbeddedBroker) -> Faults:
    return broker.faults


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer("g", broker.name_server_address, retries=0) as producer:
        yield producer


def bodies(broker: EmbeddedBroker) -> list[bytes]:
    return [message.body for message in broker.messages("T")]


def send_until_stored(producer: Producer, body: bytes) -> None:
    """Send as a program does that must not lose anything: again, until it is acknowledged."""
    deadline_s = time.monotonic() + 20
    while True:
        try:
            producer.send(Message("T", body), timeout_ms=2_000)
        except (RemotingError, RefusedError):
            assert time.monotonic() < deadline_s
        else:
            return


@pytest.mark.parametrize("tear", [False, True])
def test_acknowledged_messages_survive_crashes(
    broker: EmbeddedBroker, faults: Faults, producer: Producer, tear: bool
) -> None:
    """The strategy is synchronous, and the producer finds the broker at the same address after each crash."""
    address = broker.address
    for number in range(6):
        send_until_stored(producer, b"%d" % number)
        if number % 2:
            faults.crash(tear=tear)
            assert broker.address == address
    assert bodies(broker) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize(("tear", "left"), [(False, [b"synced"]), (True, [b"synced", b"first"])])
def test_unsynced_messages_are_lost_in_a_crash(tmp_path: Path, tear: bool, left: list[bytes]) -> None:
    """A simulated crash that lost nothing would be no more than a restart."""
    with EmbeddedBroker(tmp_path, settings=ASYNC, with_faults=True) as broker:
        broker.create_topic("T", 1)
        broker.put([flintmq.Message("T", b"synced")])
        broker.faults.restart()
        with broker.faults.slow_sync(60, within="", for_ever=True):
            broker.put([flintmq.Message("T", b"first")])
            broker.put([flintmq.Message("T", b"second")])
            broker.wait_for_messages("T", 3)
            broker.faults.crash(tear=tear)
        assert bodies(broker) == left
        broker.put([flintmq.Message("T", b"third")])
        assert [message.body for message in broker.wait_for_messages("T", len(left) + 1)] == [*left, b"third"]


def test_a_message_is_not_acknowledged_after_a_failed_sync(
    broker: EmbeddedBroker, faults: Faults, producer: Producer
) -> None:
    """The store is fenced with it, for good; a restart opens it again."""
    producer.send(Message("T", b"before"))
    fault = faults.fail_sync()
    status = None
    with pytest.raises((RefusedError, RemotingError)):
        status = producer.send(Message("T", b"lost"), timeout_ms=1_000).status
    assert status is None
    fault.wait()
    assert fault.hits == 1
    with pytest.raises((RefusedError, RemotingError)):
        producer.send(Message("T", b"refused"), timeout_ms=1_000)
    faults.crash()
    assert bodies(broker) == [b"before"]
    send_until_stored(producer, b"after")
    assert bodies(broker) == [b"before", b"after"]


def test_a_fault_scripted_for_the_nth_sync_occurs_at_that_sync(
    broker: EmbeddedBroker, faults: Faults, producer: Producer
) -> None:
    """Counted from when it was scripted; one that is undone before does not strike."""
    producer.send(Message("T", b"0"))
    never = faults.fail_sync(2)
    third = faults.fail_sync(3)
    producer.send(Message("T", b"1"))
    never.undo()
    producer.send(Message("T", b"2"))
    assert third.hits == 0
    with pytest.raises((RefusedError, RemotingError)):
        producer.send(Message("T", b"3"), timeout_ms=1_000)
    assert (never.hits, third.hits) == (0, 1)


def test_a_message_is_not_acknowledged_or_readable_until_its_slow_sync_ends(
    broker: EmbeddedBroker, faults: Faults, producer: Producer
) -> None:
    """When the fault is undone, the sync ends at once."""
    fault = faults.slow_sync(60)
    with pytest.raises(RemotingTimeoutError):
        producer.send(Message("T", b"late"), timeout_ms=100)
    fault.wait()
    assert bodies(broker) == [], "nobody reads what a crash could take back"
    fault.undo()
    assert [message.body for message in broker.wait_for_messages("T")] == [b"late"]


def test_sends_are_refused_only_while_the_disk_is_full(
    broker: EmbeddedBroker, faults: Faults, producer: Producer
) -> None:
    """The refusal comes before anything is promised, and ends with the fault."""
    producer.send(Message("T", b"before"))
    large = Message("T", bytes(3 * 1024 * 1024))
    with faults.fill_disk() as full:
        refused = 0
        for _ in range(4):  # the files have 8 MiB: one of these needs another one
            try:
                producer.send(large)
            except RefusedError:
                refused += 1
        assert refused
        assert full.hits
    send_until_stored(producer, b"after")
    assert bodies(broker)[-1] == b"after"


def test_a_retry_after_a_lost_answer_stores_a_message_twice(broker: EmbeddedBroker, faults: Faults) -> None:
    """The reason why consumers must be idempotent, shown."""
    with Producer("g", broker.name_server_address, retries=1) as producer, faults.drop_answer(SEND) as fault:
        with pytest.raises(RemotingTimeoutError):
            producer.send(Message("T", b"once"), timeout_ms=300)
        assert fault.hits == 1
        disconnected = faults.disconnect(SEND)
        assert producer.send(Message("T", b"twice"), timeout_ms=5_000).status is SendStatus.SEND_OK
        assert disconnected is not None
        assert disconnected.hits == 1
    assert bodies(broker) == [b"once", b"twice", b"twice"]


def test_a_client_receives_an_answer_that_a_scripted_fault_delays(faults: Faults, producer: Producer) -> None:
    """Only the scripted answer is delayed, and its content is unchanged."""
    fault = faults.delay_answer(SEND, 0.2, nth=2)
    producer.send(Message("T", b"at once"), timeout_ms=3_000)
    assert fault.hits == 0
    began_s = time.monotonic()
    producer.send(Message("T", b"late"), timeout_ms=3_000)
    assert time.monotonic() - began_s >= 0.2
    assert fault.hits == 1


@pytest.mark.parametrize("silently", [False, True])
def test_clients_cannot_reach_a_broker_until_its_network_cut_is_undone(
    broker: EmbeddedBroker, faults: Faults, producer: Producer, silently: bool
) -> None:
    """A server that has gone is noticed at once; a split network by the client's own timeouts only."""
    producer.send(Message("T", b"before"))
    with faults.cut(silently=silently):
        began_s = time.monotonic()
        with pytest.raises(RemotingTimeoutError if silently else RemotingError):
            producer.send(Message("T", b"cut off"), timeout_ms=300)
        assert (time.monotonic() - began_s >= 0.3) is silently
        broker.put([flintmq.Message("T", b"inside")])
    send_until_stored(producer, b"after")
    found = bodies(broker)
    assert found[:2] == [b"before", b"inside"]
    assert found[-1] == b"after"


def test_a_broker_keeps_its_address_and_its_messages_after_a_restart(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    """A deployment restarts brokers in this way."""
    address = broker.address
    producer.send(Message("T", b"before"))
    broker.stop()
    assert not broker.runs
    broker.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        broker.messages("T")
    with pytest.raises((RemotingError, RefusedError)):
        producer.send(Message("T", b"nobody is there"), timeout_ms=200)
    broker.start()
    broker.start()
    assert broker.address == address
    send_until_stored(producer, b"after")
    assert bodies(broker) == [b"before", b"after"]


@pytest.mark.parametrize("strategy", ["group_commit", "flush_real_time", "commit_real_time"])
def test_delayed_messages_are_delivered_on_time_despite_a_crash_or_a_network_cut_or_a_full_disk(
    tmp_path: Path, strategy: str
) -> None:
    """Faults and the clock in one test: advance() comes back whatever is broken, and what was synced comes at its time."""
    clock = VirtualClock()
    settings = [f"flush.strategy={strategy}"]
    with EmbeddedBroker(tmp_path, settings=settings, clock=clock, with_faults=True) as broker:
        faults = broker.faults
        due_ms = clock.now_ms() + 7_200_000
        broker.put([flintmq.Message("T", b"level", delay_level=18)])
        broker.put([flintmq.Message("T", b"timer", properties={"TIMER_DELAY_MS": "7200000"})])
        clock.advance("1h")
        faults.crash()
        with faults.cut(), faults.fill_disk():
            clock.advance("30m")
        broker.stop()
        clock.advance("29m")
        broker.start()
        assert broker.messages("T") == []
        clock.advance("1m")
        found = broker.messages("T")
        assert {message.body for message in found} == {b"level", b"timer"}
        assert all(0 <= message.store_timestamp_ms - due_ms <= 1_000 for message in found)
        fault = faults.fail_sync()
        with contextlib.suppress(RefusedError):
            broker.put([flintmq.Message("T", b"fences the store")])
        fault.wait()
        clock.advance("1h")


def test_fault_injection_raises_runtime_error_if_it_is_not_enabled_for_the_broker(
    tmp_path: Path,
) -> None:
    """A broker that was never entered must say so as well."""
    plain = EmbeddedBroker(tmp_path)
    for what in ("broker", "name_server", "faults"):
        with pytest.raises(RuntimeError):
            getattr(plain, what)
    with plain, pytest.raises(RuntimeError, match="with_faults=True"):
        _ = plain.faults


def test_concurrent_sends_store_every_message_unchanged_while_no_fault_is_scripted(broker: EmbeddedBroker) -> None:
    """The way that can be cut is one that hundreds of sends and large bodies pass whole while nothing is scripted."""

    async def work() -> None:
        async with flintmq.Producer("g", broker.name_server_address) as producer:
            sent = [flintmq.Message("T", bytes([number % 256]) * (number * 997 % 200_000)) for number in range(200)]
            results = await asyncio.gather(*(producer.send(message, timeout_ms=20_000) for message in sent))
        by_place = {message.queue_offset: message.body for message in broker.messages("T")}
        assert [by_place[result.queue_offset] for result in results] == [message.body for message in sent]

    asyncio.run(work())


def test_a_scripted_fault_occurs_only_at_the_nth_call_or_at_every_call_from_the_nth_on() -> None:
    """All faults share this counting."""
    once, from_second_on = Fault(nth=2), Fault(nth=2, for_ever=True)
    assert [once.counts() for _ in range(4)] == [False, True, False, False]
    assert [from_second_on.counts() for _ in range(4)] == [False, True, True, True]
    from_second_on.undo()
    from_second_on.undo()
    assert not from_second_on.counts()
    with pytest.raises(TimeoutError, match="Fault has not occurred"):
        once.wait(0.01)
