"""Messages may lie in queues that a topic had once: whoever looks for them must know how many those were."""

from __future__ import annotations

import pytest

from flintmq.core.broker.queue_widths import QueueWidths
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.broker.topics import TopicConfigManager
from flintmq.core.errors import JsonTypeError
from flintmq.testing.clock import ManualClock


def topic(read: int, write: int) -> TopicConfig:
    return TopicConfig(topic_name="T", read_queue_nums=read, write_queue_nums=write)


def unread(widths: QueueWidths) -> dict[str, range]:
    return {config.topic_name: queue_ids for config, queue_ids in widths}


def test_the_largest_queue_count_that_a_topic_ever_had_is_remembered_until_the_topic_is_deleted() -> None:
    """Step by step, and from the widest that it ever was."""
    topics = TopicConfigManager(None, ManualClock(), {})
    for read, write, beyond, all_queues in (
        (8, 8, None, 8),
        (8, 4, None, 8),  # they are still read
        (4, 4, range(4, 8), 8),
        (2, 2, range(2, 8), 8),
        (6, 6, range(6, 8), 8),
        (9, 9, None, 9),
        (4, 12, range(4, 12), 12),
    ):
        topics.put(topic(read, write))
        assert unread(topics.widths) == ({"T": beyond} if beyond is not None else {})
        assert topics.widths.queue_ids("T") == range(all_queues)
    topics.delete("T")
    topics.put(topic(2, 2))
    assert unread(topics.widths) == {}
    assert topics.widths.queue_ids("unknown") == range(0)


def test_a_slave_keeps_the_largest_queue_count_of_a_topic_if_its_master_sends_a_smaller_count() -> None:
    """A slave takes over the table of its master; a start finds queues on disk."""
    topics = TopicConfigManager(None, ManualClock(), {"T": topic(8, 8)})
    other = TopicConfigManager(None, ManualClock(), {"T": topic(4, 4)})
    topics.replace(other.to_wire())
    assert unread(topics.widths) == {"T": range(4, 8)}
    with pytest.raises(JsonTypeError):
        topics.replace({"topicConfigTable": {"T": {"readQueueNums": "x"}}})
    assert unread(topics.widths) == {"T": range(4, 8)}
    other.widths.note_queues([("T", 3), ("T", 9), ("T", 5), ("gone", 7)])
    assert unread(other.widths) == {"T": range(4, 10)}
