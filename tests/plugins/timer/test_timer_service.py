"""A message that names its time must come then: never early, never lost, across restarts and crashes, and once where nothing
goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.config.rocketmq.system_topics import TIMER_TOPIC
from flintmq.core.broker.redirected_message import UNDELIVERED_TOPIC, PutOutcome, RedirectedMessageStore
from flintmq.core.broker.sink import MessageSink
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.timer import timer_service
from flintmq.plugins.timer.plugin import longest_delay
from flintmq.plugins.timer.timer_message import TimerRedirect, due_ms
from flintmq.plugins.timer.timer_service import TimerMessageService, TimerPositions
from flintmq.plugins.timer.timer_wheel import TimerWheel
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, open_store
from flintmq.tests.support.log_parts import view_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class FailingStore(RedirectedMessageStore):
    """Refuses deliveries on demand."""

    outcomes: list[PutOutcome]

    def put_messages(self, messages: Any, topic: str, queue_id: int) -> Any:
        if self.outcomes:
            return [self.outcomes.pop(0) for _ in messages if self.outcomes]
        return super().put_messages(messages, topic, queue_id)


class Bench:
    """A real store with timers on a clock moved by hand; ``restart`` with or without a crash."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.options = options
        self.clock = ManualClock()
        self.longest_ms = 3 * DAY_MS
        self.store: MessageStore
        self.service: TimerMessageService
        self.open()

    def open(self) -> None:
        self.store = open_store(self.path, clock=self.clock, **self.options)
        stats = BrokerStats(self.clock)
        sink = MessageSink(self.store, stats, self.store.dispatch)
        self.adapter = FailingStore(view_of(self.store), stats, sink.append)
        self.adapter.outcomes = []
        folder = self.path / "flint" / "timer"
        saved = TimerPositions(self.adapter, JsonFile(folder / "position.json"))
        self.service = TimerMessageService(self.adapter, TimerWheel(folder), saved)
        self.service.load()
        self.redirect = TimerRedirect(self.clock, lambda: (self.longest_ms, "the.key"), lambda _: True)

    def restart(self, *, crash: bool = False) -> None:
        if not crash:
            self.service.persist()
        self.store.close()
        self.open()

    def send(self, body: bytes, topic: str = "T", queue_id: int = 3, **properties: str) -> None:
        made = message(topic, queue_id, body, **properties)
        assert self.redirect(made)
        self.store.put([made])
        self.store.dispatch()

    def run_until(self, end_ms: int) -> None:
        """Lets time pass as the service asks for it."""
        while True:
            next_ms = self.service.run(self.clock.now_ms())
            self.store.dispatch()
            now_ms = self.clock.now_ms()
            if next_ms > end_ms:
                self.clock.advance_ms(end_ms - now_ms)
                return
            self.clock.advance_ms(next_ms - now_ms)

    def pass_time(self, duration_ms: int, step_ms: int) -> None:
        """Lets time pass in strides, looking after each."""
        for _ in range(duration_ms // step_ms):
            self.clock.advance_ms(step_ms)
            now_ms = self.clock.now_ms()
            while self.service.run(now_ms) <= now_ms:
                self.store.dispatch()
            self.store.dispatch()

    def delivered(self, topic: str = "T", queue_id: int = 3) -> list[tuple[bytes, int]]:
        """(body, store time) of each."""
        queue = self.store.consume_queues.find(topic, queue_id)
        found = []
        at = 0
        while queue is not None and at < queue.max_queue_offset:
            for physical, size, _ in queue.units(at, 10_000):
                record = self.store.commit_log.record(physical, size)
                assert record is not None
                found.append((record.body, record.store_timestamp_ms))
                at += 1
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, commit_log_file_bytes=1 << 20, consume_queue_file_bytes=200_000)
    yield made
    made.store.close()


