"""The names of topics that are reserved for the broker (``TopicValidator`` of RocketMQ).

The names are reserved even if the broker does not use them, because another broker that used them may have written the store.
Some of these topics contain messages of all other topics, so clients may neither read nor write them.
"""

from __future__ import annotations

from typing import Final

AUTO_CREATE_TOPIC: Final = "TBW102"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Topic of messages that wait for the delay of their delay level. Queue n - 1 contains the messages of level n."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Topic of messages that wait for the delivery time in their properties, as in RocketMQ 5. No table of topics contains this
topic, so clients do not see it."""
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Topic of half messages, which wait for the end of their transaction."""
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Topic of the records that mark half messages as processed."""
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Topic of half messages that were discarded because their producer never answered."""
DELETED_TOPIC: Final = "rmq_sys_deleted_topic"
"""Topic of records that mark the positions in the log at which topics were deleted. The topic exists only in FlintMQ. No table
of topics contains this topic, so clients do not see it."""

HOLDING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC})
"""Topics that contain messages until they are delivered. A property of each message contains the topic of its delivery."""

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""System topics that every broker has. A broker also has system topics for its name, its cluster, its replies and its
plugins."""

FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        DELETED_TOPIC,
    }
)
"""Topics to which only the broker writes. The broker refuses sends to these topics."""
