"""Settings of the broker's services for clients: topics, groups, offsets, delays, pulls, transactions, admission, alarms."""

from __future__ import annotations

from typing import ClassVar

import attrs

from flintmq.config.fields import option
from flintmq.config.units import DAY_MS, MIB

QUEUE_MAX = 100_000_000


@attrs.frozen(kw_only=True)
class TopicsSection:
    """``topics:`` — creation and maximum number of topics."""

    auto_create: bool = option(True, rocketmq="autoCreateTopicEnable")
    """Creates a topic that does not exist when a message is sent to it."""
    default_queue_nums: int = option(8, rocketmq="defaultTopicQueueNums", minimum=1, maximum=65536)
    """Number of queues of the template topic TBW102. A topic that a send creates gets at most this number of queues."""
    cluster_topic: bool = option(True, rocketmq="clusterTopicEnable")
    """Lets clients send to and read the topic with the name of the cluster. Every broker has this topic. If false, the topic
    still exists, but clients have no permission to send to it or to read it."""
    broker_topic: bool = option(True, rocketmq="brokerTopicEnable")
    """Lets clients send to and read the topic with the name of the broker. The broker always has this topic. If false, the
    topic still exists, but clients have no permission to send to it or to read it."""
    trace_topic_enable: bool = option(False, rocketmq="traceTopicEnable")
    """Creates the topic ``topics.trace_topic_name`` for message traces when the broker starts."""
    trace_topic_name: str = option(
        "RMQ_SYS_TRACE_TOPIC", rocketmq="msgTraceTopicName", pattern=r"[%|a-zA-Z0-9_-]{1,127}", expects="a topic's name"
    )
    """Name of the topic for message traces."""
    count_max: int = option(100_000, minimum=100, maximum=QUEUE_MAX)
    """Largest number of topics, including the retry and dead letter topics of groups. A topic needs about 1 KB of memory, and
    an entry in the file of topics."""
    store_reply: bool = option(True, rocketmq="storeReplyMessageEnable")
    """Stores replies to requests of clients in addition to forwarding the replies to the requesters."""


@attrs.frozen(kw_only=True)
class GroupsSection:
    """``groups:`` — creation and maximum number of consumer groups."""

    auto_create: bool = option(True, rocketmq="autoCreateSubscriptionGroup")
    """Creates a consumer group that does not exist when it is first used."""
    count_max: int = option(50_000, minimum=100, maximum=QUEUE_MAX)
    """Largest number of consumer groups."""
    notify_ids_changed: bool = option(True, rocketmq="notifyConsumerIdsChangedEnable")
    """Notifies the members of a group at once when a member joins or leaves."""


@attrs.frozen(kw_only=True)
class OffsetsSection:
    """``offsets:`` — storage and maximum number of consumer offsets."""

    flush_interval_ms: int = option(5_000, rocketmq="flushConsumerOffsetInterval", minimum=10, maximum=DAY_MS)
    """Interval between two writes of the consumer offsets to disk."""
    entries_max: int = option(1_000_000, minimum=100, maximum=QUEUE_MAX)
    """Largest number of consumer offsets. A group has a consumer offset for each queue that the group reads. A consumer offset
    needs about 100 bytes. At the limit, a group's first commit for a queue is refused, but existing offsets can still be
    changed."""


@attrs.frozen(kw_only=True)
class DelaySection:
    """``delay:`` — messages delivered later."""

    enable: bool = option(True, feature="delay")
    """Delivers messages with a delay level when their delay is over."""
    levels: str = option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        rocketmq="messageDelayLevel",
        pattern=r"\d{1,9}[smhd]( \d{1,9}[smhd])*",
        expects="delays such as '1s 5s 10m 2h' with one blank between",
        feature="delay",
    )
    """Delays of the delay levels 1, 2, …, separated by blanks, with the units s, m, h and d."""
    flush_interval_ms: int = option(10_000, rocketmq="flushDelayOffsetInterval", minimum=10, maximum=DAY_MS)
    """Interval between two writes to disk of the offsets up to which delayed messages were delivered."""
    timer_enable: bool = option(True, rocketmq="timerWheelEnable", feature="timer")
    """Delivers messages at the time in their properties (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC), as RocketMQ 5
    does. If false, these properties are ignored, as in RocketMQ 4.9."""
    timer_max_delay_ms: int = option(
        3 * DAY_MS,
        rocketmq="timerMaxDelaySec",
        rocketmq_unit="s",
        minimum=1_000,
        maximum=365 * DAY_MS,
        feature="timer",
    )
    """Longest delay of a message that names its delivery time. A message with a longer delay is refused with MESSAGE_ILLEGAL.
    The delay is also limited by ``store.file_reserved_hours``, the time for which the log is kept."""
    timer_minute_max: int = option(500_000, minimum=1, maximum=QUEUE_MAX, feature="timer")
    """Largest number of messages with a delivery time that are due within the same minute. Further messages for that minute are
    refused with SYSTEM_BUSY. From the start of that minute until a message is delivered, the message needs about 70 bytes of
    memory."""


