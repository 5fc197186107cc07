"""Checks the names of topics and groups, and makes the names that have a prefix.

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

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
DLQ_QUEUE_NUMS: Final = 1
"""Number of queues of a group's topic of dead letters."""


def retry_topic(group: str) -> str:
    """Return the name of a group's retry topic, from which the group gets the messages that its consumers sent back."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the name of the topic for a group's dead letters: messages that consumers sent back too often."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the name of the topic for replies to requests in a cluster."""
    return f"{cluster}_REPLY_TOPIC"


def is_name(name: str, max_bytes: int) -> bool:
    """Return whether a name is not longer than ``max_bytes`` and contains only characters that are allowed for topics and
    groups. All allowed characters are ASCII, so that each has one byte."""
    return len(name) <= max_bytes and _NAME.fullmatch(name) is not None


def check_topic_name(topic: str) -> None:
    """Raise an error if a text is not allowed as the name of a topic.

    Raises:
        RefusedError: SYSTEM_ERROR, with the remark of RocketMQ.
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
    """Raise an error if a text is not allowed as the name of a consumer group.

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
