"""Names of topics and groups: what may be created, what is the system's own, what nobody may send to.

See docs/internals/protocol.md, Send; docs/internals/algorithms.md, Topics and groups.
"""

from __future__ import annotations

import re
from typing import Final

from flintmq.core.errors import RefusedError
from flintmq.core.limits import GROUP_MAX_BYTES, TOPIC_MAX_BYTES
from flintmq.core.response_code import ResponseCode

NAME_PATTERN: Final = "^[%|a-zA-Z0-9_-]+$"
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Where messages wait that name their time of delivery; in no table of topics, so that no client sees it."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

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
"""System topics of every broker; a broker adds its own name, its cluster's and the reply topic."""

FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""Topics that only the broker itself writes to."""


def retry_topic(group: str) -> str:
    """Where a group's refused messages wait to be delivered again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where a group's messages go that were refused too often."""
    return DLQ_PREFIX + group


UNDELIVERED_TOPIC: Final = dlq_topic(f"{SYSTEM_GROUP_PREFIX}DELIVERY")
"""Where a waiting message goes, as it waited, that turns out to be undeliverable; made with the first."""


def reply_topic(cluster: str) -> str:
    """Where replies of a cluster are sent to."""
    return f"{cluster}_REPLY_TOPIC"


def is_name(name: str, max_bytes: int) -> bool:
    """True when a name has only characters that topics and groups may have, and at most so many of them."""
    return len(name) <= max_bytes and _NAME.fullmatch(name) is not None


def check_topic_name(topic: str) -> None:
    """Refuses what cannot be a topic's name.

    Raises:
        RefusedError: SYSTEM_ERROR in the words of RocketMQ.
    """
    if not topic.strip():
        raise RefusedError(ResponseCode.SYSTEM_ERROR, "The specified topic is blank.", reason="topic.blank")
    if _NAME.fullmatch(topic) is None:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The specified topic contains illegal characters, allowing only {NAME_PATTERN}",
            reason="topic.illegal",
        )
    if len(topic) > TOPIC_MAX_BYTES:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The specified topic is longer than topic max length {TOPIC_MAX_BYTES}.",
            reason="topic.too_long",
            measured=f"{len(topic)} bytes",
        )


def check_group_name(group: str) -> None:
    """Refuses what cannot be a consumer group's name.

    Raises:
        RefusedError: SYSTEM_ERROR.
    """
    if not group.strip():
        raise RefusedError(ResponseCode.SYSTEM_ERROR, "the specified group is blank", reason="group.blank")
    if not is_name(group, GROUP_MAX_BYTES):
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the specified group[{group[:GROUP_MAX_BYTES]}] is longer than {GROUP_MAX_BYTES} or contains illegal characters, "
            f"allowing only {NAME_PATTERN}",
            reason="group.illegal",
        )


def check_not_forbidden(topic: str) -> None:
    """Refuses sends to topics that only the broker writes to.

    Raises:
        RefusedError: NO_PERMISSION.
    """
    if topic in FORBIDDEN_TOPICS:
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.", reason="topic.forbidden"
        )
