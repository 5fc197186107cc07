"""What is told: every metric with its kind, its labels and its meaning, in one place.

The exposition, docs/metric-names.md and the tests that compare with RocketMQ's names are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs

Kind = Literal["counter", "gauge", "histogram"]


@attrs.frozen
class Family:
    """One metric: all its samples have these labels."""

    name: str
    kind: Kind
    meaning: str
    """A sentence; it is the exposition's HELP, too."""
    labels: tuple[str, ...] = ()
    """Beyond those of the group that it belongs to."""
    common: tuple[str, ...] = ()
    """Those of its group."""


@attrs.frozen
class Group:
    """Metrics that came from one place, and have labels in common."""

    title: str
    about: str
    """A sentence or two about all of them."""
    common: tuple[str, ...]
    """The labels that each of them has."""
    families: tuple[Family, ...]


NODE: Final = ("cluster", "node_type", "node_id")
"""The labels that RocketMQ 5 gives to everything: ``node_id`` is the broker's name."""
_OF_TOPIC: Final = ("topic", "message_type", "is_system")
_OF_READER: Final = ("topic", "consumer_group", "is_system")
_LAG: Final = ("consumer_group", "topic", "is_retry", "is_system")

ROCKETMQ: Final = Group(
    "RocketMQ 5's broker",
    "Under the names of RocketMQ 5.3's own exporter. `message_type` is `normal`, or `delay` and `transaction` in the "
    "topics where such messages wait; ordered messages are not told apart.",
    NODE,
    (
        Family("rocketmq_processor_watermark", "gauge", "Requests that wait in a queue.", ("processor",)),
        Family(
            "rocketmq_rpc_latency",
            "histogram",
            "Time from the read of a request to its answer, in ms; sends of a connection in one append have one time.",
            ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
        ),
        Family("rocketmq_broker_permission", "gauge", "What clients may do: 4 read, 2 write, 6 both."),
        Family("rocketmq_topic_number", "gauge", "Topics."),
        Family("rocketmq_consumer_group_number", "gauge", "Consumer groups."),
        Family("rocketmq_messages_in_total", "counter", "Messages stored.", _OF_TOPIC),
        Family("rocketmq_throughput_in_total", "counter", "Bytes of the records stored.", _OF_TOPIC),
        Family(
            "rocketmq_message_size", "histogram", "Bytes of a message's record, the mean of each append.", _OF_TOPIC
        ),
        Family("rocketmq_messages_out_total", "counter", "Messages handed out.", _OF_READER),
        Family("rocketmq_throughput_out_total", "counter", "Bytes of the records handed out.", _OF_READER),
        Family(
            "rocketmq_send_to_dlq_messages_total",
            "counter",
            "Messages that became dead letters, by the topic that they came from.",
            ("consumer_group", "topic", "is_system"),
        ),
        Family(
            "rocketmq_producer_connections",
            "gauge",
            "Connections of producers; one that is in two groups counts twice.",
            ("language", "version", "protocol_type"),
        ),
        Family(
            "rocketmq_consumer_connections",
            "gauge",
            "Connections of consumers.",
            ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        ),
        Family(
            "rocketmq_consumer_lag_messages", "gauge", "Messages not consumed yet, those in flight among them.", _LAG
        ),
        Family("rocketmq_consumer_lag_latency", "gauge", "Age of the oldest message not consumed yet, in ms.", _LAG),
        Family("rocketmq_consumer_inflight_messages", "gauge", "Messages handed out and not committed yet.", _LAG),
        Family(
            "rocketmq_consumer_queueing_latency", "gauge", "Age of the oldest message not handed out yet, in ms.", _LAG
        ),
        Family("rocketmq_consumer_ready_messages", "gauge", "Messages not handed out yet.", _LAG),
        Family("rocketmq_commit_messages_total", "counter", "Transactions committed.", ("topic",)),
        Family("rocketmq_rollback_messages_total", "counter", "Transactions rolled back.", ("topic",)),
    ),
)
STORAGE: Final = Group(
    "RocketMQ 5's store",
    "Likewise; `storage_type` is always `local`, and `storage_medium` `disk`.",
    (*NODE, "storage_type", "storage_medium"),
    (
        Family("rocketmq_storage_size", "gauge", "Bytes used on the disk of the store, by whatever."),
        Family("rocketmq_storage_flush_behind_bytes", "gauge", "Bytes of the log that are not synced yet."),
        Family("rocketmq_storage_dispatch_behind_bytes", "gauge", "Bytes of the log that are in no queue yet."),
        Family("rocketmq_storage_message_reserve_time", "gauge", "Age of the oldest message, in ms."),
        Family("rocketmq_timer_enqueue_lag", "gauge", "Messages with a time of delivery that are to be read yet."),
    ),
)
_READ_HERE: Final = "Under the names of rocketmq-exporter, which asks brokers from outside; read here each time. "
EXPORTER_BROKER: Final = Group(
    "rocketmq-exporter: brokers",
    _READ_HERE + "Rates are means of the last minute. `brokerIP` is the broker's address.",
    ("cluster", "brokerIP", "broker"),
    (
        Family("rocketmq_broker_tps", "gauge", "Messages stored a second."),
        Family("rocketmq_broker_qps", "gauge", "Messages handed out a second."),
    ),
)
EXPORTER_TOPIC: Final = Group(
    "rocketmq-exporter: topics and groups",
    _READ_HERE + "Rates are means of the last minute.",
    ("cluster", "broker"),
    (
        Family("rocketmq_producer_tps", "gauge", "Messages of a topic stored a second.", ("topic",)),
        Family("rocketmq_producer_message_size", "gauge", "Bytes of a topic stored a second.", ("topic",)),
        Family("rocketmq_producer_offset", "gauge", "Sum of the ends of a topic's queues.", ("topic",)),
        Family("rocketmq_topic_retry_offset", "gauge", "Likewise, of a group's retries.", ("topic",)),
        Family("rocketmq_topic_dlq_offset", "gauge", "Likewise, of a group's dead letters.", ("group",)),
        Family("rocketmq_producer_count", "gauge", "Producers of a group that are connected.", ("group",)),
        Family("rocketmq_consumer_tps", "gauge", "Messages handed to a group a second.", ("topic", "group")),
        Family("rocketmq_consumer_message_size", "gauge", "Bytes handed to a group a second.", ("topic", "group")),
        Family("rocketmq_consumer_offset", "gauge", "Sum of a group's offsets.", ("topic", "group")),
        Family("rocketmq_send_back_nums", "gauge", "Messages a group refused in the last minute.", ("topic", "group")),
        Family(
            "rocketmq_group_get_latency_by_storetime",
            "gauge",
            "Age of the oldest message that a group has not consumed, in ms.",
            ("topic", "group"),
        ),
    ),
)
_DIFF: Final = ("group", "topic", "countOfOnlineConsumers", "msgModel")
EXPORTER_GROUP: Final = Group(
    "rocketmq-exporter: lag",
    _READ_HERE
    + "`msgModel` is 1 for groups that share a topic's messages; those that broadcast keep their offsets themselves.",
    (),
    (
        Family("rocketmq_group_diff", "gauge", "Messages of a topic that a group has not consumed.", _DIFF),
        Family("rocketmq_group_retrydiff", "gauge", "Likewise, of its retries.", _DIFF),
        Family("rocketmq_group_dlqdiff", "gauge", "Likewise, of its dead letters.", _DIFF),
        Family("rocketmq_group_count", "gauge", "Consumers of a group that are connected.", ("group",)),
    ),
)
RUNTIME: Final[Mapping[str, tuple[str, int]]] = {
    "msg_put_total_today_now": ("msgPutTotalTodayNow", 0),
    "msg_puttotal_todaymorning": ("msgPutTotalTodayMorning", 0),
    "msg_puttotal_yesterdaymorning": ("msgPutTotalYesterdayMorning", 0),
    "msg_gettotal_today_now": ("msgGetTotalTodayNow", 0),
    "msg_gettotal_todaymorning": ("msgGetTotalTodayMorning", 0),
    "msg_gettotal_yesterdaymorning": ("msgGetTotalYesterdayMorning", 0),
    "dispatch_behind_bytes": ("dispatchBehindBytes", 0),
    "dispatch_maxbuffer": ("dispatchMaxBuffer", 0),
    "put_message_size_total": ("putMessageSizeTotal", 0),
    "put_message_average_size": ("putMessageAverageSize", 0),
    "putmessage_times_total": ("putMessageTimesTotal", 0),
    "putmessage_entire_time_max": ("putMessageEntireTimeMax", 0),
    "getmessage_entire_time_max": ("getMessageEntireTimeMax", 0),
    "put_latency_99": ("putLatency99", 0),
    "put_latency_999": ("putLatency999", 0),
    "remain_transientstore_buffer_numbs": ("remainTransientStoreBufferNumbs", 0),
    "remain_howmanydata_toflush": ("remainHowManyDataToFlush", 0),
    "earliest_message_timestamp": ("earliestMessageTimeStamp", 0),
    "start_accept_sendrequest_time": ("startAcceptSendRequestTimeStamp", 0),
    "pagecache_lock_time_mills": ("pageCacheLockTimeMills", 0),
    "commitlog_disk_ratio": ("commitLogDiskRatio", 0),
    "consumequeue_disk_ratio": ("consumeQueueDiskRatio", 0),
    "commitlog_maxoffset": ("commitLogMaxOffset", 0),
    "commitlog_minoffset": ("commitLogMinOffset", 0),
    "send_threadpool_queue_size": ("sendThreadPoolQueueSize", 0),
    "send_threadpoolqueue_capacity": ("sendThreadPoolQueueCapacity", 0),
    "send_threadpoolqueue_headwait_timemills": ("sendThreadPoolQueueHeadWaitTimeMills", 0),
    "pull_threadpoolqueue_size": ("pullThreadPoolQueueSize", 0),
    "pull_threadpoolqueue_capacity": ("pullThreadPoolQueueCapacity", 0),
    "pull_threadpoolqueue_headwait_timemills": ("pullThreadPoolQueueHeadWaitTimeMills", 0),
    "query_threadpoolqueue_size": ("queryThreadPoolQueueSize", 0),
    "query_threadpool_queue_capacity": ("queryThreadPoolQueueCapacity", 0),
    "query_threadpoolqueue_headwait_timemills": ("queryThreadPoolQueueHeadWaitTimeMills", 0),
    **{
        f"{name}_tps{span}": (key, place)
        for name, key in (
            ("put", "putTps"),
            ("getfound", "getFoundTps"),
            ("getmiss", "getMissTps"),
            ("gettotal", "getTotalTps"),
            ("gettransfered", "getTransferedTps"),
        )
        for place, span in enumerate((10, 60, 600))
    },
}
"""What follows ``rocketmq_brokeruntime_``: the figure of request 28, and which of its numbers."""
PUT_TIMES: Final = (
    *(
        "0ms",
        "0to10ms",
        "10to50ms",
        "50to100ms",
        "100to200ms",
        "200to500ms",
        "500to1s",
        "1to2s",
        "2to3s",
        "3to4s",
        "4to5s",
    ),
    *("5to10s", "10stomore"),
)
"""What follows ``rocketmq_brokeruntime_pmdt_``, in the order of ``putMessageDistributeTime``."""
CAPACITIES: Final = ("commitlogdir_capacity_total", "commitlogdir_capacity_free")
EXPORTER_RUNTIME: Final = Group(
    "rocketmq-exporter: the figures of request 28",
    _READ_HERE
    + "`des` and `broker_version` are the release whose protocol is spoken, `brokerHost` is empty, as there.",
    ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"),
    (
        *(
            Family(f"rocketmq_brokeruntime_{name}", "gauge", f"{key} of request 28.")
            for name, (key, _) in RUNTIME.items()
        ),
        *(
            Family(
                f"rocketmq_brokeruntime_pmdt_{name}", "gauge", f"Messages whose append took {name}, of the last minute."
            )
            for name in PUT_TIMES
        ),
        *(Family(f"rocketmq_brokeruntime_{name}", "gauge", "Bytes of the disk of the store.") for name in CAPACITIES),
    ),
)
FLINTMQ: Final = Group(
    "FlintMQ's own",
    "What only FlintMQ has, or counts in another way.",
    NODE,
    (
        Family(
            "flintmq_fenced",
            "gauge",
            "1 where the store is fenced after a failed sync, so that nothing is acknowledged.",
        ),
        Family("flintmq_alarm", "gauge", "1 for each alarm (docs/alarms.md).", ("id", "level", "subject")),
        Family(
            "flintmq_watermark_bytes",
            "gauge",
            "How far the commit log is written, committed, flushed, dispatched and readable, and where it begins.",
            ("watermark",),
        ),
        Family("flintmq_put_messages_total", "counter", "Messages stored."),
        Family("flintmq_put_bytes_total", "counter", "Bytes of the records stored."),
        Family(
            "flintmq_dropped_messages_total",
            "counter",
            "Messages that waited for a topic (delay, timer, transaction) which was deleted before they were due.",
        ),
        Family("flintmq_refused_messages_total", "counter", "Messages refused after their request was understood."),
        Family("flintmq_refusals_total", "counter", "Requests refused, by reason (docs/refusals.md).", ("reason",)),
        Family("flintmq_get_messages_total", "counter", "Messages handed out to consumers."),
        Family("flintmq_get_bytes_total", "counter", "Bytes of the records handed out to consumers."),
        Family("flintmq_pulls_total", "counter", "Pulls that found messages, or none.", ("found",)),
        Family("flintmq_held_pulls", "gauge", "Pulls that wait for a message."),
        Family("flintmq_requests_total", "counter", "Requests handed to processors."),
        Family("flintmq_connections", "gauge", "Open connections."),
        Family("flintmq_append_seconds", "histogram", "How long an append took; one append has the sends of one turn."),
        Family("flintmq_append_messages", "histogram", "Messages of an append."),
        Family(
            "flintmq_durable_seconds",
            "histogram",
            "How long an append and its flush took, and replication, where senders wait for them.",
        ),
        Family("flintmq_sync_seconds", "histogram", "How long a sync of the commit log took."),
        Family("flintmq_commit_seconds", "histogram", "How long a write of the transient store pool to its file took."),
        Family("flintmq_half_messages", "gauge", "Half messages that are not done with."),
        Family("flintmq_plugin_calls_total", "counter", "Calls of a third party's plugin.", ("plugin", "hook")),
        Family("flintmq_plugin_errors_total", "counter", "Failures of a plugin.", ("plugin", "hook")),
        Family("flintmq_loop_blocked_total", "counter", "How often the event loop stood still for too long."),
        Family("flintmq_loop_blocked_max_seconds", "gauge", "The longest time that the event loop stood still."),
        Family("flintmq_slaves", "gauge", "Slaves that follow."),
        Family("flintmq_slave_behind_bytes", "gauge", "How far the nearest slave is behind; absent without one."),
        Family("flintmq_follows_master", "gauge", "1 for a slave that has its master."),
        Family("flintmq_started_clean", "gauge", "1 where the last stop was orderly."),
        Family("flintmq_recovery_seconds", "gauge", "How long the recovery of the start took."),
        Family("flintmq_recovered_records", "gauge", "Records that the recovery of the start walked."),
        Family(
            "flintmq_recovery_cuts", "gauge", "1 where the recovery of the start cut something off the end of the log."
        ),
        Family("flintmq_recovery_holes", "gauge", "Places of damage that the recovery of the start passed over."),
        Family("flintmq_scrape_seconds", "gauge", "The event loop's time for the figures that you read."),
        Family(
            "flintmq_topics_age_seconds",
            "gauge",
            "Age of the figures of topics and groups, which stay for longer where it takes long to gather them.",
        ),
        Family(
            "flintmq_otlp_pushes_total", "counter", "Pushes that the collector took, or that were lost.", ("result",)
        ),
        Family("flintmq_left_out_series", "gauge", "Series that are not told: see metrics.series_max."),
    ),
)
WITH_UNIT: Final = {
    name: f"{name}_{unit}"
    for name, unit in (
        ("rocketmq_rpc_latency", "milliseconds"),
        ("rocketmq_consumer_lag_latency", "milliseconds"),
        ("rocketmq_consumer_queueing_latency", "milliseconds"),
        ("rocketmq_storage_message_reserve_time", "milliseconds"),
        ("rocketmq_storage_size", "bytes"),
    )
}
"""RocketMQ's pages name these metrics without a unit, and its broker tells them with one: both are told here."""


def _with_units(group: Group) -> Group:
    """Return a group in which those metrics have a second name."""
    families = [
        attrs.evolve(one, name=name)
        for one in group.families
        for name in (one.name, WITH_UNIT.get(one.name))
        if name is not None
    ]
    return attrs.evolve(group, families=tuple(families))


GROUPS: Final = (
    *map(_with_units, (ROCKETMQ, STORAGE)),
    *(EXPORTER_BROKER, EXPORTER_TOPIC, EXPORTER_GROUP, EXPORTER_RUNTIME, FLINTMQ),
)
FAMILIES: Final[Mapping[str, Family]] = {
    one.name: attrs.evolve(one, common=group.common) for group in GROUPS for one in group.families
}
"""By name, in the order of the exposition."""
