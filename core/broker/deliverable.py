"""Whether a message that will wait (for a delay, a time, the end of its transaction) can be delivered when it is due.

Its delivery is another append, whose failure no client sees. So all that could keep it out then is checked before the
message is acknowledged, and refused as a send to its real topic would be.
"""

from __future__ import annotations

from flintmq.core.broker.topic_name import check_topic_name
from flintmq.core.errors import RefusedError
from flintmq.core.limits import PROPERTIES_MAX_BYTES
from flintmq.core.record.record import BLANK_MIN_BYTES, MessageExtBrokerInner, record_size
from flintmq.core.response_code import ResponseCode


def check_deliverable(
    message: MessageExtBrokerInner, real_topic: str, log_file_bytes: int, *, spare_bytes: int = 0
) -> None:
    """Refuses a message that could be stored where it waits, but never at its real topic.

    Args:
        message: as it will wait.
        real_topic: the topic that it is stored in when it is due.
        log_file_bytes: the size of a commit log file, which takes the largest record.
        spare_bytes: what its properties may still grow by while it waits.

    Raises:
        RefusedError: SYSTEM_ERROR for a name that no topic may have; MESSAGE_ILLEGAL for properties or a record too long.
    """
    check_topic_name(real_topic)
    properties_bytes = len(message.properties_bytes)
    if properties_bytes > PROPERTIES_MAX_BYTES - spare_bytes:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg properties length limit {PROPERTIES_MAX_BYTES}",
            reason="message.properties_too_long",
            measured=f"{properties_bytes} bytes of properties"
            + (f" and {spare_bytes} to spare" if spare_bytes else ""),
        )
    waiting_bytes = record_size(message)
    delivered_bytes = waiting_bytes - len(message.topic) + len(real_topic)
    needed_bytes = max(waiting_bytes, delivered_bytes) + spare_bytes
    if needed_bytes + BLANK_MIN_BYTES > log_file_bytes:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message does not fit a commit log file",
            reason="message.larger_than_file",
            measured=f"{needed_bytes} bytes",
            key="store.commit_log_file_bytes (mappedFileSizeCommitLog)",
        )


def illegal_message(reason: str, measured: str, body_max_bytes: int, key: str = "") -> RefusedError:
    """Return the refusal of a message that breaks a limit or a rule, in the words of RocketMQ.

    Args:
        reason: the id of the refusal.
        measured: what was found.
        body_max_bytes: the longest body that the broker takes.
        key: the setting that decides; empty for none.
    """
    return RefusedError(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {body_max_bytes}, "
        f"msg properties length limit {PROPERTIES_MAX_BYTES}",
        reason=reason,
        measured=measured,
        key=key,
    )
