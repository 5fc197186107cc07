"""Settings of what the broker does for clients: topics, groups, offsets, delays, pulls, transactions, admission."""

from __future__ import annotations

from typing import ClassVar

import attrs

from flintmq.config.fields import option
from flintmq.config.units import DAY_MS, MIB

QUEUE_MAX = 100_000_000


@attrs.frozen(kw_only=True)
class TopicsSection:
    """``topics:``"""

    auto_create: bool = option(True, rocketmq="autoCreateTopicEnable")
    """Creates a topic when a message is first sent to it."""
    default_queue_nums: int = option(8, rocketmq="defaultTopicQueueNums", minimum=1, maximum=65536)
    """Queues of the template topic TBW102: the most a topic created by sending gets."""
    cluster_topic: bool = option(True, rocketmq="clusterTopicEnable")
    """Has a topic named as the cluster."""
    broker_topic: bool = option(True, rocketmq="brokerTopicEnable")
    """Has a topic named as the broker."""
    trace_topic_enable: bool = option(False, rocketmq="traceTopicEnable")
    """Has the topic that message traces go to."""
    trace_topic_name: str = option(
        "RMQ_SYS_TRACE_TOPIC", rocketmq="msgTraceTopicName", pattern=r"[%|a-zA-Z0-9_-]{1,127}", expects="a topic's name"
    )
    """The topic that message traces go to."""
    count_max: int = option(100_000, minimum=100, maximum=QUEUE_MAX)
    """The most topics a broker has, each group's retry and dead letter topic among them (about 1 KB each, and a line of the
    file that is written again with every new topic)."""
    store_reply: bool = option(True, rocketmq="storeReplyMessageEnable")
    """Stores replies to requests besides passing them on."""


@attrs.frozen(kw_only=True)
class GroupsSection:
    """``groups:``"""

    auto_create: bool = option(True, rocketmq="autoCreateSubscriptionGroup")
    """Creates a consumer group when it is first used."""
    count_max: int = option(50_000, minimum=100, maximum=QUEUE_MAX)
    """The most consumer groups a broker has."""
    notify_ids_changed: bool = option(True, rocketmq="notifyConsumerIdsChangedEnable")
    """Tells a group's members at once when one joins or leaves."""


@attrs.frozen(kw_only=True)
class OffsetsSection:
    """``offsets:``"""

    flush_interval_ms: int = option(5_000, rocketmq="flushConsumerOffsetInterval", minimum=10, maximum=DAY_MS)
    """How often consumer offsets are written to disk."""
    entries_max: int = option(1_000_000, minimum=100, maximum=QUEUE_MAX)
    """Offsets that are kept, one for each queue of each group that reads it (about 100 bytes each). A group that is new to a
    queue is refused beyond; what is known goes on."""


@attrs.frozen(kw_only=True)
class DelaySection:
    """``delay:`` — messages delivered later."""

    enable: bool = option(True, feature="delay")
    """Delivers delayed messages."""
    levels: str = option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        rocketmq="messageDelayLevel",
        pattern=r"\d{1,9}[smhd]( \d{1,9}[smhd])*",
        expects="delays such as '1s 5s 10m 2h' with one blank between",
        feature="delay",
    )
    """The delay of level 1, 2, … separated by blanks; units s, m, h, d."""
    flush_interval_ms: int = option(10_000, rocketmq="flushDelayOffsetInterval", minimum=10, maximum=DAY_MS)
    """How often the delivery offsets are written to disk."""
    timer_enable: bool = option(True, rocketmq="timerWheelEnable", feature="timer")
    """Delivers messages at the time they name (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC), as RocketMQ 5 does;
    false ignores these properties, as RocketMQ 4.9 does."""
    timer_max_delay_ms: int = option(
        3 * DAY_MS,
        rocketmq="timerMaxDelaySec",
        rocketmq_unit="s",
        minimum=1_000,
        maximum=365 * DAY_MS,
        feature="timer",
    )
    """How far ahead that may be, at most as long as ``store.file_reserved_hours`` keeps the log; else MESSAGE_ILLEGAL."""
    timer_minute_max: int = option(500_000, minimum=1, maximum=QUEUE_MAX, feature="timer")
    """Messages that may be due within one minute, which are in memory then (about 70 bytes each); more are SYSTEM_BUSY."""


