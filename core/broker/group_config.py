"""What a broker knows of a consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from flintmq.core.io.typed_json import Int, Long, read_as


class StoredGroup(msgspec.Struct, rename="camel"):
    """A group in the wire's and the files' form, with RocketMQ's types (``SubscriptionGroupConfig``)."""

    broker_id: Long = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    group_name: str = ""
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int = 16
    retry_queue_nums: Int = 1
    which_broker_when_consume_slowly: Long = 1


@attrs.frozen
class SubscriptionGroupConfig:
    """A consumer group's settings."""

    group_name: str
    consume_enable: bool = True
    """False refuses the group's pulls."""
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    """False refuses pulls of broadcasting consumers."""
    retry_queue_nums: int = 1
    """Queues of the retry topic; 0 drops refused messages."""
    retry_max_times: int = 16
    """How often a message is delivered again before it goes to the dead letter queue."""
    broker_id: int = 0
    """The broker suggested for pulls."""
    which_broker_when_consume_slowly: int = 1
    """The broker suggested to a consumer that is far behind."""
    notify_consumer_ids_changed_enable: bool = True
    """Tells members at once when another joins or leaves."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.group_name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }

    @classmethod
    def from_wire(cls, value: Mapping[str, Any], group: str = "") -> SubscriptionGroupConfig:
        """Reads the wire's and the files' form; a missing member has its default, unknown ones (5.x) are ignored.

        Args:
            value: the members.
            group: the name when ``groupName`` is missing.

        Raises:
            JsonTypeError: a member is not of RocketMQ's type.
        """
        return cls.of(read_as(value, StoredGroup), group)

    @classmethod
    def of(cls, stored: StoredGroup, group: str = "") -> SubscriptionGroupConfig:
        """A group that was read, under the name of the table where it names none itself."""
        members = msgspec.structs.asdict(stored)
        return cls(**members | {"group_name": stored.group_name or group})
