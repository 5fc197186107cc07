"""The configuration of a topic, and the name of a queue, with the fields that requests and ``topics.json`` have."""

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
    """The queues and the permission of a topic (``TopicConfig``), with the fields that requests and ``topics.json`` have."""

    order: bool = False
    """Whether the topic is ordered. The queues of an ordered topic stay in the route if a broker is not writeable."""
    perm: Int = READ_WRITE
    """Permission of the topic, as bits of :mod:`flintmq.core.broker.perm`."""
    read_queue_nums: Int = 16
    """Number of queues that consumers read."""
    topic_filter_type: TopicFilterType = "SINGLE_TAG"
    """Filter type of RocketMQ's file format, which has no effect."""
    topic_name: str = ""
    topic_sys_flag: Int = 0
    """Bit mask of the topic's flags, as in RocketMQ. :data:`UNIT_FLAG` (1) marks a topic that a client in RocketMQ's unit mode
    created by a send. :data:`UNIT_SUB_FLAG` (2) marks the retry topic of a consumer group in unit mode."""
    write_queue_nums: Int = 16
    """Number of queues that producers send to."""

    @classmethod
    def with_queues(
        cls, topic_name: str, queue_nums: int, permission: int = READ_WRITE, *, topic_sys_flag: int = 0
    ) -> TopicConfig:
        """Return the configuration of a topic with the same number of read and write queues."""
        return cls(
            topic_name=topic_name,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=permission,
            topic_sys_flag=topic_sys_flag,
        )

    @property
    def open_queue_nums(self) -> int:
        """Number of the topic's queues that are both written and read.

        If ``read_queue_nums`` or ``write_queue_nums`` is 0, the value is the other of these two numbers.
        """
        return min(self.read_queue_nums, self.write_queue_nums) or max(self.read_queue_nums, self.write_queue_nums)

    def queue_inside(self, queue_id: int) -> int:
        """Return the id of the queue that gets a message for the queue ``queue_id``.

        The result is ``queue_id`` if consumers read this queue. Otherwise, a queue is chosen that is both read and written. All
        messages for the same missing queue go to the same other queue, so that the messages keep their order.

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
                measured=f"queue {queue_id}",
                key="the topic's queues (flintmq topics create --queues)",
            )
        return queue_id % self.open_queue_nums

    def describe(self) -> str:
        """Return the topic's configuration as text, in the form of RocketMQ's remarks."""
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={perm_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}]"
        )


class TopicConfigAndQueueMapping(TopicConfig, frozen=True, kw_only=True, rename="camel"):
    """RocketMQ 5's ``TopicConfigAndQueueMapping`` without the mapping of static topics, for the answer to GET_TOPIC_CONFIG
    (351)."""

    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class TopicConfigSerializeWrapper(msgspec.Struct, frozen=True, rename="camel"):
    """All topics of a broker, as ``topics.json``, the answer to GET_ALL_TOPIC_CONFIG (21) and a registration contain them."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """The name of a queue: broker name, queue id and topic (``MessageQueue``). The object may be the key of a dictionary."""

    broker_name: str
    queue_id: Int
    topic: str
