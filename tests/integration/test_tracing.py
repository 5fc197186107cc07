"""Spans of messages reach a collector, as children of the producer's span, through every stage and feature of the broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter", reason="the extra otel is not installed")

from bare_wire import Wire, send_fields, sent
from replicas import eventually, master_settings, slave_settings

import flintmq
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.remoting.wire.codes import RequestCode
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.support.otlp_collector import Collector, Taken, running_collector

pytestmark = pytest.mark.usefixtures("unexpected")

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
SERVER, INTERNAL = 2, 1
ERROR = 2
NESTED = ("intake", "append", "flush", "acknowledge")
"""What lies within ``store``, one behind the other."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as running:
        yield running


def tracing(collector: Collector, *more: str) -> tuple[str, ...]:
    return (f"tracing.otlp_endpoint={collector.endpoint}", "tracing.otlp_interval_ms=100", *more)


@pytest.fixture
def site(tmp_path: Path, collector: Collector) -> Iterator[EmbeddedBroker]:
    """A traced broker whose time a test moves."""
    with EmbeddedBroker(tmp_path, settings=tracing(collector), clock=VirtualClock()) as running:
        yield running


@pytest.fixture
def wire(site: EmbeddedBroker, connect: Callable[[Any], Wire]) -> Wire:
    return connect(site.address)


def named(spans: Iterable[Taken], operation: str, trace: str = TRACE) -> list[Taken]:
    return [one for one in spans if one.operation == operation and one.trace_id == trace]


def with_all(**counts: int) -> Callable[[list[Taken]], bool]:
    """Whether there are so many spans of these operations."""
    return lambda spans: all(len(named(spans, operation)) >= count for operation, count in counts.items())


def put(wire: Wire, topic: str = "Orders", body: bytes = b"hello", **properties: str) -> Any:
    answer = wire.send(topic, body, properties={"UNIQ_KEY": "ID1", "traceparent": SAMPLED, **properties})
    assert answer.code == 0
    return answer


def test_the_trace_spans_of_all_stages_of_a_message_descend_from_the_span_of_its_producer(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], collector: Collector
) -> None:
    """Ids, order in time and nesting, and what the conventions for messaging want to be said."""
    with flintmq.Broker(configure(*tracing(collector), "flush.strategy=group_commit", "broker.name=north")) as broker:
        wire = connect(broker)
        put(wire, KEYS="k1 k2", TAGS="new", tracestate="vendor=1")
        wire.pull("Orders", group="billing")
        spans = collector.wait_for(with_all(store=1, dispatch=1, deliver=1, acknowledge=1))
    (store,), (dispatch,), (deliver,) = (named(spans, name) for name in ("store", "dispatch", "deliver"))
    assert (store.parent_id, deliver.parent_id) == (PARENT, PARENT)
    assert (store.kind, deliver.kind, dispatch.kind) == (SERVER, SERVER, INTERNAL)
    at = store.begin_ns
    for operation in NESTED:
        (child,) = named(spans, operation)
        assert child.parent_id == store.span_id
        assert at <= child.begin_ns <= child.end_ns <= store.end_ns, operation
        at = child.end_ns
    assert dispatch.parent_id == store.span_id
    (flush,) = named(spans, "flush")
    assert flush.end_ns <= dispatch.end_ns <= deliver.begin_ns <= deliver.end_ns
    assert len({one.span_id for one in spans}) == len(spans) == 7
    assert {one.state for one in spans} == {"vendor=1"}
    assert store.name == "store Orders"
    assert store.resource == {"service.name": "flintmq", "service.instance.id": "north"}
    assert store.attributes | {"flintmq.log_position": 0} == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "store",
        "messaging.operation.type": "send",
        "messaging.destination.name": "Orders",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": "ID1",
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "new",
        "messaging.rocketmq.message.keys": ["k1", "k2"],
        "flintmq.queue_offset": 0,
        "flintmq.log_position": 0,
    }
    assert deliver.attributes["messaging.consumer.group.name"] == "billing"
    assert deliver.attributes["messaging.operation.type"] == "receive"
    assert deliver.attributes["messaging.message.body.size"] == 5
    assert 0 <= deliver.attributes["flintmq.wait_ms"] < 20_000


