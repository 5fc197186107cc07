"""What a broker knows of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from flintmq.core.broker.perm import READ_WRITE, perm_text

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2


@attrs.frozen
class TopicConfig:
    """A topic's queues and permissions."""

    topic_name: str
    read_queue_nums: int = 16
    """Queues that consumers see."""
    write_queue_nums: int = 16
    """Queues that producers see."""
    perm: int = READ_WRITE
    """Bits of :mod:`flintmq.core.broker.perm`."""
    topic_filter_type: str = "SINGLE_TAG"
    """``SINGLE_TAG`` or ``MULTI_TAG``; nothing depends on it."""
    topic_sys_flag: int = 0
    """1 unit, 2 unit subscription."""
    order: bool = False
    """Ordered topics keep their queues when a broker is not writeable."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_wire(cls, value: Mapping[str, Any], topic: str = "") -> TopicConfig:
        """Reads the wire's and the files' form.

        Args:
            value: the members; a missing one has its default.
            topic: the name when ``topicName`` is missing.
        """
        defaults = cls("")
        return cls(
            topic_name=str(value.get("topicName") or topic),
            read_queue_nums=int(value.get("readQueueNums", defaults.read_queue_nums)),
            write_queue_nums=int(value.get("writeQueueNums", defaults.write_queue_nums)),
            perm=int(value.get("perm", defaults.perm)),
            topic_filter_type=str(value.get("topicFilterType") or defaults.topic_filter_type),
            topic_sys_flag=int(value.get("topicSysFlag") or 0),
            order=value.get("order") in (True, "true"),
        )

    def describe(self) -> str:
        """The form that remarks of the reference show."""
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={perm_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}]"
        )