@attrs.frozen(kw_only=True)
class PullSection:
    """``pull:`` — answers to the pull requests of consumers."""

    long_polling: bool = option(True, rocketmq="longPollingEnable")
    """Holds a pull that finds no message for as long as the client allows. If false, such a pull is held for
    ``pull.short_polling_ms``."""
    short_polling_ms: int = option(1_000, rocketmq="shortPollingTimeMills", minimum=1, maximum=DAY_MS)
    """Time for which a pull without a message is held if ``pull.long_polling`` is false."""
    slave_read: bool = option(False, rocketmq="slaveReadEnable")
    """On a master, directs consumers that are far behind to its slave. On a slave, lets consumers read even while the master is
    reachable. If the master is not reachable, consumers may read from a slave in any case."""
    hold_check_interval_ms: int = option(5_000, minimum=10, maximum=60_000)
    """Interval between two checks of held pulls if no message arrives."""
    held_max: int = option(200_000, minimum=100, maximum=QUEUE_MAX)
    """Largest number of held pulls, which wait for a message. A held pull needs about 1.3 KB. Further pulls are refused with
    SYSTEM_BUSY, and clients repeat them later."""
    held_per_connection_max: int = option(20_000, minimum=1, maximum=QUEUE_MAX)
    """Largest number of held pulls of one connection. A client holds one pull for each queue of each of its groups."""
    property_filter: bool = option(False, rocketmq="enablePropertyFilter", feature="filters")
    """Allows SQL92 expressions in subscriptions."""
    calc_filter_bitmap: bool = option(False, rocketmq="enableCalcFilterBitMap", feature="filters")
    """Computes, when a message is stored, which groups' SQL92 expressions match the message, and stores the result with the
    message's entry in the consume queue. A pull of a group whose expression does not match then skips the message without
    reading it. Needs ``store.consume_queue_ext_enable``."""
    expect_consumer_num: int = option(
        32, rocketmq="expectConsumerNumUseFilter", minimum=1, maximum=10_000, feature="filters"
    )
    """Expected number of groups of one topic that filter by SQL92. The bit maps of ``pull.calc_filter_bitmap`` have the size
    for this number of groups. With more groups, more messages that do not match are read."""
    max_error_rate: int = option(20, rocketmq="maxErrorRateOfBloomFilter", minimum=1, maximum=99, feature="filters")
    """Expected percentage of messages that a pull reads although its SQL92 expression does not match them, because the bit maps
    of ``pull.calc_filter_bitmap`` are approximate."""


@attrs.frozen(kw_only=True)
class TransactionsSection:
    """``transactions:`` — checks of transactional messages whose producer has neither committed nor rolled back the
    transaction."""

    FEATURE: ClassVar = "transactions"

    timeout_ms: int = option(6_000, rocketmq="transactionTimeOut", minimum=1, maximum=30 * DAY_MS)
    """Age of a half message at which its producer is first asked for the state of the transaction."""
    check_interval_ms: int = option(60_000, rocketmq="transactionCheckInterval", minimum=10, maximum=DAY_MS)
    """Interval between two checks for half messages whose producers must be asked for the state of the transaction."""
    check_max: int = option(15, rocketmq="transactionCheckMax", minimum=1, maximum=10_000)
    """Number of times that a producer is asked for the state of a transaction before its half message is discarded."""
    reject: bool = option(False, rocketmq="rejectTransactionMessage")
    """Refuses transactional messages."""


