"""What a broker knows of a topic, and how its queues are named."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from flintmq.core.broker.perm import READ_WRITE, perm_text
from flintmq.core.errors import RefusedError
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.io.typed_json import Int
from flintmq.core.response_code import ResponseCode

UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2

TopicFilterType = Literal["SINGLE_TAG", "MULTI_TAG"]


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queues and permissions of a topic (``TopicConfig``), in the form of the wire and of the file."""

    order: bool = False
    """Ordered topics keep their queues when a broker is not writeable."""
    perm: Int = READ_WRITE
    """Bits of :mod:`flintmq.core.broker.perm`."""
    read_queue_nums: Int = 16
    """Queues that consumers see."""
    topic_filter_type: TopicFilterType = "SINGLE_TAG"
    """Nothing depends on it."""
    topic_name: str = ""
    topic_sys_flag: Int = 0
    """1 unit, 2 unit subscription."""
    write_queue_nums: Int = 16
    """Queues that producers see."""

    @classmethod
    def with_queues(
        cls, topic_name: str, queue_nums: int, permission: int = READ_WRITE, *, topic_sys_flag: int = 0
    ) -> TopicConfig:
        """Return a topic whose queues both sides see."""
        return cls(
            topic_name=topic_name,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=permission,
            topic_sys_flag=topic_sys_flag,
        )

    @property
    def open_queue_nums(self) -> int:
        """Queues, from 0 on, that are written and read; those that are one of both where no queue is both."""
        return min(self.read_queue_nums, self.write_queue_nums) or max(self.read_queue_nums, self.write_queue_nums)

    def queue_inside(self, queue_id: int) -> int:
        """Return where a message goes that was meant for a queue: there while it is read, else to one that is read and written.

        What was meant for one queue goes to one queue, so that it keeps its order.

        Raises:
            RefusedError: SYSTEM_ERROR; the topic has no queue.
        """
        if 0 <= queue_id < (self.read_queue_nums or self.write_queue_nums):
            return queue_id
        if self.open_queue_nums < 1:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"topic[{self.topic_name}] has no queue",
                reason="queue.none",
                measured=f"meant for queue {queue_id}",
                key="the topic's queues (flintmq topics create --queues)",
            )
        return queue_id % self.open_queue_nums

    def describe(self) -> str:
        """Return the text by which RocketMQ's remarks show a topic."""
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={perm_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}]"
        )


class TopicConfigAndQueueMapping(TopicConfig, frozen=True, kw_only=True, rename="camel"):
    """A topic as RocketMQ 5 tells it (351): ``TopicConfigAndQueueMapping``, without the mapping, which static topics have."""

    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class TopicConfigSerializeWrapper(msgspec.Struct, frozen=True, rename="camel"):
    """All topics of a broker: ``topics.json``, the answer to GET_ALL_TOPIC_CONFIG (21), and what a broker registers."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on one broker (``MessageQueue``). May be a key."""

    broker_name: str
    queue_id: Int
    topic: str