def test_a_timer_message_is_delivered_at_its_exact_time(bench: Bench) -> None:
    """At the time it named, at its topic and queue, with what was stored."""
    start_ms = bench.clock.now_ms()
    bench.send(b"late", TIMER_DELAY_MS=str(2 * HOUR_MS + 7), TAGS="a", own="x")
    bench.run_until(start_ms + 2 * HOUR_MS + 6)
    assert bench.delivered() == []
    bench.clock.advance_ms(1)
    assert bench.service.run(bench.clock.now_ms()) > bench.clock.now_ms()
    bench.store.dispatch()
    assert bench.delivered() == [(b"late", start_ms + 2 * HOUR_MS + 7)]
    record = bench.store.commit_log.record(bench.store.consume_queues.find("T", 3).unit(0)[0])  # type: ignore[union-attr, index]
    assert record is not None
    assert record.properties["own"] == "x"
    assert record.properties["TIMER_OUT_MS"] == str(start_ms + 2 * HOUR_MS + 7)
    assert (bench.service.delivered, bench.service.discarded, len(bench.service.wheel)) == (1, 0, 0)


def test_timer_messages_are_delivered_at_most_a_second_late(bench: Bench) -> None:
    """Times drawn at random over an hour, sent in no order, some of them while others come."""
    choose = random.Random(2)
    wanted = {}
    for number in range(300):
        delay_ms = choose.randrange(1, HOUR_MS)
        wanted[b"%d" % number] = bench.clock.now_ms() + delay_ms
        bench.send(b"%d" % number, TIMER_DELAY_MS=str(delay_ms))
        if number % 10 == 9:
            bench.run_until(bench.clock.now_ms() + 2_000)
    bench.run_until(bench.clock.now_ms() + HOUR_MS)
    got = dict(bench.delivered())
    assert len(bench.delivered()) == 300
    assert all(0 <= got[body] - due <= 1_000 for body, due in wanted.items())


@pytest.mark.parametrize("crash", [False, True])
def test_timer_messages_survive_a_restart(bench: Bench, crash: bool) -> None:
    """Nothing is lost; after a clean stop nothing comes twice, after a crash what came since the last note may."""
    for number in range(200):
        bench.send(b"%d" % number, TIMER_DELAY_MS=str((number * 37 % 200 + 1) * 60_000))
    start_ms = bench.clock.now_ms()
    bench.run_until(start_ms + 70 * 60_000 + 30_000)
    assert bench.service.persist()
    assert not bench.service.persist(), "nothing moved"
    bench.run_until(start_ms + 100 * 60_000 + 30_000)
    assert len(bench.delivered()) == 100
    bench.restart(crash=crash)
    bench.send(b"new", TIMER_DELAY_MS="60001")
    bench.run_until(start_ms + 4 * HOUR_MS)
    bodies = [body for body, _ in bench.delivered()]
    assert set(bodies) == {b"%d" % number for number in range(200)} | {b"new"}
    assert len(bodies) == (231 if crash else 201), "the thirty after the note come again, the seventy before do not"
    bench.restart()
    bench.run_until(bench.clock.now_ms() + HOUR_MS)
    assert len(bench.delivered()) == len(bodies)