def test_an_asynchronous_flush_has_no_trace_span(wire: Wire, collector: Collector) -> None:
    """There is no span of what no sender waits for."""
    put(wire)
    spans = collector.wait_for(with_all(store=1, dispatch=1))
    assert not named(spans, "flush")
    assert named(spans, "acknowledge")[0].end_ns <= named(spans, "dispatch")[0].end_ns


@pytest.mark.parametrize("flags", ["00", "02"])
def test_unsampled_messages_have_no_trace_spans(wire: Wire, collector: Collector, flags: str) -> None:
    """The producer's system decides; its messages are stored and delivered like all others."""
    put(wire, traceparent=f"00-{TRACE}-{PARENT}-{flags}")
    assert wire.send("Orders", b"without").code == 0
    put(wire)
    assert len(wire.pull("Orders").bodies) == 3
    spans = collector.wait_for(with_all(store=1, deliver=1, dispatch=1))
    assert len(named(spans, "store")) == len(named(spans, "deliver")) == 1


@pytest.mark.parametrize(
    "value",
    [
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{SAMPLED}-and-more",
        SAMPLED.upper(),
        "<script>alert(1)</script>",
        "x" * 4096,
        f"{SAMPLED}\x02traceparent\x01{SAMPLED}",
        "\N{SNOWMAN}",
    ],
)
def test_a_malformed_traceparent_is_ignored_and_counted(
    site: EmbeddedBroker, wire: Wire, collector: Collector, value: str
) -> None:
    """The message is worth more than its trace: it is stored as it came, and its consumer gets it."""
    text = f"UNIQ_KEY\x01a\x02traceparent\x01{value}"
    assert wire.send("Orders", b"hello", properties=text).code == 0
    (record,) = wire.pull("Orders").records
    assert record.properties_bytes.startswith(text.encode())
    put(wire, "Other")
    spans = collector.wait_for(with_all(store=1))
    assert {one.attributes["messaging.destination.name"] for one in spans} == {"Other"}
    figures = figures_of(site.broker)
    assert (figures["traceparentIgnored"], figures["tracedMessages"]) == ("1", "1")


def figures_of(broker: flintmq.Broker) -> dict[str, str]:
    """What the service tells in request 28."""
    from flintmq.plugins.tracing.service import TracingService

    return dict(broker.call(_figures(broker, TracingService)))


def _figures(broker: flintmq.Broker, kind: Any) -> Any:
    async def read() -> Any:
        return broker.state.service(kind).runtime_info()

    return read


def test_a_delayed_message_stays_in_its_trace(site: EmbeddedBroker, wire: Wire, collector: Collector) -> None:
    """It is stored twice, where it waits and where it belongs, and both are said."""
    put(wire, DELAY="3")
    site.clock.advance_ms(11_000)  # type: ignore[attr-defined]
    eventually(lambda: wire.pull("Orders").bodies == [b"hello"], "it is delivered")
    held, delivered = sorted(
        named(collector.wait_for(with_all(store=2, dispatch=2, deliver=1)), "store"), key=lambda one: one.begin_ns
    )
    assert {one.parent_id for one in (held, delivered)} == {PARENT}
    assert held.attributes["flintmq.held_in"] == "SCHEDULE_TOPIC_XXXX"
    assert "flintmq.held_in" not in delivered.attributes
    for one in (held, delivered):
        assert one.attributes["messaging.destination.name"] == "Orders"
        assert one.attributes["messaging.rocketmq.message.type"] == "delay"
        assert one.attributes["messaging.rocketmq.message.delay_time_level"] == 3
    assert (
        len(named(collector.spans, "acknowledge")) == len(named(collector.spans, "intake")) == 1
    )  # of the client's send


