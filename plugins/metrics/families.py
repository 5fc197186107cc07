"""The table of all metrics, with the kind, the labels and the meaning of each.

The exposition, docs/metric-names.md and the tests that compare the names with RocketMQ's are derived from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs

Kind = Literal["counter", "gauge", "histogram"]


@attrs.frozen
class Family:
    """Describes one metric. All samples of the metric have the same label names."""

    name: str
    kind: Kind
    meaning: str
    """Description of the metric, a sentence; also the text of ``# HELP``."""
    labels: tuple[str, ...] = ()
    """Names of the metric's labels, without the labels that all metrics of its group share."""
    common: tuple[str, ...] = ()
    """Names of the labels that this metric shares with all metrics of its group."""


@attrs.frozen
class Group:
    """A group of metrics that share labels and a common origin, for example one exporter of RocketMQ."""

    title: str
    about: str
    """Description of the group of metrics in one or two sentences."""
    common: tuple[str, ...]
    """Names of the labels that every metric of the group has."""
    families: tuple[Family, ...]


NODE: Final = ("cluster", "node_type", "node_id")
"""Names of the labels that RocketMQ 5 adds to each of its metrics; ``node_id`` is the broker's name."""
_OF_TOPIC: Final = ("topic", "message_type", "is_system")
_OF_READER: Final = ("topic", "consumer_group", "is_system")
_LAG: Final = ("consumer_group", "topic", "is_retry", "is_system")

