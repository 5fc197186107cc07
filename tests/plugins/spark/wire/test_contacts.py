"""Brokers that are away while they are read over the wire: a stream waits for them, a batch says so."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served

import flintmq.plugins.spark.wire.client as client
import flintmq.plugins.spark.wire.queue_edges as queue_edges
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.spark.errors import BrokerAwayError, OptionError, SparkPluginError, UnknownTopicError
from flintmq.plugins.spark.options import ReadOptions, WriteOptions
from flintmq.plugins.spark.ports import Limit, Offset
from flintmq.plugins.spark.wire.client import TopicBounds
from flintmq.plugins.spark.wire.contacts import Contacts
from flintmq.plugins.spark.wire.queue_edges import QueueEdges
from flintmq.plugins.spark.wire.sending import SPARK_TXN, RowMessage, Sender
from flintmq.plugins.spark.wire_transport import WireTransport
from flintmq.remoting.client.message import Message
from flintmq.remoting.wire.bodies import TopicOffset

TOPIC = "orders"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE_S", 0.01)
    monkeypatch.setattr(queue_edges, "SETTLE_PAUSE_S", 0.01)


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Served]:
    """A name server and the broker broker-a with ten messages."""
    with Served(tmp_path / "a") as one:
        one.create_topic(TOPIC, queues=1)
        one.send(TOPIC, [b"a%d" % number for number in range(10)])
        yield one


@pytest.fixture
def second(first: Served, tmp_path: Path) -> Iterator[Served]:
    """broker-b with five messages of the same topic."""
    with Served(tmp_path / "b", "broker.name=broker-b", namesrv=first.namesrv) as one:
        one.create_topic(TOPIC, queues=1)
        one.send(TOPIC, [b"b%d" % number for number in range(5)])
        yield one


def stream(served: Served, **options: str) -> WireTransport:
    """What a stream reads."""
    return WireTransport(options_of(served, **options).for_stream())


def options_of(served: Served, **options: str) -> ReadOptions:
    where = {} if "brokerAddr" in options else {"nameServer": served.namesrv}
    what = {} if "subscribePattern" in options else {"subscribe": TOPIC}
    return ReadOptions.parse({**where, **what, **options})


def bodies(one: WireTransport, start: Offset, end: Offset) -> list[bytes]:
    found: list[bytes] = []
    for part in one.plan(start, end):
        for batch in pickle.loads(pickle.dumps(one)).read(part):
            found += batch.column("body").to_pylist()
    return sorted(found)


def places(offset: Offset) -> dict[str, int]:
    return {name: queues["0"] for name, queues in offset["queues"][TOPIC].items()}


@pytest.mark.parametrize("way", ["nameServer", "brokerAddr", "subscribePattern"])
def test_a_stream_outlives_a_restart_of_its_only_broker(first: Served, way: str) -> None:
    """The broker takes its topics out of the routes when it stops: that is no unknown topic. Nothing is lost, nothing twice."""
    options = {"brokerAddr": {way: first.address}, "subscribePattern": {way: "ord.*"}}.get(way, {})
    with contextlib.closing(stream(first, **options)) as one:
        start = one.checked(one.latest())
        first.stop_broker()
        for _ in range(3):
            end = one.limited(start, one.latest(), Limit())
            assert places(end) == {"broker-a": 10}
            assert one.plan(start, end) == []
        first.start_broker()
        first.send(TOPIC, [b"new"])
        end = one.limited(start, one.latest(), Limit())
        assert bodies(one, start, end) == [b"new"]


def test_a_query_starts_from_its_checkpoint_while_the_broker_is_down(first: Served) -> None:
    """The restarted query knows the broker from its checkpoint alone."""
    with contextlib.closing(stream(first)) as before:
        kept = before.initial("earliest")
    first.stop_broker()
    with contextlib.closing(stream(first)) as one:
        start = one.checked(kept)
        assert one.limited(start, one.latest(), Limit()) == start
        first.start_broker()
        assert len(bodies(one, start, one.limited(start, one.latest(), Limit()))) == 10


def test_the_remaining_brokers_are_read_while_a_broker_is_down(first: Served, second: Served) -> None:
    """One broker that is away must not hold up the rest; its place stays in the offset, and its age is told."""
    with contextlib.closing(stream(first)) as one:
        start = one.checked(one.latest())
        second.stop_broker()
        first.send(TOPIC, [b"more"])
        end = one.limited(start, one.latest(), Limit())
        assert places(end) == {"broker-a": 11, "broker-b": 5}
        assert bodies(one, start, end) == [b"more"]
        told = one.reported(end, one.latest())["brokers"]
        assert told["broker-b"]["contactAgeMs"] >= told["broker-a"]["contactAgeMs"] >= 0


def test_a_spark_task_waits_for_a_restarting_broker(first: Served) -> None:
    """A batch that was planned before the broker stopped is read when it is back."""
    with contextlib.closing(stream(first)) as one:
        (part,) = one.plan(one.initial("earliest"), one.latest())
        first.stop_broker()
        found: list[Any] = []
        task = threading.Thread(target=lambda: found.extend(one.read(part)))
        task.start()
        first.start_broker()
        task.join(60)
    assert [batch.num_rows for batch in found] == [10]


@pytest.mark.parametrize("lossy", [False, True])
def test_a_stream_fails_or_warns_if_a_broker_is_down_for_longer_than_the_configured_time(
    first: Served, lossy: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The user says how long; then the error names the broker, the time and the option, or it is a warning."""
    with contextlib.closing(stream(first, maxBrokerAway="10m", failOnDataLoss=str(not lossy).lower())) as one:
        contacts = one._queues.contacts
        now_s = [0.0]
        contacts.clock = lambda: now_s[0]
        contacts._contact_s.clear()
        start = one.checked(one.latest())
        first.stop_broker()
        now_s[0] = 599.0
        assert one.limited(start, one.latest(), Limit()) == start
        now_s[0] = 601.0
        if lossy:
            assert one.limited(start, one.latest(), Limit()) == start
            assert "broker-a is away for 601 s" in caplog.text
            return
        with pytest.raises(
            BrokerAwayError, match=r"broker-a is away for 601 s, longer than the option maxBrokerAway allows"
        ):
            one.latest()