def test_timer_messages_that_become_due_while_the_broker_is_stopped_are_delivered_at_its_start(bench: Bench) -> None:
    bench.send(b"a", TIMER_DELAY_SEC="30")
    bench.service.run(bench.clock.now_ms())
    bench.restart()
    bench.clock.advance_ms(DAY_MS)
    bench.service.run(bench.clock.now_ms())
    bench.service.run(bench.clock.now_ms())
    bench.store.dispatch()
    assert [body for body, _ in bench.delivered()] == [b"a"]


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_hundred_thousand_timer_messages_are_delivered_across_a_restart(bench: Bench, count: int) -> None:
    """Over three days: memory holds a minute of them at most, a restart in the middle reads the others again."""
    choose = random.Random(3)
    span_ms = 3 * DAY_MS if count == 100_000 else DAY_MS // 4
    due = [choose.randrange(1, span_ms) for _ in range(count)]
    for at in range(0, len(due), 5_000):
        made = [message("T", 3, b"%d" % delay, TIMER_DELAY_MS=str(delay)) for delay in due[at : at + 5_000]]
        assert all(bench.redirect(one) for one in made)
        bench.store.put(made)
        bench.store.dispatch()
    start_ms = bench.clock.now_ms()
    half_ms = span_ms // 2
    biggest = 0
    for _ in range(2):
        step_ms = half_ms // 50
        for _ in range(50):
            bench.pass_time(step_ms, step_ms)
            biggest = max(biggest, bench.service.wheel.in_memory)
        if bench.clock.now_ms() - start_ms == half_ms:
            bench.restart()
            now_ms = bench.clock.now_ms()
            while bench.service.run(now_ms) <= now_ms:
                bench.store.dispatch()
    assert biggest < 200
    got = [int(body) for body, _ in bench.delivered()]
    assert len(got) == count
    assert sorted(got) == sorted(due)
    assert bench.service.low_queue_offset() == count, "nothing of the log is needed any more"
    assert bench.service.runtime_info() == {"timerOffsetBehind": "0", "timerCongestNum": "0"}


def test_timer_messages_are_delivered_in_order_after_a_temporarily_refused_delivery(bench: Bench) -> None:
    """In order, from where it stopped."""
    for number in range(5):
        bench.send(b"%d" % number, TIMER_DELAY_MS="100")
    bench.clock.advance_ms(100)
    bench.adapter.outcomes = [PutOutcome.ILLEGAL, PutOutcome.LATER]
    now_ms = bench.clock.now_ms()
    assert bench.service.run(now_ms) == now_ms + 100
    assert (bench.service.delivered, bench.service.discarded, len(bench.service.wheel)) == (0, 1, 4)
    bench.service.persist()
    bench.restart(crash=True)
    bench.run_until(now_ms + 1_000)
    assert [body for body, _ in bench.delivered()] == [b"1", b"2", b"3", b"4"]


def test_a_timer_message_is_not_skipped_if_a_message_with_a_later_due_time_is_already_delivered(bench: Bench) -> None:
    """Positions noted while one waits that is due before the last delivered."""
    bench.send(b"a", TIMER_DELAY_MS="5000")
    bench.clock.advance_ms(5_000)
    bench.service.run(bench.clock.now_ms())
    bench.service.run(bench.clock.now_ms())
    assert bench.service.delivered == 1
    made = message("T", 3, b"b", TIMER_DELAY_MS="1")
    bench.clock.set_wall_clock(bench.clock.now_ms() - 3_000)
    assert bench.redirect(made)
    bench.store.put([made])
    bench.store.dispatch()
    bench.service.run(bench.clock.now_ms())
    bench.restart()
    bench.run_until(bench.clock.now_ms() + 10_000)
    bodies = [body for body, _ in bench.delivered()]
    assert sorted(bodies) == [b"a", b"b"], "each once"


