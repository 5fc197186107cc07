"""What clients rely on over time: held pulls, delays, retries, offsets, locks, notices, registrations. Bare requests only.

Hours pass on a clock that is moved by hand; what the broker's timers would do then is done at once.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bare_wire import Wire, pulled

import flintmq
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.testing.clock import ManualClock

HOUR_MS = 3_600_000


class Manual:
    """A broker whose time stands still."""

    def __init__(self, broker: flintmq.Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.address = broker.address

    def pass_ms(self, duration_ms: int, *timers: str) -> None:
        """Lets time pass, then does what these timers do."""
        self.clock.advance_ms(duration_ms)

        async def run() -> None:
            for name in timers:
                self.broker.timers.run_now(name)

        self.broker.call(run)

    def deliver(self, duration_ms: int = 0) -> None:
        self.pass_ms(duration_ms, "delayed messages")


@pytest.fixture
def manual(configure: Any, unexpected: list[str]) -> Iterator[Manual]:
    clock = ManualClock()
    with flintmq.Broker(configure("flush.strategy=group_commit"), clock=clock) as broker:
        yield Manual(broker, clock)


def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Waits for something that another thread does soon."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def held(manual: Manual) -> int:
    return len(manual.broker.state.outlet.held)


def heartbeat(wire: Wire, client_id: str, group: str, topic: str = "T", expression: str = "*") -> None:
    body = {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "consumeType": "CONSUME_PASSIVELY",
                "groupName": group,
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [
                    {"topic": topic, "subString": expression, "tagsSet": [], "codeSet": [], "subVersion": 1}
                ],
                "unitMode": False,
            }
        ],
        "producerDataSet": [{"groupName": "P"}],
    }
    assert wire.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()).code == 0


def members(wire: Wire, group: str) -> list[str]:
    answer = wire.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []


# long polling


def test_a_held_pull_is_answered_when_a_message_arrives(manual: Manual, connect: Any) -> None:
    """Long polling is what makes consumers fast: the wait ends with the message, not with a timeout."""
    consumer, producer = connect(manual), connect(manual)
    assert producer.send("T", b"0").code == 0
    assert consumer.pull("T", 0, _suspend_ms=5_000).bodies == [b"0"]
    opaque = consumer.post_pull("T", 1, _suspend_ms=HOUR_MS)
    until(lambda: held(manual) == 1)
    assert producer.send("T", b"1").code == 0
    assert pulled(consumer.answer(opaque, 1.0)).bodies == [b"1"]
    assert held(manual) == 0


def test_a_held_pull_is_answered_at_its_timeout(manual: Manual, connect: Any) -> None:
    """The client waits a little longer than it asked for; an answer that comes later finds nobody."""
    consumer = connect(manual)
    assert consumer.send("T", b"0").code == 0
    until(lambda: consumer.pull("T", 0).code == 0)
    opaque = consumer.post_pull("T", 1, _suspend_ms=15_000)
    until(lambda: held(manual) == 1)
    manual.pass_ms(14_999, "held pulls' deadlines")
    assert held(manual) == 1
    manual.pass_ms(1, "held pulls' deadlines")
    answer = pulled(consumer.answer(opaque, 1.0))
    assert (answer.code, answer.next_offset, answer.max_offset) == (ResponseCode.PULL_NOT_FOUND, 1, 1)


def test_a_held_pull_is_answered_only_when_a_message_with_a_subscribed_tag_arrives(
    manual: Manual, connect: Any
) -> None:
    """A consumer of one tag must not be woken by every message of the others."""
    consumer, producer = connect(manual), connect(manual)
    assert producer.send("T", b"0", properties={"TAGS": "B"}).code == 0
    until(lambda: producer.pull("T", 0).code == 0)
    opaque = consumer.post_pull("T", 1, _suspend_ms=HOUR_MS, subscription="A || C")
    until(lambda: held(manual) == 1)
    assert producer.send("T", b"1", properties={"TAGS": "B"}).code == 0
    until(lambda: producer.pull("T", 1).code == 0)
    assert held(manual) == 1
    assert producer.send("T", b"2", properties={"TAGS": "C"}).code == 0
    answer = pulled(consumer.answer(opaque, 1.0))
    assert (answer.bodies, answer.next_offset) == ([b"2"], 3)


def test_held_pulls_are_answered_when_the_broker_stops_and_dropped_when_their_connection_closes(
    configure: Any, connect: Any
) -> None:
    """Nothing is held for a client that left; one that waits when the broker stops is answered, not hung up on."""
    with flintmq.Broker(configure()) as broker:
        gone, waiting = connect(broker), connect(broker)
        assert waiting.send("T", b"0").code == 0
        until(lambda: waiting.pull("T", 0).code == 0)
        opaque = waiting.post_pull("T", 1, _suspend_ms=HOUR_MS)
        for _ in range(100):
            gone.post_pull("T", 1, _suspend_ms=HOUR_MS)
        until(lambda: len(broker.state.outlet.held) == 101)
        gone.close()
        until(lambda: len(broker.state.outlet.held) == 1)
    assert pulled(waiting.answer(opaque, 1.0)).code == ResponseCode.PULL_NOT_FOUND


# delays and retries


def test_a_message_with_delay_level_18_is_delivered_after_two_hours(manual: Manual, connect: Any) -> None:
    """Level 18 is 2 h: not a millisecond sooner, and then as the message that was sent."""
    wire = connect(manual)
    now = wire.send("T", b"later", properties={"DELAY": "18", "KEYS": "k"}, queue_id=2)
    assert (now.code, now.queue_id) == (0, 2)
    manual.deliver(2 * HOUR_MS - 1)
    assert wire.pull_all("T", queue_id=2) == []
    manual.deliver(1)
    (record,) = wire.pull_all("T", queue_id=2, at_least=1)
    assert record.body == b"later"
    assert record.properties["REAL_TOPIC"] == "T"
    assert record.store_timestamp_ms == manual.clock.now_ms()
    manual.deliver(24 * HOUR_MS)
    assert len(wire.pull_all("T", queue_id=2)) == 1


def test_a_delayed_message_due_while_the_broker_is_stopped_is_delivered_at_the_next_start(
    configure: Any, connect: Any
) -> None:
    """It is delivered at the next start, once."""
    clock = ManualClock()
    for life in range(3):
        with flintmq.Broker(configure(), clock=clock) as broker:
            manual, wire = Manual(broker, clock), connect(broker)
            if life == 0:
                assert wire.send("T", b"later", properties={"DELAY": "5"}).code == 0
                manual.deliver(1_000)
                assert wire.pull_all("T") == []
            else:
                manual.deliver()
                assert [record.body for record in wire.pull_all("T", at_least=1)] == [b"later"]
        clock.advance_ms(HOUR_MS)


def refuse(wire: Wire, group: str, offset_bytes: int, **fields: Any) -> int:
    header = {"offset": offset_bytes, "group": group, "delayLevel": 0, "originTopic": "T", "unitMode": "false"}
    return wire.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header | fields).code


def test_messages_sent_back_are_retried_and_become_dead_letters(manual: Manual, connect: Any) -> None:
    """The whole way of a message nobody can consume: longer waits, then the dead letter queue of its group."""
    wire = connect(manual)
    sent = wire.send("T", b"poison", properties={"UNIQ_KEY": "U"})
    until(lambda: wire.pull("T").code == 0)
    (record,) = wire.pull("T").records
    for times, wait_ms in ((1, 10_000), (2, 30_000)):
        assert refuse(wire, "G", record.commit_log_offset_bytes, maxReconsumeTimes=2) == 0
        manual.deliver(wait_ms - 1)
        assert len(wire.pull_all("%RETRY%G")) == times - 1
        manual.deliver(1)
        record = wire.pull_all("%RETRY%G", at_least=times)[-1]
        assert record.reconsume_times == times
        assert record.properties["RETRY_TOPIC"] == "T"
        assert record.properties["ORIGIN_MESSAGE_ID"] == sent.message_id
        assert record.body == b"poison"
    assert refuse(wire, "G", record.commit_log_offset_bytes, maxReconsumeTimes=2) == 0
    manual.deliver(HOUR_MS)
    assert len(wire.pull_all("%RETRY%G")) == 2
    # Nobody may read it by accident: an administrator gives the topic the permission to.
    create = {
        "topic": "%DLQ%G",
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    assert wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create).code == 0
    (dead,) = wire.pull_all("%DLQ%G", at_least=1)
    assert dead.body == b"poison"
    assert dead.properties["ORIGIN_MESSAGE_ID"] == sent.message_id
    assert refuse(wire, "G", 2**40) == ResponseCode.SYSTEM_ERROR


# offsets, locks, members


def test_consumer_offsets_survive_a_restart(configure: Any, connect: Any) -> None:
    """A group goes on where it was, also one whose offset came with a pull."""
    key = {"consumerGroup": "G", "topic": "T", "queueId": 1}
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        assert wire.send("T", b"x", queue_id=1).code == 0
        assert wire.ask(RequestCode.UPDATE_CONSUMER_OFFSET, key | {"commitOffset": 41}).code == 0
        wire.pull("T", group="H", sysFlag=5, commitOffset=42, queue_id=1)
        refused = wire.ask(RequestCode.UPDATE_CONSUMER_OFFSET, key | {"commitOffset": -1})
        assert refused.code == ResponseCode.SYSTEM_ERROR
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        found = wire.ask(RequestCode.QUERY_CONSUMER_OFFSET, key)
        assert (found.code, found.ext_fields) == (0, {"offset": "41"})
        found = wire.ask(RequestCode.QUERY_CONSUMER_OFFSET, key | {"consumerGroup": "H"})
        assert found.ext_fields == {"offset": "42"}
        missing = wire.ask(RequestCode.QUERY_CONSUMER_OFFSET, key | {"consumerGroup": "Nobody", "queueId": 1})
        assert missing.ext_fields == {"offset": "0"}


def lock(wire: Wire, client_id: str, *queue_ids: int, code: int = RequestCode.LOCK_BATCH_MQ) -> set[int]:
    queues = [{"topic": "T", "brokerName": "broker-a", "queueId": queue_id} for queue_id in queue_ids]
    body = json.dumps({"consumerGroup": "G", "clientId": client_id, "mqSet": queues}).encode()
    answer = wire.ask(code, {}, body)
    assert answer.code == 0
    if code != RequestCode.LOCK_BATCH_MQ:
        return set()
    return {queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"]}


def test_a_queue_lock_has_one_owner_until_release_or_expiry(manual: Manual, connect: Any) -> None:
    """A queue has one owner, until it lets go or is not heard of for a minute."""
    one, two = connect(manual), connect(manual)
    assert lock(one, "one", 0, 1) == {0, 1}
    assert lock(two, "two", 0, 1, 2) == {2}
    lock(one, "one", 0, code=RequestCode.UNLOCK_BATCH_MQ)
    assert lock(two, "two", 0, 1) == {0}
    manual.pass_ms(59_000)
    assert lock(two, "two", 1) == set()
    manual.pass_ms(2_000, "queue locks")
    assert lock(two, "two", 1) == {1}


def test_members_of_a_consumer_group_are_notified_when_a_member_joins_or_leaves(manual: Manual, connect: Any) -> None:
    """Rebalancing starts with this notice: when one joins, leaves, vanishes, or falls silent."""
    one, two, three = connect(manual), connect(manual), connect(manual)

    def notices(wire: Wire) -> int:
        wire.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
        found = [notice for notice in wire.notices if notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
        assert all(notice.ext_fields == {"consumerGroup": "G"} and notice.is_oneway for notice in found)
        wire.notices.clear()
        return len(found)

    heartbeat(one, "one", "G")
    assert members(one, "G") == ["one"]
    notices(one)
    heartbeat(two, "two", "G")
    assert notices(one) == 1
    heartbeat(two, "two", "G")
    assert notices(one) == 0
    assert sorted(members(one, "G")) == ["one", "two"]
    assert two.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "two", "consumerGroup": "G"}).code == 0
    assert notices(one) == 1
    heartbeat(three, "three", "G")
    assert notices(one) == 1
    three.close()
    until(lambda: members(one, "G") == ["one"])
    assert notices(one) >= 1
    silent = connect(manual)
    heartbeat(silent, "silent", "G")
    manual.pass_ms(100_000)
    heartbeat(one, "one", "G")
    manual.pass_ms(30_000, "client expiry")
    assert silent.is_closed_by_peer(1.0)
    assert members(one, "G") == ["one"]


# name servers


def route(address: str, topic: str) -> dict[str, Any] | None:
    """The topic's route, None when there is none or nobody answers."""
    try:
        wire = Wire(address)
    except OSError:
        return None
    try:
        answer = wire.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
    finally:
        wire.close()
    return json.loads(answer.body) if answer.code == 0 else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_broker_registers_at_name_servers_that_start_later_or_restart(configure: Any, connect: Any) -> None:
    """Neither the order of starting nor a restart of a name server may need an operator."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    config = configure(f"namesrv.addresses={address}", "namesrv.register_interval_ms=1000")
    with flintmq.Broker(config) as broker:
        assert connect(broker).send("Early", b"x").code == 0
        for topic in ("Later", "Again"):
            with flintmq.NameServer(configure(f"nameserver.port={port}")):
                until(lambda: route(address, "Early") is not None)
                assert connect(broker).send(topic, b"x").code == 0
                until(lambda topic=topic: route(address, topic) is not None, 1.0)  # type: ignore[misc]
                found = route(address, topic)
                assert found is not None
                assert found["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}
                assert found["queueDatas"][0]["writeQueueNums"] == 4


def test_a_stopped_broker_is_unregistered_at_the_name_server(configure: Any, connect: Any) -> None:
    """Producers shall not try a broker that has stopped until its registration runs out."""
    with flintmq.NameServer(configure()) as namesrv:
        with flintmq.Broker(configure(f"namesrv.addresses={namesrv.address}")) as broker:
            assert connect(broker).send("T", b"x").code == 0
            until(lambda: route(namesrv.address, "T") is not None)
        assert route(namesrv.address, "T") is None


def test_a_broker_starts_and_registers_and_stops_although_one_of_two_name_servers_hangs(
    configure: Any, connect: Any
) -> None:
    """One of two name servers hangs: the broker starts, registers with the other, and stops."""
    with socket.socket() as hanging, flintmq.NameServer(configure()) as namesrv:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        addresses = f"127.0.0.1:{hanging.getsockname()[1]};{namesrv.address}"
        started_s = time.monotonic()
        config = configure(f"namesrv.addresses={addresses}", "namesrv.register_timeout_ms=200")
        with flintmq.Broker(config) as broker:
            assert connect(broker).is_served()
            assert route(namesrv.address, "TBW102") is not None
        assert time.monotonic() - started_s < 20


def test_a_broker_serves_clients_although_a_name_server_sends_malformed_answers(configure: Any, connect: Any) -> None:
    """A stranger listens where the name server should be: a warning, and no more."""
    import threading

    with socket.socket() as strange:
        strange.bind(("127.0.0.1", 0))
        strange.listen()

        def babble() -> None:
            while True:
                try:
                    peer, _ = strange.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(1)
                    peer.recv(65_536)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=babble, daemon=True)
        thread.start()
        address = f"127.0.0.1:{strange.getsockname()[1]}"
        with flintmq.Broker(configure(f"namesrv.addresses={address}")) as broker:
            assert connect(broker).is_served()
        strange.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_the_registration_of_a_killed_broker_expires_at_the_name_server(configure: Any, connect: Any) -> None:
    """A broker that was killed unregisters nowhere: the name server notices by itself."""
    clock = ManualClock()
    with (
        flintmq.NameServer(configure(), clock=clock) as namesrv,
        flintmq.Broker(configure(f"namesrv.addresses={namesrv.address}")) as broker,
    ):
        assert connect(broker).send("T", b"x").code == 0
        until(lambda: route(namesrv.address, "T") is not None)

        async def is_known_119_s_later() -> bool:
            clock.advance_ms(119_000)
            namesrv.timers.run_now("broker expiry")
            return namesrv.routes.pick_up_topic_route_data("T") is not None

        assert namesrv.call(is_known_119_s_later)
        assert not namesrv.call(is_known_119_s_later)
        until(lambda: route(namesrv.address, "T") is not None)  # the broker is here, and registers again


def test_topics_created_by_sends_are_written_to_the_topic_configuration_file(configure: Any, connect: Any) -> None:
    """They are written by the next periodic check, and at the latest when the broker stops."""
    with flintmq.Broker(configure()) as broker:
        file, notes = (broker.store_path / name for name in ("config/topics.json", "flint/new-topics"))

        async def persist() -> None:
            broker.timers.run_now("topics and groups")

        assert connect(broker).send("First", b"x").code == 0
        assert "First" in notes.read_text()
        assert not file.exists() or "First" not in file.read_text()
        broker.call(persist)
        until(lambda: not notes.exists())
        assert "First" in file.read_text()
        assert connect(broker).send("Second", b"x").code == 0
    assert not notes.exists()
    assert "Second" in file.read_text()