def test_a_stream_does_not_wait_for_a_deleted_topic(first: Served) -> None:
    """The broker answers that it has no such topic, so it does not count as a broker that is down."""
    with contextlib.closing(stream(first)) as one:
        start = one.checked(one.latest())
        first.delete_topic(TOPIC)
        assert one.limited(start, one.latest(), Limit()) == start
        assert not one._queues.contacts.away
        assert one.settled()["queues"] == {}


@pytest.mark.parametrize("lossy", [False, True])
def test_a_batch_read_fails_if_a_broker_is_down_unless_fail_on_data_loss_is_false(
    first: Served, second: Served, lossy: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """5 of 15 messages are at a broker that is down: an error with its name, or a warning and the rest."""
    with contextlib.closing(WireTransport(options_of(first, failOnDataLoss=str(not lossy).lower()))) as one:
        assert len(bodies(one, one.initial("earliest"), one.final())) == 15
    second.stop_broker()
    with contextlib.closing(WireTransport(options_of(first, failOnDataLoss=str(not lossy).lower()))) as one:
        if not lossy:
            with pytest.raises(BrokerAwayError, match=r"broker-b is away.*failOnDataLoss=false"):
                one.final()
            return
        assert len(bodies(one, one.initial("earliest"), one.final())) == 10
        assert "broker-b is away" in caplog.text


def test_the_error_about_a_missing_topic_names_the_stopped_broker_that_had_the_topic(first: Served) -> None:
    """A batch has no checkpoint that knows the broker; the name server does."""
    first.stop_broker()
    one = WireTransport(options_of(first))
    with contextlib.closing(one), pytest.raises(UnknownTopicError, match=r"no topic orders.*broker-a had it and left"):
        one.final()


def test_an_available_now_query_waits_for_a_restarting_broker(first: Served) -> None:
    """AvailableNow takes what there is now: also what a broker has that is just starting again."""
    with contextlib.closing(stream(first)) as one:
        start = one.checked(one.initial("earliest"))
        first.stop_broker()
        found: list[Offset] = []
        waiter = threading.Thread(target=lambda: found.append(one.settled()))
        waiter.start()
        first.start_broker()
        waiter.join(60)
        assert places(found[0]) == {"broker-a": 10}
        assert len(bodies(one, start, found[0])) == 10


def test_the_progress_of_a_stream_shows_the_lag_in_messages_and_in_bytes_and_in_time(first: Served) -> None:
    """Operators see it in the query's progress without asking a broker."""
    with contextlib.closing(stream(first)) as one:
        start, end = one.initial("earliest"), one.latest()
        told = one.reported(start, end)
        assert told["queues"] == end["queues"]
        assert told["lag"]["messages"] == 10
        assert told["lag"]["bytes"] > 10 * 60
        assert 0 <= told["lag"]["ms"] < 600_000
        assert one.reported(end, end)["lag"] == {"messages": 0, "bytes": 0, "ms": 0}


def test_consumer_offsets_are_committed_at_the_reachable_brokers(first: Served, second: Served) -> None:
    """One that is away must not keep the others' offsets from being committed."""
    with contextlib.closing(stream(first, commitGroup="lag")) as one:
        at = one.checked(one.latest())
        second.stop_broker()
        one.commit(at)
    assert first.committed("lag", TOPIC, 0) == 10


def test_a_stream_waits_for_a_failed_broker_until_the_broker_answers_again() -> None:
    """A stream would otherwise wait for queues that no longer exist."""
    contacts = Contacts(options_for_memory(), clock=lambda: 5.0)
    contacts.know([MessageQueue("b1", 0, "t"), MessageQueue("b2", 0, "t")])
    contacts.silent({"b1": "refused"})
    assert dict(contacts.away) == {"b1": "refused"}
    assert contacts.is_waited_for()
    contacts.answered(["b1"])
    assert not contacts.away
    contacts.forget("t", ["b2"])
    assert (set(contacts.brokers_of("t")), contacts.topics) == ({"b1"}, ["t"])


def options_for_memory() -> ReadOptions:
    return ReadOptions.parse({"nameServer": "h:1", "subscribe": "t"}).for_stream()


def test_the_error_about_an_unreachable_name_server_contains_the_option_name_and_the_address(first: Served) -> None:
    """Where nothing is known yet, an address that is wrong is told after some attempts."""
    one = WireTransport(options_of(first, nameServer="127.0.0.1:1").for_stream())
    with contextlib.closing(one), pytest.raises(SparkPluginError, match=r"nameServer 127\.0\.0\.1:1"):
        one.latest()


@pytest.mark.parametrize("topics", [{"subscribe": TOPIC}, {"subscribePattern": "ord.*"}])
def test_the_error_suggests_the_option_broker_addr_if_a_broker_is_given_as_the_name_server(
    first: Served, topics: dict[str, str]
) -> None:
    """The error names the option to use, because "refused with code 3" would not help a user."""
    for options, says in (
        ({"nameServer": first.address}, "address of a broker: give it as option brokerAddr"),
        ({"brokerAddr": first.namesrv}, "address of a name server: give it as option nameServer"),
    ):
        one = WireTransport(ReadOptions.parse({**options, **topics}))
        with contextlib.closing(one), pytest.raises(OptionError, match=says):
            one.latest()
    for options, says in (
        ({"nameServer": first.address}, "give it as option brokerAddr"),
        ({"brokerAddr": first.namesrv}, "give it as option nameServer"),
    ):
        sender = Sender(WriteOptions.parse({**options, "topic": TOPIC}))
        with contextlib.closing(sender):
            sender.send(RowMessage(Message(TOPIC, b"x", properties={SPARK_TXN: "q:0:0:0"})))
            with pytest.raises(OptionError, match=says):
                sender.flush()


def test_an_idle_stream_shows_no_lag(first: Served) -> None:
    """Spark tells a source of a batch only when it has the next one; the group's offset must not wait for that."""
    pytest.importorskip("pyspark")
    from flintmq.plugins.spark.source import StreamReader
    from flintmq.plugins.spark.wire_transport import WireTransport as Transport

    options = options_of(first, commitGroup="idle", startingOffsets="earliest").for_stream()
    with contextlib.closing(Transport(options)) as one:
        reader = StreamReader(one, options)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert first.committed("idle", TOPIC, 0) == 0
        assert reader.reportLatestOffset()["lag"]["messages"] == 0
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end  # the batch is done, and nothing comes
        assert first.committed("idle", TOPIC, 0) == 10


class RestartedBroker:
    """A client whose broker registers between the request for the route and the request for the registered brokers."""

    where = "n:9876"

    def __init__(self, *answers: TopicBounds | RefusedError) -> None:
        self.answers = list(answers)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)

    async def bounds(self, _topic: str, _away: object) -> TopicBounds:
        answer = self.answers.pop(0)
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    async def registered(self) -> frozenset[str]:
        return frozenset({"broker-a"})

    async def left(self, _topic: str) -> list[str]:
        return []


def test_a_topic_is_not_treated_as_deleted_if_its_broker_registers_during_the_route_lookup() -> None:
    """Its route is older than its registration, so the topic looked deleted, and an AvailableNow query ended without it."""
    queue = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
    edge = TopicOffset(max_queue_offset=10)
    no_topic = RefusedError(ResponseCode.TOPIC_NOT_EXIST, "no topic", reason="topic.not_found")
    options = ReadOptions.parse({"nameServer": "n:9876", "subscribe": TOPIC})
    client: Any = RestartedBroker(no_topic, TopicBounds({queue: edge}, frozenset({"broker-a"}), {}))
    edges = QueueEdges(options, lambda: client)
    edges.contacts.know([queue])
    assert dict(edges.edges()) == {queue: edge}
    client.answers = [no_topic, no_topic]
    with pytest.raises(UnknownTopicError, match="there is no topic orders"):
        edges.edges()
    assert not client.answers, "a topic counts as deleted at the second look only"