@attrs.frozen(kw_only=True)
class PullSection:
    """``pull:``"""

    long_polling: bool = option(True, rocketmq="longPollingEnable")
    """Holds a pull for as long as the client allows; false for ``short_polling_ms``."""
    short_polling_ms: int = option(1_000, rocketmq="shortPollingTimeMills", minimum=1, maximum=DAY_MS)
    """How long a pull is held without long polling."""
    slave_read: bool = option(False, rocketmq="slaveReadEnable")
    """A master sends consumers that are far behind to its slave, and a slave is read from while its master is in reach; one
    whose master is gone is read from anyway."""
    hold_check_interval_ms: int = option(5_000, minimum=10, maximum=60_000)
    """How often held pulls are looked at though nothing arrived."""
    held_max: int = option(200_000, minimum=100, maximum=QUEUE_MAX)
    """Pulls that may wait for a message (about 1.3 KB each). Further ones are SYSTEM_BUSY, which clients try again later."""
    held_per_connection_max: int = option(20_000, minimum=1, maximum=QUEUE_MAX)
    """Of one connection: a client has one for each queue of each of its groups."""
    property_filter: bool = option(False, rocketmq="enablePropertyFilter", feature="filters")
    """Allows SQL92 expressions in subscriptions."""
    calc_filter_bitmap: bool = option(False, rocketmq="enableCalcFilterBitMap", feature="filters")
    """Notes with each message, when it is stored, which groups' SQL92 expressions it fits, so that the others' pulls need not
    read it. Needs ``store.consume_queue_ext_enable``."""
    expect_consumer_num: int = option(
        32, rocketmq="expectConsumerNumUseFilter", minimum=1, maximum=10_000, feature="filters"
    )
    """Groups of one topic that filter by SQL92, for the size of that bit map; with more, more is read in vain."""
    max_error_rate: int = option(20, rocketmq="maxErrorRateOfBloomFilter", minimum=1, maximum=99, feature="filters")
    """Percent of messages that do not fit and are read all the same."""


@attrs.frozen(kw_only=True)
class TransactionsSection:
    """``transactions:``"""

    FEATURE: ClassVar = "transactions"

    timeout_ms: int = option(6_000, rocketmq="transactionTimeOut", minimum=1, maximum=30 * DAY_MS)
    """How old a half message is before its producer is first asked."""
    check_interval_ms: int = option(60_000, rocketmq="transactionCheckInterval", minimum=10, maximum=DAY_MS)
    """How often half messages are looked at."""
    check_max: int = option(15, rocketmq="transactionCheckMax", minimum=1, maximum=10_000)
    """How often a producer is asked before the message is given up."""
    reject: bool = option(False, rocketmq="rejectTransactionMessage")
    """Refuses transactional messages."""


@attrs.frozen(kw_only=True)
class AdmissionSection:
    """``admission:`` — when the broker says SYSTEM_BUSY instead of queueing."""

    fast_failure: bool = option(False, rocketmq="brokerFastFailureEnable")
    """Answers SYSTEM_BUSY to a send that waited longer than ``send_wait_ms``, or for an append that took longer than
    ``page_cache_busy_ms``, and says where the time went. Off here and on in RocketMQ: a broker inside a
    program shares its process, and a pause of 200 ms there does not mean overload."""
    send_wait_ms: int = option(200, rocketmq="waitTimeMillsInSendQueue", minimum=1, maximum=DAY_MS)
    """How long a send may wait between its read and its append, with ``fast_failure``."""
    page_cache_busy_ms: int = option(1_000, rocketmq="osPageCacheBusyTimeOutMills", minimum=1, maximum=DAY_MS)
    """A longer append means that the disk is behind: with ``fast_failure``, sends that waited for it are refused."""
    send_queue: int = option(10_000, rocketmq="sendThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Sends that may wait."""
    pull_queue: int = option(100_000, rocketmq="pullThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Pulls that may wait."""
    reply_queue: int = option(10_000, rocketmq="replyThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Replies that may wait to be passed on."""
    query_queue: int = option(20_000, rocketmq="queryThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Queries that may wait."""
    client_queue: int = option(1_000_000, rocketmq="clientManagerThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Client registrations that may wait."""
    consumer_queue: int = option(
        1_000_000, rocketmq="consumerManagerThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX
    )
    """Requests of consumer groups that may wait."""
    heartbeat_queue: int = option(50_000, rocketmq="heartbeatThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Heartbeats that may wait."""
    end_transaction_queue: int = option(
        100_000, rocketmq="endTransactionPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX
    )
    """Ends of transactions that may wait."""
    admin_queue: int = option(10_000, minimum=1, maximum=QUEUE_MAX)
    """Administrative requests that may wait."""


@attrs.frozen(kw_only=True)
class AlarmsSection:
    """``alarms:`` — what ``flintmq status``, consoles and metrics show as wrong (docs/alarms.md)."""

    lag_messages: int = option(10_000, minimum=0, maximum=2**60, feature="alarms")
    """Messages in a topic that a group has not consumed, from which on a lag that grows is an alarm; 0 never is."""
    lag_window_ms: int = option(5 * 60_000, minimum=10_000, maximum=DAY_MS, feature="alarms")
    """How long a lag is looked at: it must have been above ``lag_messages`` all the time, never below what it was at the
    beginning, and have grown by a tenth, or by ``lag_messages``."""
    dispatch_behind_bytes: int = option(64 * MIB, minimum=1, maximum=2**60, feature="alarms")
    """So much of the log that is durable, and that no consumer sees yet, is an alarm."""
    dispatch_still_ms: int = option(30_000, minimum=1_000, maximum=DAY_MS, feature="alarms")
    """How long messages may stay invisible, while none becomes visible, until that is an alarm."""
    slave_gone_ms: int = option(30_000, minimum=1_000, maximum=DAY_MS, feature="replication")
    """How long a slave may be gone, or a slave may not follow its master, until that is an alarm."""
    slow_shown_ms: int = option(5 * 60_000, minimum=1_000, maximum=DAY_MS)
    """How long a slow append, flush or commit, and an event loop that stood still, are shown after the last time."""
    certificate_days: int = option(14, minimum=0, maximum=3_650)
    """How many days before its end a certificate is an alarm."""
