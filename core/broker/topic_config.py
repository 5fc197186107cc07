"""What a broker knows of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs
import msgspec

from flintmq.core.broker.perm import READ_WRITE, perm_text
from flintmq.core.io.typed_json import Int, read_as

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2

TopicFilterType = Literal["SINGLE_TAG", "MULTI_TAG"]


class StoredTopic(msgspec.Struct, rename="camel"):
    """A topic in the wire's and the files' form, with RocketMQ's types (``TopicConfig``)."""

    order: bool = False
    perm: Int = READ_WRITE
    read_queue_nums: Int = 16
    topic_filter_type: TopicFilterType = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: Int = 0
    write_queue_nums: Int = 16


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

        Raises:
            JsonTypeError: a member is not of RocketMQ's type.
        """
        return cls.of(read_as(value, StoredTopic), topic)

    @classmethod
    def of(cls, stored: StoredTopic, topic: str = "") -> TopicConfig:
        """A topic that was read, under the name of the table where it names none itself."""
        return cls(
            topic_name=stored.topic_name or topic,
            read_queue_nums=stored.read_queue_nums,
            write_queue_nums=stored.write_queue_nums,
            perm=stored.perm,
            topic_filter_type=stored.topic_filter_type,
            topic_sys_flag=stored.topic_sys_flag,
            order=stored.order,
        )

    def describe(self) -> str:
        """The form that RocketMQ's remarks show."""
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={perm_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}]"
        )
