"""What named groups have not consumed is kept until a bound wins, and then everybody is told."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flintmq.config import load_text
from flintmq.config.purposes import starting_yaml
from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from flintmq.core.broker.consumers import ConsumerTable
from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.log_files import LogFiles
from flintmq.core.broker.readers import Readers
from flintmq.core.broker.redirected_message import redirect
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.retention.retention import Bound, Deletion, LogFile, Reason, RetentionPolicy, bound_for_groups
from flintmq.core.store.message_reader import GetMessageStatus
from flintmq.plugins.retention import unread
from flintmq.plugins.retention.cleaner import CleanCommitLogService
from flintmq.plugins.retention.unread import ALARM_MS
from flintmq.testing.processor_kit import RecordingChannel
from flintmq.testing.store import message
from flintmq.tests.support.log_parts import view_of

from .test_cleaner import BODY, FILE, HOUR_MS, Bench, make_bench  # noqa: F401 - a fixture

GROUPS = ("billing",)


def expire(bench: Bench, hours: int = 73) -> None:
    """Lets the log's messages become so old, and another one the newest."""
    bench.clock.advance_ms(hours * HOUR_MS)


def told(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def test_expired_files_with_unread_messages_are_deleted_by_default(make: Any) -> None:
    """Off by default: files go when they expire."""
    bench = make()
    bench.fill(12)
    bench.offsets.commit("T", "billing", 0, 2)
    expire(bench)
    bench.manual_round()
    assert bench.log_names == [2 * FILE]


def test_a_log_file_is_kept_until_the_configured_groups_have_consumed_all_of_its_messages(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And queue files with it: the group still gets its messages. Another group's do not count."""
    bench = make(keep_for_groups=GROUPS)
    bench.fill(12)
    bench.offsets.commit("T", "billing", 0, 5)
    bench.offsets.commit("T", "other", 0, 0)
    expire(bench)
    bench.manual_round()
    assert bench.log_names[0] == FILE  # the first file has the messages 0 to 3
    bench.manual_round()
    assert bench.log_names[0] == FILE
    kept = told(caplog, "group billing has not consumed 3 messages")
    assert len(kept) == 1
    assert "it is kept (store.keep_for_groups)" in kept[0]
    found = bench.store.reader.get_message("T", 0, 5, 32, None)
    assert found.status is GetMessageStatus.FOUND
    assert bench.store.consume_queues.find("T", 0).min_queue_offset == 4
    bench.offsets.commit("T", "billing", 0, 8)
    bench.manual_round()
    assert bench.log_names[0] == 2 * FILE
    assert bench.cleaner.lost_alarms == []


def test_deleting_unread_messages_after_the_maximum_retention_time_raises_an_alarm(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With a line of log, and an alarm that stands for an hour."""
    bench = make(keep_for_groups=GROUPS, keep_at_most_hours=100)
    bench.fill(8)
    bench.clock.advance_ms(50 * HOUR_MS)
    bench.fill(4)
    bench.offsets.commit("T", "billing", 0, 2)
    bench.clock.advance_ms(40 * HOUR_MS)
    bench.manual_round()
    assert bench.log_names[0] == 0
    bench.clock.advance_ms(11 * HOUR_MS)
    bench.manual_round()
    # The second file's newest message is known by the third file's first one, which is younger.
    assert bench.log_names[0] == FILE
    lost = told(caplog, "was kept for a group and is deleted all the same")
    assert len(lost) == 1
    assert "group billing has not consumed 2 messages (T queue 0: 2)" in lost[0]
    assert "101.0 hours old, 100 may be; see store.keep_at_most_hours" in lost[0]
    (alarm,) = bench.cleaner.lost_alarms
    assert (alarm.id, alarm.level, alarm.subject) == ("retention.bound_won", "warning", "billing")
    assert (alarm.value, alarm.unit, alarm.key) == (2, "messages", "store.keep_at_most_hours")
    bench.clock.advance_ms(ALARM_MS - 1)
    assert bench.cleaner.lost_alarms
    bench.clock.advance_ms(1)
    assert bench.cleaner.lost_alarms == []


def test_deleting_several_files_with_unread_messages_on_a_nearly_full_disk_raises_one_alarm(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An emergency deletes what it must, and the loss of several files is one alarm."""
    bench = make(keep_for_groups=GROUPS)
    bench.fill(12)
    bench.offsets.commit("T", "billing", 0, 1)
    bench.disk.used = 80
    bench.cleaner.run()
    assert bench.log_names[0] == 0  # room is wanted, and nothing has expired
    bench.disk.used = 88
    bench.cleaner.run()
    assert bench.log_names == [2 * FILE]
    assert len(told(caplog, "see store.disk_forcible_ratio")) == 2
    (alarm,) = bench.cleaner.lost_alarms
    assert (alarm.value, alarm.key) == (7, "store.disk_forcible_ratio")


def test_the_configured_retention_size_does_not_cause_deletion_of_files_with_unread_messages(make: Any) -> None:
    """``retention_bytes`` is no emergency."""
    bench = make(keep_for_groups=GROUPS, retention_bytes=1)
    bench.fill(12)
    bench.offsets.commit("T", "billing", 0, 4)
    bench.cleaner.run()
    assert bench.log_names[0] == FILE


@pytest.mark.parametrize("who", ["never", "deleted"])
def test_expired_log_files_are_deleted_if_the_configured_group_has_no_stored_offsets(
    make: Any, caplog: pytest.LogCaptureFixture, who: str
) -> None:
    """Once; and again only after it had some."""
    bench = make(keep_for_groups=GROUPS)
    bench.fill(12)
    if who == "deleted":
        bench.offsets.commit("T", "billing", 0, 0)
        bench.offsets.remove_group("billing")
    expire(bench)
    bench.manual_round()
    bench.manual_round()
    assert bench.log_names == [2 * FILE]
    assert len(told(caplog, "group billing of store.keep_for_groups has stored no offset")) == 1


def test_unread_retry_messages_are_kept_for_a_group_chosen_in_the_settings(make: Any) -> None:
    """A queue that was added, and what it sent back: an offset there comes with its first pull."""
    bench = make(keep_for_groups=GROUPS)
    bench.fill(4, queue_id=1)
    bench.fill(4, topic="%RETRY%billing")
    bench.fill(4)
    bench.offsets.commit("T", "billing", 0, 4)
    expire(bench)
    bench.manual_round()
    assert bench.log_names[0] == 0
    bench.offsets.commit("T", "billing", 1, 4)
    bench.manual_round()
    assert bench.log_names[0] == FILE
    bench.offsets.commit("%RETRY%billing", "billing", 0, 4)
    bench.manual_round()
    assert bench.log_names[0] >= 2 * FILE


def test_messages_are_deleted_from_topics_that_are_not_read_by_any_group_chosen_in_the_settings(make: Any) -> None:
    """New topics are none of its own before its first offset there."""
    bench = make(keep_for_groups=GROUPS)
    bench.fill(4, topic="New")
    bench.fill(8)
    bench.offsets.commit("T", "billing", 0, 0)
    expire(bench)
    bench.manual_round()
    assert bench.log_names[0] == FILE


def test_the_retention_of_a_topic_keeps_unread_messages_of_a_group_chosen_in_the_settings(make: Any) -> None:
    """``topic_retention`` moves the queue's minimum to what the group needs, and on when the bound wins."""
    bench = make(keep_for_groups=GROUPS, keep_at_most_hours=48, topic_retention=("T=1h",))
    bench.fill(12)
    bench.offsets.commit("T", "billing", 0, 5)
    bench.clock.advance_ms(2 * HOUR_MS)
    bench.cleaner.expire_topics()
    queue = bench.store.consume_queues.find("T", 0)
    assert queue.min_queue_offset == 5
    bench.clock.advance_ms(47 * HOUR_MS)
    bench.cleaner.expire_topics()
    assert queue.min_queue_offset == 12


def test_the_search_for_unread_messages_is_split_into_several_event_loop_iterations(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Thousands of queues must not hold up the loop."""
    caplog.set_level(logging.ERROR)
    bench = make(keep_for_groups=GROUPS)
    for queue_id in range(300):
        bench.fill(1, queue_id=queue_id)
        bench.offsets.commit("T", "billing", queue_id, 0)
    expire(bench)
    bench.cleaner.delete_manually()
    assert len(list(bench.cleaner.steps())) >= 4
    assert bench.log_names[0] == 0


def test_a_file_of_unknown_age_with_unread_messages_is_kept_unless_the_disk_is_nearly_full(make: Any) -> None:
    """Until its age is known, no bound can win but the disk's."""
    policy = RetentionPolicy.of(make(keep_for_groups=GROUPS).store.config.store)
    file = LogFile(0, FILE, None)
    assert bound_for_groups(Deletion(file, Reason.BYTES), 10**15, policy) is None
    assert bound_for_groups(Deletion(file, Reason.FORCIBLY), 0, policy) == Bound(
        Reason.FORCIBLY.value, "store.disk_forcible_ratio"
    )


# what is on its way


class OnTheWay(Bench):
    """A bench with a delay level's, a timer's and a half message's topic, and how far the broker has come in each."""

    def open(self) -> None:
        super().open()
        self.next = dict.fromkeys((SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC), 0)
        self.done: set[int] = set()
        self.groups = SubscriptionGroupManager(None, self.clock)
        self.consumers = ConsumerTable(self.clock)
        readers = Readers(self.offsets, self.groups, self.consumers)
        for topic in self.next:
            readers.add(topic, partial(self._next, topic), is_done=self.done.__contains__)
        self.cleaner = CleanCommitLogService(LogFiles(self.store, view_of(self.store)), readers)

    def _next(self, topic: str, _queue_id: int) -> int:
        return self.next[topic]

    def put(self, topic: str, real_topic: str = "") -> None:
        """Store a message of a quarter of a file, which waits for a topic where one is named."""
        one = message(topic, 0, BODY)
        if real_topic:
            one.topic = real_topic
            redirect(one, topic, 0)
        self.store.put([one])
        self.store.dispatch()

    @property
    def first(self) -> int:
        """Number of the log's first file, counted from 0."""
        return self.log_names[0] // FILE


@pytest.fixture(name="way")
def make_way(tmp_path: Path) -> Any:
    made: list[OnTheWay] = []

    def make(**options: Any) -> OnTheWay:
        made.append(OnTheWay(tmp_path / f"way{len(made)}", **options))
        return made[-1]

    yield make
    for bench in made:
        bench.store.close()


WAITS = [
    (SCHEDULE_TOPIC, "T"),
    (SCHEDULE_TOPIC, "%RETRY%billing"),
    (TIMER_TOPIC, "T"),
    (TIMER_TOPIC, "%RETRY%billing"),
    (TRANS_HALF_TOPIC, "T"),
]


@pytest.mark.parametrize(("waits_in", "real_topic"), WAITS)
@pytest.mark.parametrize("setting", ["keep_for_groups", "hold_until_consumed"])
def test_the_setting_that_keeps_unread_messages_also_keeps_undelivered_delayed_messages(
    way: Any, waits_in: str, real_topic: str, setting: str
) -> None:
    """A message that had been sent back and waited for its level was deleted by retention_bytes; so was a half message."""
    bench = way(retention_bytes=1, **{setting: GROUPS if setting == "keep_for_groups" else True})
    bench.groups.select("billing")
    bench.offsets.commit("T", "billing", 0, 0)
    bench.put(waits_in, real_topic)
    for _ in range(12):
        bench.put("Other")
    bench.cleaner.run()
    assert bench.first == 0
    bench.put(real_topic)
    bench.next[waits_in] = 1
    for _ in range(8):
        bench.put("Other")
    bench.cleaner.run()
    assert bench.first == 3, "it was delivered: its copy is kept now"
    bench.offsets.commit(real_topic, "billing", 0, 1)
    bench.cleaner.run()
    assert bench.first == 5


def test_extended_retention_for_some_groups_does_not_keep_delayed_messages_of_other_groups(way: Any) -> None:
    """keep_for_groups names who must get its messages: the rest goes as it would without."""
    bench = way(retention_bytes=1, keep_for_groups=GROUPS)
    bench.offsets.commit("T", "billing", 0, 0)
    for topic in bench.next:
        bench.put(topic, "Other")
        bench.put(topic, "%RETRY%other")
    for _ in range(8):
        bench.put("Other")
    bench.cleaner.run()
    assert bench.first > 1


def test_a_half_message_of_an_ended_transaction_is_not_kept(way: Any) -> None:
    """One in front of it holds the position back; each file is judged by what is still open in it."""
    bench = way(retention_bytes=1, keep_for_groups=GROUPS)
    bench.offsets.commit("T", "billing", 0, 0)
    bench.put(TRANS_HALF_TOPIC, "Other")
    bench.put(TRANS_HALF_TOPIC, "T")
    for _ in range(8):
        bench.put("Other")
    bench.done.add(1)
    bench.cleaner.run()
    assert bench.first > 0


def test_a_file_with_too_many_delayed_or_half_messages_to_check_is_kept(
    way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is not found out for whom a message waits, it is not deleted."""
    monkeypatch.setattr(unread, "LOOKED_AT_MAX", 2)
    monkeypatch.setattr(unread, "_SLICE_MESSAGES", 1)
    bench = way(retention_bytes=1, keep_for_groups=GROUPS)
    bench.offsets.commit("T", "billing", 0, 0)
    for _ in range(3):
        bench.put(SCHEDULE_TOPIC, "Other")
    for _ in range(8):
        bench.put("Other")
    bench.cleaner.run()
    assert bench.first == 0


# who reads a topic


def test_a_queue_keeps_its_messages_if_a_group_that_reads_the_topic_has_no_offset_for_the_queue(way: Any) -> None:
    """A group that had come to one queue of two lost 18 of 20 messages, though nothing unread was to be deleted."""
    bench = way(retention_bytes=1, hold_until_consumed=True)
    bench.fill(4, queue_id=0)
    bench.fill(4, queue_id=1)
    bench.fill(8, topic="Other")
    bench.offsets.commit("T", "g", 0, 4)
    bench.cleaner.run()
    assert bench.first == 1
    bench.offsets.commit("T", "g", 1, 4)
    bench.cleaner.run()
    assert bench.first == 3


@pytest.mark.parametrize(("reads", "begins"), [((), 2), ((0,), 1), ((1,), 0), ((0, 1), 2)])
def test_a_broker_with_the_durable_configuration_template_keeps_messages_that_a_group_has_not_read(
    way: Any, reads: tuple[int, ...], begins: int
) -> None:
    """What a group has not read of its topics stays, however old it is; what no group reads goes."""
    store = load_text(starting_yaml("durable")).config.store
    bench = way(
        hold_until_consumed=store.hold_until_consumed,
        hold_max_bytes=store.hold_max_bytes,
        file_reserved_hours=store.file_reserved_hours,
    )
    bench.fill(4, queue_id=0)
    bench.fill(4, queue_id=1)
    bench.fill(1, topic="Other")
    for queue_id in reads:
        bench.offsets.commit("T", "g", queue_id, 4)
    expire(bench, 10 * store.file_reserved_hours)
    bench.manual_round()
    assert bench.first == begins


@pytest.mark.parametrize("model", ["CLUSTERING", "BROADCASTING"])
@pytest.mark.parametrize("setting", ["keep_for_groups", "hold_until_consumed"])
def test_messages_are_kept_for_a_connected_group_without_offsets(way: Any, model: str, setting: str) -> None:
    """Its first offset comes with its first messages; until then they were nobody's. Who broadcasts keeps offsets itself."""
    bench = way(retention_bytes=1, **{setting: GROUPS if setting == "keep_for_groups" else True})
    bench.consumers.register("billing", RecordingChannel(), "c", [SubscriptionData(topic="T")], message_model=model)
    bench.fill(12)
    bench.cleaner.run()
    assert bench.first == (0 if model == "CLUSTERING" else 2)


def test_retry_messages_are_kept_for_every_existing_group(way: Any) -> None:
    """A group's first offset in its retry topic comes after its first retry; a group that was deleted holds nothing."""
    bench = way(retention_bytes=1, hold_until_consumed=True)
    bench.groups.select("g")
    bench.put("%RETRY%gone")
    bench.fill(3, topic="Other")
    bench.put("%RETRY%g")
    bench.fill(8, topic="Other")
    bench.cleaner.run()
    assert bench.first == 1


def test_messages_are_deleted_from_a_topic_that_is_not_read_by_any_group(way: Any) -> None:
    """The text of the setting says so."""
    bench = way(retention_bytes=1, hold_until_consumed=True)
    bench.fill(12)
    bench.cleaner.run()
    assert bench.first == 2


def test_the_retention_of_a_topic_keeps_unread_messages_up_to_hold_max_bytes(way: Any) -> None:
    """Up to hold_max_bytes, as with files."""
    bench = way(hold_until_consumed=True, topic_retention=("T=1h",))
    bench.fill(12)
    bench.offsets.commit("T", "g", 0, 5)
    bench.clock.advance_ms(2 * HOUR_MS)
    bench.cleaner.expire_topics()
    queue = bench.store.consume_queues.find("T", 0)
    assert queue.min_queue_offset == 5
    bench.configure(hold_max_bytes=FILE)
    bench.cleaner.expire_topics()
    assert queue.min_queue_offset == 8


# what is told


def test_one_line_is_logged_for_each_deleted_file_with_unread_messages(
    way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """344 lines a file are read by nobody."""
    bench = way(retention_bytes=1)
    bench.fill(12)
    for number in range(300):
        bench.offsets.commit("T", f"g{number}", 0, 1)
    bench.offsets.commit("T", "worst", 0, 0)
    bench.cleaner.run()
    lines = told(caplog, "has not consumed")
    assert len(lines) == 2
    worst = "group worst has not consumed 4 messages (T queue 0: 4)"
    assert f"{worst}, and 300 other groups have not consumed 900 messages" in lines[0]
    caplog.clear()
    named = way(retention_bytes=1, keep_for_groups=tuple(f"g{number}" for number in range(300)), keep_at_most_hours=100)
    named.fill(4)
    named.clock.advance_ms(101 * HOUR_MS)
    named.fill(8)
    for number in range(300):
        named.offsets.commit("T", f"g{number}", 0, number % 4)
    named.clock.advance_ms(101 * HOUR_MS)
    named.cleaner.run()
    assert len(told(caplog, "has not consumed")) == 2
    assert len(named.cleaner.lost_alarms) == 300


def test_deleting_unexpired_files_is_logged_and_raises_an_alarm(way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Files, messages, age, and who loses: in the log for each file, and as an alarm that sums them up for an hour."""
    bench = way()
    bench.fill(12)
    bench.offsets.commit("T", "slow", 0, 1)
    bench.offsets.commit("T", "slower", 0, 0)
    bench.clock.advance_ms(3 * HOUR_MS)
    bench.disk.used = 88
    bench.cleaner.run()
    lines = told(caplog, "before it has expired")
    assert [line.split(": ", 1)[1] for line in lines] == [
        "4 messages, the newest is 3.0 hours old; groups that lose messages: slower 4, slow 3",
        "4 messages, the newest is 3.0 hours old; groups that lose messages: slow 4, slower 4",
    ]
    (alarm,) = bench.cleaner.forced_alarms
    assert (alarm.id, alarm.level, alarm.value) == ("retention.deleted_unexpired", "warning", 8)
    assert "2 files" in alarm.message
    assert "the newest is 3.0 hours old; groups that lose messages: slower 8, slow 7" in alarm.message
    bench.clock.advance_ms(ALARM_MS)
    assert bench.cleaner.forced_alarms == []


def test_deleting_expired_files_on_a_nearly_full_disk_raises_no_alarm(
    way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """They would have gone at night."""
    bench = way()
    bench.fill(12)
    bench.clock.advance_ms(80 * HOUR_MS)
    bench.disk.used = 88
    bench.cleaner.run()
    assert bench.first > 0
    assert told(caplog, "before it has expired") == []
    assert bench.cleaner.forced_alarms == []