ROCKETMQ: Final = Group(
    "RocketMQ 5's broker",
    "These metrics have the names of RocketMQ 5.3's own exporter. The label `message_type` is `delay` in the topics where "
    "delayed messages wait, `transaction` in the topic where half messages wait, and `normal` in all other topics. Ordered "
    "messages count as `normal`.",
    NODE,
    (
        Family("rocketmq_processor_watermark", "gauge", "Requests that wait in a queue.", ("processor",)),
        Family(
            "rocketmq_rpc_latency",
            "histogram",
            "Time from the read of a request to its answer, in ms; sends of one connection in one append share a time.",
            ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
        ),
        Family("rocketmq_broker_permission", "gauge", "Permissions of clients: 4 read, 2 write, 6 both."),
        Family("rocketmq_topic_number", "gauge", "Topics."),
        Family("rocketmq_consumer_group_number", "gauge", "Consumer groups."),
        Family("rocketmq_messages_in_total", "counter", "Messages stored.", _OF_TOPIC),
        Family("rocketmq_throughput_in_total", "counter", "Bytes of the records stored.", _OF_TOPIC),
        Family(
            "rocketmq_message_size", "histogram", "Bytes of a message's record, the mean of each append.", _OF_TOPIC
        ),
        Family("rocketmq_messages_out_total", "counter", "Messages delivered to consumers.", _OF_READER),
        Family("rocketmq_throughput_out_total", "counter", "Bytes of the records delivered to consumers.", _OF_READER),
        Family(
            "rocketmq_send_to_dlq_messages_total",
            "counter",
            "Messages that became dead letters, by their original topic.",
            ("consumer_group", "topic", "is_system"),
        ),
        Family(
            "rocketmq_producer_connections",
            "gauge",
            "Connections of producers; a connection in two groups counts twice.",
            ("language", "version", "protocol_type"),
        ),
        Family(
            "rocketmq_consumer_connections",
            "gauge",
            "Connections of consumers.",
            ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        ),
        Family(
            "rocketmq_consumer_lag_messages", "gauge", "Messages not consumed yet, including those in flight.", _LAG
        ),
        Family("rocketmq_consumer_lag_latency", "gauge", "Age of the oldest message not consumed yet, in ms.", _LAG),
        Family("rocketmq_consumer_inflight_messages", "gauge", "Messages delivered and not committed yet.", _LAG),
        Family(
            "rocketmq_consumer_queueing_latency", "gauge", "Age of the oldest message not delivered yet, in ms.", _LAG
        ),
        Family("rocketmq_consumer_ready_messages", "gauge", "Messages not delivered yet.", _LAG),
        Family("rocketmq_commit_messages_total", "counter", "Transactions committed.", ("topic",)),
        Family("rocketmq_rollback_messages_total", "counter", "Transactions rolled back.", ("topic",)),
    ),
)
STORAGE: Final = Group(
    "RocketMQ 5's store",
    "These metrics have the names of RocketMQ 5.3's own exporter. `storage_type` is always `local`, and `storage_medium` is "
    "always `disk`.",
    (*NODE, "storage_type", "storage_medium"),
    (
        Family("rocketmq_storage_size", "gauge", "Bytes used on the disk of the store, including other files."),
        Family("rocketmq_storage_flush_behind_bytes", "gauge", "Bytes of the commit log that are not synced yet."),
        Family(
            "rocketmq_storage_dispatch_behind_bytes", "gauge", "Bytes of the commit log that are not dispatched yet."
        ),
        Family("rocketmq_storage_message_reserve_time", "gauge", "Age of the oldest message, in ms."),
        Family("rocketmq_timer_enqueue_lag", "gauge", "Timed messages that the timer has not read yet."),
    ),
)
_READ_HERE: Final = (
    "These metrics have the names that rocketmq-exporter uses. RocketMQ needs this exporter as a separate process, but a "
    "FlintMQ broker reports the metrics itself. "
)
EXPORTER_BROKER: Final = Group(
    "rocketmq-exporter: brokers",
    _READ_HERE + "Rates are means of the last minute. `brokerIP` is the broker's address.",
    ("cluster", "brokerIP", "broker"),
    (
        Family("rocketmq_broker_tps", "gauge", "Messages stored per second."),
        Family("rocketmq_broker_qps", "gauge", "Messages delivered to consumers per second."),
    ),
)
EXPORTER_TOPIC: Final = Group(
    "rocketmq-exporter: topics and groups",
    _READ_HERE + "Rates are means of the last minute.",
    ("cluster", "broker"),
    (
        Family("rocketmq_producer_tps", "gauge", "Messages of a topic stored per second.", ("topic",)),
        Family("rocketmq_producer_message_size", "gauge", "Bytes of a topic stored per second.", ("topic",)),
        Family("rocketmq_producer_offset", "gauge", "Sum of the maximum offsets of a topic's queues.", ("topic",)),
        Family(
            "rocketmq_topic_retry_offset",
            "gauge",
            "Sum of the maximum offsets of the queues of a group's retry topic.",
            ("topic",),
        ),
        Family(
            "rocketmq_topic_dlq_offset",
            "gauge",
            "Sum of the maximum offsets of the queues of a group's dead letters.",
            ("group",),
        ),
        Family("rocketmq_producer_count", "gauge", "Producers of a group that are connected.", ("group",)),
        Family("rocketmq_consumer_tps", "gauge", "Messages delivered to a group per second.", ("topic", "group")),
        Family("rocketmq_consumer_message_size", "gauge", "Bytes delivered to a group per second.", ("topic", "group")),
        Family(
            "rocketmq_consumer_offset", "gauge", "Sum of a group's offsets in a topic's queues.", ("topic", "group")
        ),
        Family(
            "rocketmq_send_back_nums",
            "gauge",
            "Messages that a group sent back in the last minute.",
            ("topic", "group"),
        ),
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
    + "`msgModel` is 1 for groups that share a topic's messages; broadcasting groups keep their offsets themselves.",
    (),
    (
        Family("rocketmq_group_diff", "gauge", "Messages of a topic that a group has not consumed.", _DIFF),
        Family(
            "rocketmq_group_retrydiff", "gauge", "Messages of a group's retry topic that it has not consumed.", _DIFF
        ),
        Family("rocketmq_group_dlqdiff", "gauge", "Dead letters of a group that it has not consumed.", _DIFF),
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
"""Source of each metric ``rocketmq_brokeruntime_*``, keyed by the part of the metric's name after this prefix. A source is a
tuple. It has a key of the answer to GET_BROKER_RUNTIME_INFO (request code 28), and the index of the metric's number in the text
under this key."""
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
"""Parts of metrics' names after the prefix ``rocketmq_brokeruntime_pmdt_``. The order is that of the numbers under the key
``putMessageDistributeTime`` in the answer to GET_BROKER_RUNTIME_INFO (request code 28)."""
CAPACITIES: Final = ("commitlogdir_capacity_total", "commitlogdir_capacity_free")
EXPORTER_RUNTIME: Final = Group(
    "rocketmq-exporter: the figures of request 28",
    _READ_HERE
    + "`des` and `broker_version` are the RocketMQ release whose protocol FlintMQ speaks. `brokerHost` is empty, as in "
    "rocketmq-exporter.",
    ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"),
    (
        *(
            Family(f"rocketmq_brokeruntime_{name}", "gauge", f"{key} of request 28.")
            for name, (key, _) in RUNTIME.items()
        ),
        *(
            Family(
                f"rocketmq_brokeruntime_pmdt_{name}", "gauge", f"Messages of the last minute whose append took {name}."
            )
            for name in PUT_TIMES
        ),
        *(Family(f"rocketmq_brokeruntime_{name}", "gauge", "Bytes of the disk of the store.") for name in CAPACITIES),
    ),
)
FLINTMQ: Final = Group(
    "FlintMQ's own",
    "RocketMQ does not have these metrics, or FlintMQ counts them in another way.",
    NODE,
    (
        Family(
            "flintmq_fenced",
            "gauge",
            "1 if the store is fenced after a failed sync, so that nothing is acknowledged.",
        ),
        Family("flintmq_alarm", "gauge", "1 for each current alarm (docs/alarms.md).", ("id", "level", "subject")),
        Family(
            "flintmq_watermark_bytes",
            "gauge",
            "Physical offsets up to which the log is written, committed, flushed, dispatched and readable, and its first.",
            ("watermark",),
        ),
        Family("flintmq_put_messages_total", "counter", "Messages stored."),
        Family("flintmq_put_bytes_total", "counter", "Bytes of the records stored."),
        Family(
            "flintmq_dropped_messages_total",
            "counter",
            "Delayed, timed and transactional messages dropped because their topic was deleted before they were due.",
        ),
        Family("flintmq_refused_messages_total", "counter", "Messages refused after their request was understood."),
        Family("flintmq_refusals_total", "counter", "Requests refused, by reason (docs/refusals.md).", ("reason",)),
        Family("flintmq_get_messages_total", "counter", "Messages delivered to consumers."),
        Family("flintmq_get_bytes_total", "counter", "Bytes of the records delivered to consumers."),
        Family("flintmq_pulls_total", "counter", "Pulls, by whether they found messages.", ("found",)),
        Family("flintmq_held_pulls", "gauge", "Pulls that wait for a message."),
        Family("flintmq_requests_total", "counter", "Requests passed to processors."),
        Family("flintmq_connections", "gauge", "Open connections."),
        Family(
            "flintmq_append_seconds",
            "histogram",
            "Duration of an append, which stores the sends of one turn of the event loop.",
        ),
        Family("flintmq_append_messages", "histogram", "Messages per append."),
        Family(
            "flintmq_durable_seconds",
            "histogram",
            "Duration of an append, including its flush and its replication if senders wait for them.",
        ),
        Family("flintmq_sync_seconds", "histogram", "Duration of a sync of the commit log."),
        Family("flintmq_commit_seconds", "histogram", "Duration of a write of the transient store pool to its file."),
        Family("flintmq_half_messages", "gauge", "Half messages that are neither committed nor rolled back."),
        Family("flintmq_plugin_calls_total", "counter", "Calls of a third party's plugin.", ("plugin", "hook")),
        Family("flintmq_plugin_errors_total", "counter", "Failures of a plugin.", ("plugin", "hook")),
        Family(
            "flintmq_loop_blocked_total", "counter", "Number of times that the event loop was blocked for too long."
        ),
        Family("flintmq_loop_blocked_max_seconds", "gauge", "The longest time that the event loop was blocked."),
        Family("flintmq_slaves", "gauge", "Connected slaves."),
        Family(
            "flintmq_slave_behind_bytes", "gauge", "Bytes that the nearest slave is behind; absent without a slave."
        ),
        Family("flintmq_follows_master", "gauge", "1 if this slave is connected to its master."),
        Family("flintmq_started_clean", "gauge", "1 if the last stop was orderly."),
        Family("flintmq_recovery_seconds", "gauge", "Duration of the recovery at the last start."),
        Family("flintmq_recovered_records", "gauge", "Records that the recovery at the last start read."),
        Family(
            "flintmq_recovery_cuts", "gauge", "1 if the recovery at the last start truncated the end of the commit log."
        ),
        Family("flintmq_recovery_holes", "gauge", "Damaged ranges that the recovery at the last start skipped."),
        Family(
            "flintmq_scrape_seconds", "gauge", "Time that the event loop spent on gathering the figures of this scrape."
        ),
        Family(
            "flintmq_topics_age_seconds",
            "gauge",
            "Age of the figures of topics and groups, which are reused for longer if gathering them takes long.",
        ),
        Family(
            "flintmq_otlp_pushes_total",
            "counter",
            "Pushes that the collector accepted, or that were lost.",
            ("result",),
        ),
        Family("flintmq_left_out_series", "gauge", "Series left out because of metrics.series_max."),
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
"""Names of metrics with a unit, keyed by the names without the unit. RocketMQ's documentation has the names without a unit, but
RocketMQ's broker exposes the names with a unit. FlintMQ exposes the metrics under both names."""


def _with_units(group: Group) -> Group:
    """Return a copy of a group of metrics that has the metrics of :data:`WITH_UNIT` twice: under the name without the unit and
    under the name with the unit."""
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
"""All metrics, keyed by name, in the order in which ``/metrics`` has them."""