def test_a_span_of_a_timer_message_contains_the_delivery_time_of_the_message(
    site: EmbeddedBroker, wire: Wire, collector: Collector
) -> None:
    """Its spans name the time of delivery, so that the wait is not taken for a delay."""
    due_ms = site.clock.now_ms() + 5_000
    put(wire, TIMER_DELIVER_MS=str(due_ms))
    site.clock.advance_ms(7_000)  # type: ignore[attr-defined]
    eventually(lambda: wire.pull("Orders").bodies == [b"hello"], "it is delivered")
    spans = named(collector.wait_for(with_all(store=2, deliver=1)), "store")
    assert {one.attributes["messaging.destination.name"] for one in spans} == {"Orders"}
    assert all(one.attributes["messaging.rocketmq.message.type"] == "delay" for one in spans)
    assert any(abs(one.attributes["messaging.rocketmq.message.delivery_timestamp"] - due_ms) < 2_000 for one in spans)


def test_a_transaction_stays_in_its_trace(wire: Wire, collector: Collector) -> None:
    """The half message and what becomes of it when it is committed."""
    half = put(wire, TRAN_MSG="true", PGROUP="P")
    ended = wire.ask(
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": "P",
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": int(half.message_id[16:], 16),
            "commitOrRollback": 8,
            "fromTransactionCheck": "false",
            "msgId": "ID1",
            "transactionId": "ID1",
        },
    )
    assert ended.code == 0
    eventually(lambda: wire.pull("Orders").bodies == [b"hello"], "it is visible")
    stores = named(collector.wait_for(with_all(store=2, deliver=1)), "store")
    assert {one.attributes.get("flintmq.held_in") for one in stores} == {None, "RMQ_SYS_TRANS_HALF_TOPIC"}
    assert {one.attributes["messaging.destination.name"] for one in stores} == {"Orders"}
    assert {one.attributes["messaging.rocketmq.message.type"] for one in stores} == {"transaction"}


def test_a_retry_and_a_dead_letter_stay_in_the_trace(site: EmbeddedBroker, wire: Wire, collector: Collector) -> None:
    """A consumer that fails is the case for which somebody looks at a trace."""
    put(wire)

    def send_back(message_id: str, level: int) -> None:
        fields = {"offset": int(message_id[16:], 16), "group": "C", "delayLevel": level, "maxReconsumeTimes": 3}
        assert wire.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0

    (record,) = wire.pull("Orders").records
    send_back("0" * 16 + f"{record.commit_log_offset_bytes:016x}", 1)
    site.clock.advance_ms(2_000)  # type: ignore[attr-defined]
    eventually(lambda: wire.pull("%RETRY%C").records, "it is delivered again")
    (again,) = wire.pull("%RETRY%C").records
    send_back("0" * 16 + f"{again.commit_log_offset_bytes:016x}", -1)
    spans = collector.wait_for(with_all(store=4, deliver=2))
    assert {one.parent_id for one in named(spans, "store") + named(spans, "deliver")} == {PARENT}
    topics = [one.attributes["messaging.destination.name"] for one in named(spans, "store")]
    assert sorted(topics) == ["%DLQ%C", "%RETRY%C", "%RETRY%C", "Orders"]
    (dead,) = (one for one in named(spans, "store") if one.attributes["messaging.destination.name"] == "%DLQ%C")
    assert dead.attributes["flintmq.retry_of"] == "Orders"
    retried = [one for one in named(spans, "deliver") if one.attributes["messaging.destination.name"] == "%RETRY%C"]
    assert {one.attributes["flintmq.reconsume_times"] for one in retried} == {1}


