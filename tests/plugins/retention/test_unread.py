"""What named groups have not consumed is kept until a bound wins, and then everybody is told."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from flintmq.core.retention.retention import Bound, Deletion, LogFile, Reason, RetentionPolicy, bound_for_groups
from flintmq.core.store.message_reader import GetMessageStatus
from flintmq.plugins.retention.unread import ALARM_MS

from .test_cleaner import FILE, HOUR_MS, Bench, make_bench  # noqa: F401 - a fixture

GROUPS = ("billing",)


def expire(bench: Bench, hours: int = 73) -> None:
    """Lets the log's messages become so old, and another one the newest."""
    bench.clock.advance_ms(hours * HOUR_MS)


def told(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def test_nothing_is_kept_unless_groups_are_named(make: Any) -> None:
    """Off by default: files go when they expire."""
    bench = make()
    bench.fill(12)
    bench.offsets.commit("T", "billing", 0, 2)
    expire(bench)
    bench.manual_round()
    assert bench.log_names == [2 * FILE]


def test_a_file_stays_until_the_group_has_consumed_it(make: Any, caplog: pytest.LogCaptureFixture) -> None:
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


def test_the_age_wins_at_last_and_is_told(make: Any, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_nearly_full_disk_wins_at_once(make: Any, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_longer_log_is_kept_as_well(make: Any) -> None:
    """``retention_bytes`` is no emergency."""
    bench = make(keep_for_groups=GROUPS, retention_bytes=1)
    bench.fill(12)
    bench.offsets.commit("T", "billing", 0, 4)
    bench.cleaner.run()
    assert bench.log_names[0] == FILE


@pytest.mark.parametrize("who", ["never", "deleted"])
def test_a_group_without_offsets_holds_nothing_and_that_is_told(
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


def test_queues_it_has_not_come_to_and_its_retries_are_kept(make: Any) -> None:
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


def test_a_topic_it_does_not_read_is_not_kept(make: Any) -> None:
    """New topics are none of its own before its first offset there."""
    bench = make(keep_for_groups=GROUPS)
    bench.fill(4, topic="New")
    bench.fill(8)
    bench.offsets.commit("T", "billing", 0, 0)
    expire(bench)
    bench.manual_round()
    assert bench.log_names[0] == FILE


def test_a_topic_that_is_kept_for_less_passes_over_what_is_kept(make: Any) -> None:
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


def test_the_work_comes_in_slices(make: Any, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_file_of_unknown_age_is_kept(make: Any) -> None:
    """Until its age is known, no bound can win but the disk's."""
    policy = RetentionPolicy.of(make(keep_for_groups=GROUPS).store.config.store)
    file = LogFile(0, FILE, None)
    assert bound_for_groups(Deletion(file, Reason.BYTES), 10**15, policy) is None
    assert bound_for_groups(Deletion(file, Reason.FORCIBLY), 0, policy) == Bound(
        Reason.FORCIBLY.value, "store.disk_forcible_ratio"
    )
