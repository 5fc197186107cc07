"""A delayed message must come once it is due, at its real topic, with what was stored; never early, never lost."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from flintmq.core.broker.redirected_message import UNDELIVERED_TOPIC, PutOutcome, delivery_of
from flintmq.core.errors import FlintError
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.record import properties as props
from flintmq.core.record.record import MessageExtBrokerInner, Record
from flintmq.dispatchers.consume_queue.delay_times import DelayLevels
from flintmq.plugins.delay import schedule as schedule_module
from flintmq.plugins.delay.plugin import redirect_to_schedule
from flintmq.plugins.delay.schedule import ScheduleMessageService

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
NOW = 1_700_000_000_000


def message(
    properties: dict[str, str], topic: str = "T", queue_id: int = 1, sys_flag: int = 0
) -> MessageExtBrokerInner:
    raw = props.properties_to_string(properties).encode()
    return MessageExtBrokerInner(topic, queue_id, b"body", properties, raw, 5, HOST, HOST, 3, sys_flag, 2)


class FakeStore:
    """Schedule queues as lists, and what was put."""

    def __init__(self) -> None:
        self.queues: dict[int, list[tuple[int, int, int]]] = {}
        self.min: dict[int, int] = {}
        self.records: dict[int, Record] = {}
        self.put: list[MessageExtBrokerInner] = []
        self.outcomes: list[PutOutcome] = []
        self.flushed_offset_bytes = 0

    @property
    def wrote_offset_bytes(self) -> int:
        return 100 * len(self.put)

    def add(self, text: str, level: int, due_ms: int, **more: str) -> None:
        inner = message({"n": text, props.DELAY: str(level), **more})
        redirect_to_schedule(inner, DelayLevels())
        at = len(self.records) * 100
        raw = inner.properties_bytes
        self.records[at] = Record(
            inner.topic, inner.queue_id, 0, at, 100, 3, inner.sys_flag, 0, 5, HOST, NOW, HOST, 2, 0, b"body", raw
        )
        self.queues.setdefault(level - 1, []).append((at, 100, due_ms))

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.min.get(queue_id, 0)

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get(queue_id, ()))

    def queue_units(
        self, topic: str, queue_id: int, queue_offset: int, max_units: int
    ) -> Iterable[tuple[int, int, int]]:
        return self.queues[queue_id][queue_offset : queue_offset + max_units]

    def look_message(self, commit_log_offset_bytes: int, size_bytes: int) -> Record | None:
        return self.records.get(commit_log_offset_bytes)

    def put_messages(
        self, messages: Sequence[MessageExtBrokerInner], topic: str, queue_id: int
    ) -> Sequence[PutOutcome]:
        outcomes: list[PutOutcome] = []
        for _ in messages:
            later = PutOutcome.LATER in outcomes
            outcomes.append(PutOutcome.LATER if later else self.outcomes.pop(0) if self.outcomes else PutOutcome.STORED)
        self.put += [m for m, outcome in zip(messages, outcomes, strict=True) if outcome is PutOutcome.STORED]
        return outcomes

    @property
    def names(self) -> list[str]:
        return [m.properties["n"] for m in self.put]


def service(store: FakeStore, file: JsonFile | None = None) -> ScheduleMessageService:
    return ScheduleMessageService(store, DelayLevels(), file)


def test_a_delay_level_above_the_highest_configured_level_is_reduced_to_the_highest_level() -> None:
    levels = DelayLevels("1s 2m 3h 4d")
    assert [levels.delay_ms(level) for level in (0, 1, 2, 3, 4, 5)] == [
        1000,
        1000,
        120_000,
        10_800_000,
        345_600_000,
        1000,
    ]
    assert [levels.clamp(level) for level in (-1, 0, 4, 99)] == [0, 0, 4, 4]
    assert DelayLevels().max_level == 18
    for broken in ("", "5", "1w", "s", "-1s"):
        with pytest.raises(FlintError):
            DelayLevels(broken)


def test_a_delayed_message_is_redirected_to_the_schedule_topic() -> None:
    inner = message({props.DELAY: "99", "k": "v", props.WAIT: "true"})
    assert redirect_to_schedule(inner, DelayLevels())
    assert (inner.topic, inner.queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)
    expected = {"DELAY": "18", "k": "v", "WAIT": "true", "REAL_TOPIC": "T", "REAL_QID": "1"}
    assert inner.properties == expected
    assert props.string_to_properties(inner.properties_bytes.decode()) == expected


@pytest.mark.parametrize("delay", ["0", "-1", "", "x", "1.5", "²", "9" * 50])
def test_a_message_without_a_delay_is_not_redirected(delay: str) -> None:
    inner = message({props.DELAY: delay})
    assert not redirect_to_schedule(inner, DelayLevels())
    assert inner.topic == "T"


def test_half_messages_of_transactions_are_never_delayed() -> None:
    assert not redirect_to_schedule(message({props.DELAY: "1"}, sys_flag=4), DelayLevels())
    assert redirect_to_schedule(message({props.DELAY: "1"}, sys_flag=8), DelayLevels())


def test_a_delayed_message_is_delivered_to_its_original_topic_and_queue_with_its_properties() -> None:
    store = FakeStore()
    store.add("a", 1, NOW)
    record = store.records[0]
    delivered = delivery_of(record)
    assert delivered is not None
    assert (delivered.topic, delivered.queue_id, delivered.reconsume_times, delivered.flag) == ("T", 1, 2, 3)
    assert props.DELAY not in delivered.properties
    assert delivered.properties_bytes == record.properties_bytes
    assert not delivered.wait
    assert delivered.born_timestamp_ms == 5


def test_delayed_messages_are_delivered_in_the_order_of_their_due_times() -> None:
    store = FakeStore()
    for number in range(4):
        store.add(str(number), 2, NOW + 100 * number)
    store.add("other level", 1, NOW + 900)
    delays = service(store)
    assert delays.run_due(NOW - 1) == NOW
    assert store.put == []
    assert delays.run_due(NOW + 150) == NOW + 200
    assert store.names == ["0", "1"]
    assert delays.run_due(NOW + 300) == NOW + 900
    assert delays.run_due(NOW + 900) == NOW + 1_900
    assert store.names == ["0", "1", "2", "3", "other level"]
    assert delays.delivered == 5
    assert delays.runtime_info() == {"scheduleMessageOffset_1": "1,1", "scheduleMessageOffset_2": "4,4"}


def test_setting_the_clock_back_does_not_delay_the_delivery_of_delayed_messages() -> None:
    store = FakeStore()
    store.add("a", 1, NOW + 1_001)
    service(store).run_due(NOW)
    assert store.names == ["a"], "due later than the level's delay from now: stored before the clock went back"


def test_a_failed_delivery_is_retried_before_later_messages() -> None:
    store = FakeStore()
    for number in range(3):
        store.add(str(number), 1, NOW)
    store.outcomes = [PutOutcome.STORED, PutOutcome.LATER]
    delays = service(store)
    assert delays.run_due(NOW) == NOW + 100
    assert delays.offset(1) == 1
    delays.run_due(NOW + 100)
    assert store.names == ["0", "1", "2"]
    assert delays.offset(1) == 3


def test_undeliverable_messages_are_counted_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore()
    for text in ("gone", "half", "illegal", "good"):
        store.add(text, 1, NOW)
    del store.records[0]
    half = store.records[100]
    half.properties_bytes = b"REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010"
    store.outcomes = [PutOutcome.ILLEGAL]
    delays = service(store)
    with caplog.at_level(logging.ERROR):
        delays.run_due(NOW)
    letters = [put for put in store.put if put.topic == UNDELIVERED_TOPIC]
    assert [put.properties["n"] for put in store.put if put.topic == "T"] == ["good"]
    assert [letter.properties_bytes for letter in letters] == [
        half.properties_bytes,
        store.records[200].properties_bytes,
    ]
    assert (delays.delivered, delays.discarded, delays.offset(1)) == (1, 3, 4)
    ids = [line.rpartition(" [")[2] for line in caplog.messages]
    assert ids == ["delivery.gone]", "delivery.dead_letter]", "delivery.dead_letter]"]


def test_an_error_is_logged_if_a_delayed_message_cannot_be_stored_even_as_a_dead_letter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A RocketMQ may have taken NUL in properties, which this store takes nowhere."""
    store = FakeStore()
    store.add("illegal", 1, NOW, UNIQ_KEY="U1")
    store.outcomes = [PutOutcome.ILLEGAL, PutOutcome.ILLEGAL]
    delays = service(store)
    with caplog.at_level(logging.ERROR):
        delays.run_due(NOW)
    assert (delays.delivered, delays.discarded, delays.offset(1)) == (0, 1, 1)
    (line,) = caplog.messages
    assert line.startswith("message U1 for T is not delivered")
    assert line.endswith("position 0 until that expires [delivery.kept]")


