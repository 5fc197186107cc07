"""What a broker knows of a consumer group."""

from __future__ import annotations

import msgspec

from flintmq.core.io.config_manager import DataVersion
from flintmq.core.io.typed_json import Int, Long


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings of a consumer group (``SubscriptionGroupConfig``), in the form of the wire and of the file."""

    broker_id: Long = 0
    """The broker suggested for pulls."""
    consume_broadcast_enable: bool = True
    """False refuses pulls of broadcasting consumers."""
    consume_enable: bool = True
    """False refuses the group's pulls."""
    consume_from_min_enable: bool = True
    group_name: str = ""
    notify_consumer_ids_changed_enable: bool = True
    """Notify members at once when another joins or leaves."""
    retry_max_times: Int = 16
    """How often a message is delivered again before it becomes a dead letter."""
    retry_queue_nums: Int = 1
    """Queues of the retry topic; 0 drops refused messages."""
    which_broker_when_consume_slowly: Long = 1
    """The broker suggested to a consumer that is far behind."""


class SubscriptionGroupWrapper(msgspec.Struct, frozen=True, rename="camel"):
    """All groups of a broker: ``subscriptionGroup.json``, and the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(default_factory=dict)