@attrs.frozen(kw_only=True)
class AdmissionSection:
    """``admission:`` — limits above which the broker refuses requests with SYSTEM_BUSY."""

    fast_failure: bool = option(False, rocketmq="brokerFastFailureEnable")
    """Refuses a send with SYSTEM_BUSY if the send waited longer than ``send_wait_ms``, or if it waited for an append that took
    longer than ``page_cache_busy_ms``. The remark of the refusal says where the time was spent. Unlike in RocketMQ, this is off
    by default: an embedded broker shares the process of a program, in which a pause of 200 ms does not mean overload."""
    send_wait_ms: int = option(200, rocketmq="waitTimeMillsInSendQueue", minimum=1, maximum=DAY_MS)
    """Longest time from the read of a send to its append if ``admission.fast_failure`` is set. Sends that wait longer are
    refused."""
    page_cache_busy_ms: int = option(1_000, rocketmq="osPageCacheBusyTimeOutMills", minimum=1, maximum=DAY_MS)
    """Longest time of an append if ``admission.fast_failure`` is set. If an append takes longer, the sends that waited for it
    are refused."""
    send_queue: int = option(10_000, rocketmq="sendThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Largest number of sends that wait for their answers."""
    pull_queue: int = option(100_000, rocketmq="pullThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Largest number of pulls that wait for their answers."""
    reply_queue: int = option(10_000, rocketmq="replyThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Largest number of replies that wait to be forwarded to the requesters."""
    query_queue: int = option(20_000, rocketmq="queryThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Largest number of queries for messages that wait for their answers."""
    client_queue: int = option(1_000_000, rocketmq="clientManagerThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Largest number of requests to unregister clients and to check subscriptions that wait for their answers."""
    consumer_queue: int = option(
        1_000_000, rocketmq="consumerManagerThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX
    )
    """Largest number of requests for the members and offsets of consumer groups that wait for their answers."""
    heartbeat_queue: int = option(50_000, rocketmq="heartbeatThreadPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX)
    """Largest number of heartbeats that wait for their answers."""
    end_transaction_queue: int = option(
        100_000, rocketmq="endTransactionPoolQueueCapacity", minimum=1, maximum=QUEUE_MAX
    )
    """Largest number of commits and rollbacks of transactions (END_TRANSACTION requests) that wait for their answers."""
    admin_queue: int = option(10_000, minimum=1, maximum=QUEUE_MAX)
    """Largest number of administrative requests that wait for their answers."""


@attrs.frozen(kw_only=True)
class AlarmsSection:
    """``alarms:`` — limits for the alarms in ``flintmq status``, consoles and metrics (docs/alarms.md)."""

    lag_messages: int = option(10_000, minimum=0, maximum=2**60, feature="alarms")
    """Number of messages of a topic that a group has not consumed (its lag), above which a growing lag raises an alarm. 0
    switches the alarm off."""
    lag_window_ms: int = option(5 * 60_000, minimum=10_000, maximum=DAY_MS, feature="alarms")
    """Time for which a group's lag is observed. An alarm is raised if the lag was above ``lag_messages`` for this time, was
    never below its first value, and is now greater than its first value by a tenth of it or by ``lag_messages``."""
    dispatch_behind_bytes: int = option(64 * MIB, minimum=1, maximum=2**60, feature="alarms")
    """Number of bytes of the log that are durable but not yet visible to consumers, above which an alarm is raised."""
    dispatch_still_ms: int = option(30_000, minimum=1_000, maximum=DAY_MS, feature="alarms")
    """Time after which an alarm is raised if messages wait to become visible to consumers and no message becomes visible."""
    slave_gone_ms: int = option(30_000, minimum=1_000, maximum=DAY_MS, feature="replication")
    """Time after which an alarm is raised if a master's slave is not connected, or if a slave cannot follow its master."""
    slow_shown_ms: int = option(5 * 60_000, minimum=1_000, maximum=DAY_MS)
    """Time for which an alarm is shown after the last slow append, flush or commit, or the last block of the event loop."""
    certificate_days: int = option(14, minimum=0, maximum=3_650)
    """Number of days before the expiry of a certificate from which an alarm is raised."""