def test_writing_a_dead_letter_is_retried_while_the_store_refuses_writes(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk is no reason to pass a message over."""
    store = FakeStore()
    store.add("illegal", 1, NOW)
    store.outcomes = [PutOutcome.ILLEGAL, PutOutcome.LATER]
    delays = service(store)
    assert delays.run_due(NOW) == NOW + 100
    assert (delays.discarded, delays.offset(1), caplog.messages) == (0, 0, [])
    store.outcomes = [PutOutcome.ILLEGAL]
    delays.run_due(NOW + 100)
    assert (delays.discarded, delays.offset(1)) == (1, 1)
    assert [put.topic for put in store.put] == [UNDELIVERED_TOPIC]


def test_one_call_of_run_due_delivers_at_most_a_fixed_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_module, "UNITS_PER_PASS", 2)
    store = FakeStore()
    for number in range(3):
        store.add(str(number), 1, NOW)
    delays = service(store)
    assert delays.run_due(NOW) == NOW
    assert delays.run_due(NOW) == NOW + 1_000
    assert delays.delivered == 3


def test_delay_offsets_are_written_to_disk_only_after_the_delivered_messages_are_on_disk(tmp_path: Path) -> None:
    """Under a steady load the log's end is never on disk: what was delivered before it was synced is written all the same."""
    file = JsonFile(tmp_path / "delayOffset.json")
    store = FakeStore()
    delays = service(store, file)
    store.add("a", 1, NOW)
    delays.run_due(NOW)
    assert not delays.persist()
    store.add("b", 1, NOW)
    delays.run_due(NOW)
    store.flushed_offset_bytes = 100
    assert delays.persist()
    assert file.load() == {"offsetTable": {1: 1}}
    assert not delays.persist()
    store.flushed_offset_bytes = 200
    assert delays.persist()
    assert file.load() == {"offsetTable": {1: 2}}


def test_delay_offsets_survive_a_restart_and_are_clamped_to_the_offset_range_of_the_delay_queue(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "delayOffset.json")
    store = FakeStore()
    store.add("a", 1, NOW)
    store.add("b", 3, NOW)
    delays = service(store, file)
    delays.run_due(NOW)
    assert not delays.persist(), "a power cut could still take the delivered copies"
    store.flushed_offset_bytes = store.wrote_offset_bytes
    assert delays.persist()
    assert not delays.persist()
    assert file.path.read_text() == '{\n\t"offsetTable":{1:1,3:1\n\t}\n}'
    again = service(store, file)
    assert again.load()
    again.run_due(NOW)
    assert store.names == ["a", "b"]
    file.save({"offsetTable": {"1": 99, "3": 0, "7": 5}})
    store.min[2] = 1
    cut = service(store, file)
    cut.load()
    assert [cut.offset(level) for level in (1, 3, 7)] == [1, 1, 0]
    assert not service(store).load()