def test_each_message_of_a_batch_is_traced_separately(wire: Wire, collector: Collector) -> None:
    """Each by its own parent; those without one are left alone."""
    other = "f" * 32

    def item(number: int, trace: str) -> BatchItem:
        parent = f"\x02traceparent\x0100-{trace}-{PARENT}-01" if trace else ""
        return BatchItem(0, b"%d" % number, f"UNIQ_KEY\x01B{number}{parent}".encode())

    body = encode_batch([item(0, TRACE), item(1, ""), item(2, other)])
    assert sent(wire.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("Orders", batch=True), body)).code == 0
    assert wire.pull("Orders").bodies == [b"0", b"1", b"2"]
    spans = collector.wait_for(lambda came: all(named(came, "deliver", one) for one in (TRACE, other)))
    for trace, message_id, place in ((TRACE, "B0", 0), (other, "B2", 2)):
        (store,), (deliver,) = named(spans, "store", trace), named(spans, "deliver", trace)
        for one in (store, deliver):
            assert one.attributes["messaging.message.id"] == message_id
            assert one.attributes["flintmq.queue_offset"] == place
        assert store.attributes["flintmq.log_position"] == deliver.attributes["flintmq.log_position"]


def test_the_broker_begins_a_trace_for_a_sampled_message_without_a_traceparent(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], collector: Collector
) -> None:
    """Their consumers find the trace in the property, too; system topics begin none."""
    with flintmq.Broker(configure(*tracing(collector, "tracing.sample_one_in=1"))) as broker:
        wire = connect(broker)
        assert wire.send("Orders", b"hello", properties="UNIQ_KEY\x01a").code == 0
        body = encode_batch([BatchItem(0, b"1", b"UNIQ_KEY\x01B1"), BatchItem(0, b"2", b"UNIQ_KEY\x01B2")])
        assert sent(wire.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("Orders", batch=True), body)).code == 0
        records = wire.pull("Orders").records
        spans = collector.wait_for(
            lambda came: (
                sum(one.operation == "store" for one in came) == 3 == sum(one.operation == "deliver" for one in came)
            )
        )
    roots = {one.trace_id: one for one in spans if one.operation == "store"}
    assert len(roots) == len(records) == 3
    for record in records:
        _, trace, parent, flags = record.properties["traceparent"].split("-")
        assert (roots[trace].parent_id, roots[trace].span_id) == ("", parent)
        assert int(flags, 16) & 1
        (deliver,) = (one for one in spans if one.operation == "deliver" and one.trace_id == trace)
        assert deliver.parent_id == parent


def test_waiting_for_replication_and_delivering_from_the_slave_each_have_a_trace_span(
    tmp_path: Path, connect: Callable[[Any], Wire], collector: Collector
) -> None:
    """Where the promise includes a slave, the span says how long that took; what the slave hands out is traced by it."""
    settings = tracing(collector, "pull.slave_read=true")
    with flintmq.Broker(master_settings(tmp_path / "m", *settings, role="sync_master")) as master:
        wire = connect(master)
        wire.send("Orders", b"nobody holds it", properties={"traceparent": SAMPLED})
        spans = collector.wait_for(with_all(store=1))
        (alone,) = named(spans, "store")
        assert (alone.status, alone.attributes["error.type"]) == (ERROR, "slave_not_available")
        with flintmq.Broker(slave_settings(tmp_path / "s", master, *settings)) as slave:
            eventually(lambda: wire.send("Warm", b"up").code == 0, "a slave follows")
            put(wire)
            spans = collector.wait_for(with_all(store=2, replicate=2))
            store = max(named(spans, "store"), key=lambda one: one.begin_ns)
            (replicate,) = (one for one in named(spans, "replicate") if one.parent_id == store.span_id)
            assert store.begin_ns <= replicate.begin_ns < replicate.end_ns <= store.end_ns
            assert store.status == replicate.status == 0
            there = connect(slave)
            eventually(lambda: len(there.pull("Orders").bodies) == 2, "the slave shows it")
            collector.wait_for(with_all(deliver=2))


def test_deliveries_of_messages_stored_before_a_broker_restart_are_traced(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], collector: Collector
) -> None:
    """A consumer that was away is a reason to look; the broker has only the log to know by, whoever traced then."""
    with flintmq.Broker(configure()) as broker:  # not traced
        put(connect(broker))
    with flintmq.Broker(configure(*tracing(collector))) as broker:
        wire = connect(broker)
        put(wire, "Orders", b"after")
        for group in ("billing", "audit"):
            assert wire.pull("Orders", group=group).bodies == [b"hello", b"after"]
        spans = collector.wait_for(with_all(store=1, deliver=4))
    found = [
        (one.attributes["messaging.consumer.group.name"], one.attributes["flintmq.queue_offset"])
        for one in spans
        if one.operation == "deliver"
    ]
    assert sorted(found) == [("audit", 0), ("audit", 1), ("billing", 0), ("billing", 1)]