def test_timer_messages_of_a_burst_are_delivered_once_although_the_service_restarts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read behind what is due later and was delivered, and still waiting at the stop: the positions name it."""
    monkeypatch.setattr(timer_service, "READ_PER_PASS", 2)
    monkeypatch.setattr(timer_service, "DELIVER_PER_PASS", 1)
    for delay_ms in (30, 40, 10, 11, 12, 13):
        bench.send(b"%d" % delay_ms, TIMER_DELAY_MS=str(delay_ms))
    bench.clock.advance_ms(100)
    for _ in range(3):
        bench.service.run(bench.clock.now_ms())
    assert bench.service.positions()["lateQueueOffsets"] == [4, 5]
    bench.restart()
    bench.run_until(bench.clock.now_ms() + 1_000)
    assert sorted(int(body) for body, _ in bench.delivered()) == [10, 11, 12, 13, 30, 40]


def test_a_stop_during_many_due_deliveries_loses_no_message(bench: Bench) -> None:
    """More than one pass reads, of which half are due at the next start: what this run delivers says nothing of those that it
    has not read again yet."""
    count = 3_000
    made = [message("T", 3, b"%d" % n, TIMER_DELAY_MS=str(4_000 + n * 37 % 5_000)) for n in range(count)]
    assert all(bench.redirect(one) for one in made)
    bench.store.put(made)
    bench.store.dispatch()
    for _ in range(5):
        bench.service.run(bench.clock.now_ms())
    bench.restart()
    bench.clock.advance_ms(6_500)
    for passes in (1, 2, 3):
        for _ in range(passes):
            bench.service.run(bench.clock.now_ms())
        bench.store.dispatch()
        bench.restart()
    bench.run_until(bench.clock.now_ms() + 5_000)
    assert sorted(int(body) for body, _ in bench.delivered()) == list(range(count))


def test_a_message_with_a_short_timer_is_delivered_despite_many_longer_timers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in memory and not due yet is no reason to read no further."""
    monkeypatch.setattr(timer_service, "READ_AHEAD_MAX", 5)
    bench.service.run(bench.clock.now_ms())
    for number in range(20):
        bench.send(b"%d" % number, TIMER_DELAY_MS="15000")
    bench.service.run(bench.clock.now_ms())
    assert bench.service.wheel.in_memory == 20
    bench.send(b"soon", TIMER_DELAY_MS="10")
    bench.run_until(bench.clock.now_ms() + 200)
    assert [body for body, _ in bench.delivered()] == [b"soon"]


def test_timer_positions_are_written_after_their_deliveries_are_on_disk(tmp_path: Path) -> None:
    """A power cut between the two would lose what was delivered."""
    bench = Bench(tmp_path, strategy=BY_HAND, commit_log_file_bytes=1 << 20)
    bench.send(b"a", TIMER_DELAY_MS="5")
    bench.clock.advance_ms(5)
    bench.service.run(bench.clock.now_ms())
    bench.service.run(bench.clock.now_ms())
    assert bench.service.delivered == 1
    assert not bench.service.persist()
    while bench.store.watermarks.flushed < bench.store.watermarks.wrote:
        bench.store.commit_log.flush(0)
    assert bench.service.persist()
    bench.store.close()


def test_timer_entries_of_a_failed_delivery_return_to_the_timer_wheel(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the wheel has given out is in nobody's hands else."""
    bench.send(b"a", TIMER_DELAY_MS="5")
    bench.service.run(bench.clock.now_ms())
    bench.clock.advance_ms(5)
    with monkeypatch.context() as broken:

        def fail(*_arguments: Any) -> None:
            raise StoreError("no")

        broken.setattr(bench.adapter, "put_messages", fail)
        with pytest.raises(StoreError):
            bench.service.run(bench.clock.now_ms())
    bench.restart()
    bench.run_until(bench.clock.now_ms() + 1_000)
    assert [body for body, _ in bench.delivered()] == [b"a"]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, None),
        ({"TIMER_DELAY_SEC": "5"}, 6_000),
        ({"TIMER_DELAY_MS": "5"}, 1_005),
        ({"TIMER_DELIVER_MS": "5"}, 5),
        ({"TIMER_DELIVER_MS": "5", "TIMER_DELAY_MS": "7", "TIMER_DELAY_SEC": "1"}, 2_000),
        ({"TIMER_DELAY_MS": "-5"}, 995),
    ],
)
def test_several_timer_properties_have_the_precedence_of_rocketmq_5(
    properties: dict[str, str], expected: int | None
) -> None:
    """The order of 5.x."""
    assert due_ms(properties, 1_000) == expected


