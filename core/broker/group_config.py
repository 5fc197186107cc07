"""What a broker knows of a consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


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
        """Reads the wire's and the files' form; a missing member has its default, unknown ones (5.x) are ignored."""
        defaults = cls("")

        def flag(name: str, default: bool) -> bool:
            member = value.get(name)
            return default if member is None else member in (True, "true")

        def number(name: str, default: int) -> int:
            member = value.get(name)
            return default if member is None else int(member)

        return cls(
            group_name=str(value.get("groupName") or group),
            consume_enable=flag("consumeEnable", defaults.consume_enable),
            consume_from_min_enable=flag("consumeFromMinEnable", defaults.consume_from_min_enable),
            consume_broadcast_enable=flag("consumeBroadcastEnable", defaults.consume_broadcast_enable),
            retry_queue_nums=number("retryQueueNums", defaults.retry_queue_nums),
            retry_max_times=number("retryMaxTimes", defaults.retry_max_times),
            broker_id=number("brokerId", defaults.broker_id),
            which_broker_when_consume_slowly=number(
                "whichBrokerWhenConsumeSlowly", defaults.which_broker_when_consume_slowly
            ),
            notify_consumer_ids_changed_enable=flag(
                "notifyConsumerIdsChangedEnable", defaults.notify_consumer_ids_changed_enable
            ),
        )