def test_the_delivery_span_of_a_held_pull_begins_after_the_dispatch_span_ends(wire: Wire, collector: Collector) -> None:
    """Its answer leaves within the announcement of the dispatch, whose span must have ended by then."""
    put(wire, "Orders", b"first")
    waiting = wire.post_pull("Orders", 1, _suspend_ms=15_000)
    put(wire, "Orders", b"second")
    assert wire.answer(waiting).code == 0
    spans = collector.wait_for(with_all(deliver=1, dispatch=2))
    assert max(one.end_ns for one in named(spans, "dispatch")) <= named(spans, "deliver")[0].begin_ns


def test_no_acknowledgment_span_is_created_for_a_message_from_the_program_that_embeds_the_broker(
    site: EmbeddedBroker, collector: Collector
) -> None:
    """Nobody is answered over a connection."""
    site.put([flintmq.Message("Orders", b"hello", properties={"traceparent": SAMPLED})])
    spans = collector.wait_for(with_all(store=1, dispatch=1))
    assert not named(spans, "acknowledge")
    assert named(spans, "intake")


# the collector


def test_stopping_a_broker_pushes_the_remaining_spans_to_the_collector(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], collector: Collector
) -> None:
    """The last messages before a restart are those that somebody asks about."""
    with flintmq.Broker(configure(*tracing(collector)[:1], "tracing.otlp_interval_ms=3600000")) as broker:
        put(connect(broker))
        assert not collector.requests
    assert len(named(collector.spans, "store")) == 1


def test_a_hanging_collector_of_trace_spans_delays_no_request(
    configure: Callable[..., Any],
    connect: Callable[[Any], Wire],
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Senders and consumers are served meanwhile, what waits is bounded, and the stop comes in time."""
    collector.gate.clear()
    broker = flintmq.Broker(configure(*tracing(collector, "tracing.queue_max=64")))
    with broker:
        wire = connect(broker)
        put(wire)
        collector.wait_for_requests(1)
        for number in range(200):
            assert (
                wire.send("Orders", b"%d" % number, properties={"traceparent": SAMPLED, "UNIQ_KEY": str(number)}).code
                == 0
            )
        assert len(wire.pull_all("Orders")) == 201
        assert int(figures_of(broker)["spansDropped"]) > 0
        begin_s = time.monotonic()
    assert time.monotonic() - begin_s < 10
    assert [getattr(record, "event", "") for record in caplog.records].count("tracing.dropped") == 1


def test_a_failing_collector_of_spans_is_logged_once(
    configure: Callable[..., Any],
    connect: Callable[[Any], Wire],
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An outage of the tracing system is a line in the log; afterwards spans arrive again."""
    collector.status = 400
    caplog.set_level("INFO", "flintmq")
    with flintmq.Broker(configure(*tracing(collector))) as broker:
        wire = connect(broker)
        for requests in (1, 2):
            put(wire)
            collector.wait_for_requests(requests)
        eventually(lambda: int(figures_of(broker)["spansLost"]) > 0, "they are counted")
        collector.status = 200
        put(wire)
        collector.wait_for(with_all(store=1))
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events.count("tracing.not_pushed") == events.count("tracing.pushed_again") == 1
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_an_unreachable_collector_of_spans_does_not_delay_the_stop_of_the_broker(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    """Spans are worth less than an orderly stop of the broker."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else will
        endpoint = f"tracing.otlp_endpoint=http://127.0.0.1:{taken.getsockname()[1]}/v1/traces"
        with flintmq.Broker(configure(endpoint, "tracing.otlp_interval_ms=100")) as broker:
            put(connect(broker))
            begin_s = time.monotonic()
        assert time.monotonic() - begin_s < 10