@pytest.mark.parametrize("text", ["", "x", "1.5", "²", "9" * 19, "--1", "0x10"])
def test_a_timer_property_that_is_no_number_is_refused(bench: Bench, text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        bench.redirect(message("T", 0, TIMER_DELAY_MS=text) if text else _blank())
    assert (refused.value.code, refused.value.reason) == (13, "timer.malformed")


def _blank() -> Any:
    made = message("T", 0)
    made.properties["TIMER_DELAY_MS"] = ""
    return made


def test_a_delivery_time_beyond_the_longest_delay_is_refused(bench: Bench) -> None:
    """With the key to change; the longest itself is taken."""
    with pytest.raises(RefusedError) as refused:
        bench.redirect(message("T", 0, TIMER_DELAY_MS=str(3 * DAY_MS + 1)))
    assert (refused.value.code, refused.value.key) == (13, "the.key")
    assert bench.redirect(message("T", 0, TIMER_DELAY_MS=str(3 * DAY_MS)))


def test_a_timer_message_is_refused_if_too_many_messages_are_already_due_in_the_same_minute(bench: Bench) -> None:
    """SYSTEM_BUSY: producers come again."""
    redirect = TimerRedirect(bench.clock, lambda: (DAY_MS, ""), lambda at_ms: at_ms != bench.clock.now_ms() + 5)
    assert redirect(message("T", 0, TIMER_DELAY_MS="4"))
    with pytest.raises(RefusedError) as refused:
        redirect(message("T", 0, TIMER_DELAY_MS="5"))
    assert (refused.value.code, refused.value.key) == (2, "delay.timer_minute_max")


@pytest.mark.parametrize(
    "make",
    [
        lambda: message("T", 0, TIMER_DELAY_MS="0"),
        lambda: message("T", 0, TIMER_DELIVER_MS="1"),
        lambda: message("T", 0, TIMER_DELAY_MS="5", sys_flag=4),
        lambda: message("SCHEDULE_TOPIC_XXXX", 0, TIMER_DELAY_MS="5"),
        lambda: message(TIMER_TOPIC, 0, TIMER_DELAY_MS="5"),
        lambda: message("T", 0),
    ],
)
def test_due_messages_and_half_messages_are_not_redirected_to_the_timer_topic(
    bench: Bench, make: Callable[[], Any]
) -> None:
    """A time that has come, a half message, one with a delay level, one that waits already."""
    made = make()
    topic = made.topic
    assert not bench.redirect(made)
    assert made.topic == topic


def test_the_longest_timer_delay_is_the_retention_time() -> None:
    """A message whose file may be deleted before it is due is not taken."""
    from flintmq.config.sections.models import BrokerConfig

    config = BrokerConfig()
    assert longest_delay(config)[0] == 3 * DAY_MS
    config = attrs.evolve(config, store=attrs.evolve(config.store, file_reserved_hours=2))
    assert longest_delay(config) == (2 * HOUR_MS, "store.file_reserved_hours (fileReservedTime)")


def test_a_timer_message_whose_log_record_no_longer_exists_is_skipped_and_reported_in_a_log_line(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that was nearly full deleted their file: the others come."""
    bench.send(b"gone", TIMER_DELAY_MS="50")
    bench.send(b"kept", TIMER_DELAY_MS="50")
    bench.store.put([message(TIMER_TOPIC, 0, b"no time at all")])
    bench.store.dispatch()
    bench.service.run(bench.clock.now_ms())
    assert bench.service.discarded == 1
    first = bench.store.consume_queues.find(TIMER_TOPIC, 0).unit(0)[0]  # type: ignore[union-attr, index]
    look = bench.adapter.look_message
    bench.adapter.look_message = lambda at, size: None if at == first else look(at, size)  # type: ignore[method-assign]
    bench.run_until(bench.clock.now_ms() + 1_000)
    assert [body for body, _ in bench.delivered()] == [b"kept"]
    assert bench.service.discarded == 2
    ids = [line.rpartition(" [")[2] for line in caplog.messages if "[delivery." in line]
    assert ids == ["delivery.dead_letter]", "delivery.gone]"]
    assert bench.store.reader.max_queue_offset(UNDELIVERED_TOPIC, 0) == 1
