"""The names of topics that RocketMQ keeps for itself (``TopicValidator``).

They stay reserved whichever features a broker has: a store may have been another broker's, and in some of these topics messages
of every other topic lie, which no client may read or write as its own.
"""

from __future__ import annotations

from typing import Final

AUTO_CREATE_TOPIC: Final = "TBW102"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Messages wait here for their delay level's time; level n in queue n - 1."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Messages wait here for the time that they name (5.x); in no table of topics, so that no client sees it."""
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Messages wait here for the end of their transaction."""
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Says which half messages are done with."""
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Half messages lie here whose producer never answered."""
DELETED_TOPIC: Final = "rmq_sys_deleted_topic"
"""FlintMQ's own: its records say where in the log a topic was deleted; in no table of topics, so that no client sees it."""

HOLDING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC})
"""Messages of clients wait here, under their topic's name as a property."""

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
"""System topics of every broker; a broker adds its own name, its cluster's, the reply topic and those of its plugins."""

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
"""Topics that only the broker itself writes to."""
