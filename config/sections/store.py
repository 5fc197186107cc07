"""Settings of the store: files, reads, cleaning, the index, the Spark feed, and when bytes are flushed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.fields import option
from flintmq.config.rocketmq.system_topics import HOLDING_TOPICS
from flintmq.config.units import DAY_MS, GIB, KIB, MIB, parse_duration

CONSUME_QUEUE_UNIT_BYTES = 20
_RETENTION = "topic_retention"


def _whole_units(value: int) -> int:
    """Return the size of a consume queue file rounded up to whole consume queue units, as RocketMQ does."""
    return -(-value // CONSUME_QUEUE_UNIT_BYTES) * CONSUME_QUEUE_UNIT_BYTES


def _two_digits(value: str) -> str:
    """Return hours of the day with two digits, as RocketMQ writes them: ``4;16`` as ``04;16``."""
    return ";".join(part.strip().zfill(2) for part in str(value).split(";") if part.strip())


def _distinct(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of the commit log without blank and repeated entries; a folder listed twice would be loaded twice."""
    stripped = (path.strip().rstrip("/") or path.strip() for path in paths)
    return tuple(dict.fromkeys(path for path in stripped if path))


def _within_10_and_95(value: int) -> int:
    """Return a percentage of disk usage limited to the range from 10 to 95, as RocketMQ does."""
    return max(10, min(95, value)) if isinstance(value, int) and 0 <= value <= 100 else value


def _topic_retention(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of ``topic_retention`` without blanks around them.

    Raises:
        ConfigError: an entry names a topic in which the broker keeps undelivered messages, or a topic is named twice.
    """
    found = tuple(entry.strip() for entry in entries)
    topics = [entry.partition("=")[0] for entry in found]
    for topic in topics:
        if topic in HOLDING_TOPICS or topic.startswith("RMQ_SYS_TRANS"):
            raise ConfigError(
                f"'topic_retention' cannot name '{topic}', because it holds undelivered messages", key=_RETENTION
            )
        if topics.count(topic) > 1:
            raise ConfigError(f"'topic_retention' names '{topic[:80]}' twice", key=_RETENTION)
    return found


@attrs.frozen(kw_only=True)
class StoreSection:
    """``store:`` — the commit log and the consume queues."""

    path: str = option("./flintmq-store", rocketmq="storePathRootDir", pattern=r".+", expects="a path")
    """Folder of the store, in which the broker keeps its messages and tables."""
    commit_log_paths: tuple[str, ...] = option(
        (), rocketmq="storePathCommitLog", rocketmq_separator=",", pattern=r".+", expects="a path", converter=_distinct
    )
    """Folders over which the commit log's files are spread, each on its own disk. If empty, the folder is ``commitlog`` in
    ``store.path``."""
    read_only_commit_log_paths: tuple[str, ...] = option(
        (),
        rocketmq="readOnlyCommitLogStorePaths",
        rocketmq_separator=",",
        pattern=r".+",
        expects="a path",
        converter=_distinct,
    )
    """Folders with older commit log files. These files are read, and deleted when they expire. No new files are created in the
    folders."""
    commit_log_file_bytes: int = option(GIB, rocketmq="mappedFileSizeCommitLog", minimum=4 * KIB, maximum=2**31 - 1)
    """Size of each commit log file. A store can only be opened with the size with which its files were written."""
    consume_queue_file_bytes: int = option(
        6_000_000,
        rocketmq="mappedFileSizeConsumeQueue",
        minimum=CONSUME_QUEUE_UNIT_BYTES,
        maximum=2**31 - 1 - CONSUME_QUEUE_UNIT_BYTES,
        converter=_whole_units,
    )
    """Size of each consume queue file, rounded up to whole units of 20 bytes."""
    consume_queue_ext_enable: bool = option(False, rocketmq="enableConsumeQueueExt")
    """Stores the tags code, the store time and the filter bit map of each message in extra files beside the consume queue."""
    consume_queue_ext_file_bytes: int = option(
        48 * MIB, rocketmq="mappedFileSizeConsumeQueueExt", minimum=KIB, maximum=2**31 - 1
    )
    """Size of each extra file that ``store.consume_queue_ext_enable`` creates. Extra files that exist are always read, and must
    have this size."""
    max_message_bytes: int = option(4 * MIB, rocketmq="maxMessageSize", minimum=1, maximum=16 * MIB)
    """Largest body of a message. A message with a longer body is refused with MESSAGE_ILLEGAL."""
    check_crc_on_recover: bool = option(True, rocketmq="checkCRCOnRecover")
    """Checks the CRC of each record's body when the log is recovered at the start."""
    access_in_memory_ratio: int = option(40, rocketmq="accessMessageInMemoryMaxRatio", minimum=0, maximum=100)
    """Percentage of the machine's memory that is assumed to cache the end of the log. Older messages count as on disk, so pulls
    of these messages have the limits ``store.max_transfer_bytes_in_disk`` and ``store.max_transfer_count_in_disk``."""
    max_transfer_bytes_in_memory: int = option(
        256 * KIB, rocketmq="maxTransferBytesOnMessageInMemory", unit="bytes", minimum=1, maximum=16 * MIB
    )
    """Largest number of bytes of messages that one pull returns from memory."""
    max_transfer_count_in_memory: int = option(
        32, rocketmq="maxTransferCountOnMessageInMemory", minimum=1, maximum=65536
    )
    """Largest number of messages that one pull returns from memory."""
    max_transfer_bytes_in_disk: int = option(
        64 * KIB, rocketmq="maxTransferBytesOnMessageInDisk", unit="bytes", minimum=1, maximum=16 * MIB
    )
    """Largest number of bytes of messages that one pull returns from disk."""
    max_transfer_count_in_disk: int = option(8, rocketmq="maxTransferCountOnMessageInDisk", minimum=1, maximum=65536)
    """Largest number of messages that one pull returns from disk."""
    compat: str = option("safe", choices=("safe", "strict"))
    """``strict`` reproduces known defects of RocketMQ, for comparisons with RocketMQ; ``safe`` does not. With ``strict``, a
    message that is sent back (request 36) and the end of a transaction (request 37) are acknowledged even if they are not as
    durable as ``flush.strategy`` or ``sync_master`` requires for sends."""
    flush_consume_queue_interval_ms: int = option(
        1_000, rocketmq="flushIntervalConsumeQueue", minimum=1, maximum=DAY_MS
    )
    """Interval between two flushes of the consume queues."""
    flush_consume_queue_least_pages: int = option(2, rocketmq="flushConsumeQueueLeastPages", minimum=0, maximum=65536)
    """Smallest number of dirty pages of 4 KiB from which a consume queue is flushed."""
    flush_consume_queue_thorough_interval_ms: int = option(
        60_000, rocketmq="flushConsumeQueueThoroughInterval", minimum=1, maximum=DAY_MS
    )
    """Interval after which consume queues are flushed even with fewer than ``flush_consume_queue_least_pages`` dirty pages."""
    preallocate: bool = option(True)
    """Allocates the next commit log file before the current one is full."""
    warm: bool = option(False, rocketmq="warmMapedFileEnable")
    """Fills a new commit log file with zeros in the background before the file is used, so that syncs of the file write no
    metadata."""
    disk_max_used_ratio: int = option(
        75,
        rocketmq="diskMaxUsedSpaceRatio",
        minimum=10,
        maximum=95,
        converter=_within_10_and_95,
        feature="retention",
    )
    """Percentage of the disk in use above which expired files are deleted at any hour. A value outside 10 to 95 is replaced by
    10 or 95, as in RocketMQ."""
    disk_forcible_ratio: int = option(85, minimum=35, maximum=100, feature="retention")
    """Percentage of the disk in use above which old files are deleted although they have not expired
    (RocketMQ: the system property rocketmq.broker.diskSpaceCleanForciblyRatio)."""
    disk_full_ratio: int = option(90, minimum=35, maximum=100, feature="retention")
    """Percentage of the disk in use above which writes are refused. With 100, only ``disk_min_free_bytes`` refuses writes
    (RocketMQ: the system property rocketmq.broker.diskSpaceWarningLevelRatio)."""
    disk_min_free_bytes: int = option(64 * MIB, minimum=0, maximum=2**60, feature="retention")
    """Number of free bytes of the disk below which writes are refused and old files are deleted, regardless of the percentages
    of the disk in use. 0 switches this limit off."""
    disk_enough_free_bytes: int = option(4 * GIB, minimum=0, maximum=2**60, feature="retention")
    """Number of free bytes from which the disk counts as neither full nor nearly full, whatever percentage of the disk is in
    use. On a large shared disk, other programs may use most of the space. With 0, as in RocketMQ, or with ``store.compat:
    strict``, this setting has no effect."""
    clean_forcibly: bool = option(True, rocketmq="cleanFileForciblyEnable", feature="retention")
    """Allows the deletion of files that have not expired if the disk is nearly full."""
    file_reserved_hours: int = option(72, rocketmq="fileReservedTime", minimum=1, maximum=876_000, feature="retention")
    """Time for which messages are kept. A file of the log expires when its newest message is older than this time. With
    ``store.compat: strict``, a file expires when its last modification is older than this time."""
    retention_bytes: int = option(0, minimum=0, maximum=2**60, feature="retention")
    """Number of the newest bytes of the log that are kept. Older files are deleted at any hour, even if they have not expired.
    0 switches this limit off."""
    topic_retention: tuple[str, ...] = option(
        (),
        pattern=r"[%|a-zA-Z0-9_-]{1,127}=\d{1,12}(ms|s|m|h|d)",
        expects="a topic and a duration such as 'orders=24h'",
        converter=_topic_retention,
        feature="retention",
    )
    """Topics with a shorter retention than the files of the log, such as ``orders=24h``. Older messages of such a topic cannot
    be consumed. The bytes of these messages are deleted with the files of the log."""
    hold_until_consumed: bool = option(False, feature="retention")
    """Keeps files of the log with messages that a group has not consumed, up to ``store.hold_max_bytes``. A message counts as
    consumed if the group's stored offset is after the message. A group's topics are the topics in which the group has stored an
    offset, and the topics to which its connected members subscribe. A queue without an offset counts as unread from its
    beginning. Messages that wait for a delay, a time or the end of a transaction count as unread, too."""
    hold_max_bytes: int = option(64 * GIB, minimum=0, maximum=2**60, feature="retention")
    """Maximum number of bytes of the log that ``store.hold_until_consumed`` keeps. A file that begins more than this number of
    bytes before the end of the log is not kept, even with unread messages."""
    keep_for_groups: tuple[str, ...] = option(
        (), pattern=r"[%|a-zA-Z0-9_-]{1,255}", expects="a group's name", feature="retention"
    )
    """Groups whose unread messages are kept. A file of the log is deleted only when these groups have stored offsets after all
    messages of the file, when ``store.keep_at_most_hours`` have passed, or when the disk is nearly full. If the list is empty,
    files are deleted without waiting for any group."""
    keep_at_most_hours: int = option(168, minimum=1, maximum=876_000, feature="retention")
    """Age of a file's newest message from which ``store.keep_for_groups`` no longer keeps the file. The file is then deleted
    with a warning, even with unread messages. The value must be at least ``store.file_reserved_hours``."""
    delete_when: str = option(
        "04",
        rocketmq="deleteWhen",
        converter=_two_digits,
        pattern=r"([01]\d|2[0-3])(;([01]\d|2[0-3]))*",
        expects="hours of the day such as 04 or 04;16",
        written=r"[\s;]*([01]?\d|2[0-3])(\s*;[\s;]*([01]?\d|2[0-3]))*[\s;]*",
        minimum=0,
        maximum=23,
        feature="retention",
    )
    """Hours of the day, in local time, at which expired files of the log are deleted. Several hours are separated by
    semicolons."""
    clean_resource_interval_ms: int = option(
        10_000, rocketmq="cleanResourceInterval", minimum=10, maximum=DAY_MS, feature="retention"
    )
    """Interval between two checks of the disk's free space and of the files to delete."""

    @property
    def topic_retention_ms(self) -> dict[str, int]:
        """Return the retention of each topic in ``topic_retention`` in ms, keyed by topic."""
        return {
            topic: parse_duration(text) for topic, _, text in (entry.partition("=") for entry in self.topic_retention)
        }


@attrs.frozen(kw_only=True)
class IndexSection:
    """``index:`` — finding messages by key."""

    enable: bool = option(True, rocketmq="messageIndexEnable")
    """Builds the index by which messages are found by key."""
    builder: str = option("index", pattern=r"\S+", expects="a builder's name")
    """Name of the builder of the index of messages by key."""
    max_hash_slot_num: int = option(5_000_000, rocketmq="maxHashSlotNum", minimum=1, maximum=100_000_000)
    """Number of hash slots of each file of the index by key."""
    max_index_num: int = option(20_000_000, rocketmq="maxIndexNum", minimum=2, maximum=100_000_000)
    """Largest number of entries of each file of the index by key."""


@attrs.frozen(kw_only=True)
class GroupCommitSection:
    """``flush.group_commit:`` — every acknowledgement waits for a sync, which many acknowledgements share."""

    sync_flush_timeout_ms: int = option(5_000, rocketmq="syncFlushTimeout", minimum=1, maximum=DAY_MS)
    """Longest time that a send waits for the sync of its message. A send that waits longer is answered FLUSH_DISK_TIMEOUT."""
    interval_ms: int = option(10, minimum=0, maximum=60_000)
    """Time that the flush service sleeps if no message waits for a sync."""


@attrs.frozen(kw_only=True)
class FlushRealTimeSection:
    """``flush.flush_real_time:`` — acknowledges messages at once, and syncs them in the background."""

    interval_ms: int = option(500, rocketmq="flushIntervalCommitLog", minimum=1, maximum=DAY_MS)
    """Interval between two flushes of the log."""
    least_pages: int = option(4, rocketmq="flushCommitLogLeastPages", minimum=0, maximum=65536)
    """Smallest number of dirty pages of 4 KiB from which the log is flushed."""
    thorough_interval_ms: int = option(10_000, rocketmq="flushCommitLogThoroughInterval", minimum=1, maximum=DAY_MS)
    """Interval after which the log is flushed even with fewer than ``least_pages`` dirty pages."""
    timed: bool = option(True, rocketmq="flushCommitLogTimed")
    """Lets the flush service sleep for the whole ``interval_ms`` between flushes. If false, an append wakes the flush service
    earlier."""


@attrs.frozen(kw_only=True)
class CommitRealTimeSection:
    """``flush.commit_real_time:`` — appends messages to a buffer pool, then copies them into the files and syncs in the
    background."""

    interval_ms: int = option(200, rocketmq="commitIntervalCommitLog", minimum=1, maximum=DAY_MS)
    """Interval between two copies of the transient store pool's buffers into the commit log files."""
    least_pages: int = option(4, rocketmq="commitCommitLogLeastPages", minimum=0, maximum=65536)
    """Smallest number of new pages of 4 KiB from which a buffer of the transient store pool is copied into its commit log
    file."""
    thorough_interval_ms: int = option(200, rocketmq="commitCommitLogThoroughInterval", minimum=1, maximum=DAY_MS)
    """Interval after which the transient store pool's buffers are copied even with fewer than ``least_pages`` new pages."""
    pool_size: int = option(5, rocketmq="transientStorePoolSize", minimum=1, maximum=1024)
    """Number of buffers in the transient store pool. Each buffer is as large as a commit log file."""
    flush_interval_ms: int = option(500, rocketmq="flushIntervalCommitLog", minimum=1, maximum=DAY_MS)
    """Interval between two flushes of the commit log files."""
    flush_least_pages: int = option(4, rocketmq="flushCommitLogLeastPages", minimum=0, maximum=65536)
    """Smallest number of dirty pages of 4 KiB from which the commit log files are flushed."""
    flush_thorough_interval_ms: int = option(
        10_000, rocketmq="flushCommitLogThoroughInterval", minimum=1, maximum=DAY_MS
    )
    """Interval after which the commit log files are flushed even with fewer than ``flush_least_pages`` dirty pages."""
    flush_timed: bool = option(True, rocketmq="flushCommitLogTimed")
    """Lets the flush service sleep for the whole ``flush_interval_ms`` between flushes. If false, the flush service also wakes
    up each time the bytes of a transient store pool's buffer were copied into a commit log file."""


@attrs.frozen(kw_only=True)
class FlushSection:
    """``flush:`` — the strategy that makes messages durable. A plugin's strategy has its settings in ``flush.<its name>``."""

    strategy: str = option("flush_real_time", pattern=r"[\w./-]+", expects="a strategy's name")
    """Name of the flush strategy to use (RocketMQ: flushDiskType and transientStorePoolEnable)."""
    pool: str = option("default", pattern=r"[\w./-]+", expects="a pool's name")
    """Name of the transient store pool to use."""
    group_commit: GroupCommitSection = attrs.field(factory=GroupCommitSection)
    """Settings of the flush strategy ``group_commit``."""
    flush_real_time: FlushRealTimeSection = attrs.field(factory=FlushRealTimeSection)
    """Settings of the flush strategy ``flush_real_time``."""
    commit_real_time: CommitRealTimeSection = attrs.field(factory=CommitRealTimeSection)
    """Settings of the flush strategy ``commit_real_time``."""


@attrs.frozen(kw_only=True)
class LandingSection:
    """``spark_feed.landing:`` — copies messages into a folder that Spark, pandas and others read. Off without a ``path``."""

    FEATURE: ClassVar = "spark_feed"

    path: str | None = option(None, pattern=r".+", expects="a path")
    """Folder on a POSIX file system into which messages are copied (the landing zone); null copies none."""
    format: str = option("parquet", choices=("parquet", "delta"))
    """Format of the landing zone. ``parquet``: files by topic and date; ``delta``: a Delta Lake table that is partitioned by
    topic and date (needs deltalake)."""
    engine: str = option("process", choices=("process", "thread"))
    """Whether a process beside the broker (``process``) or a thread of the broker (``thread``) decodes and writes the messages
    of the landing zone."""
    topics: tuple[str, ...] = option((), pattern=r"[%|a-zA-Z0-9_-]{1,127}", expects="a topic's name")
    """Topics whose messages are copied into the landing zone; empty for all."""
    include_system_topics: bool = option(False)
    """Also copies messages of the broker's own topics and of retry and dead letter topics into the landing zone. A delayed
    message is then copied twice."""
    start: str = option("earliest", choices=("earliest", "latest"))
    """First message of a new landing zone. ``earliest`` is the oldest message in the log, ``latest`` the next message that is
    stored."""
    roll_bytes: int = option(64 * MIB, minimum=64 * 1024, maximum=GIB)
    """Number of new bytes in the log after which their messages are copied into the landing zone (the folder ``path``). The new
    files are then published, which makes them visible to readers. At most this number of bytes of the log is read at once."""
    roll_interval_ms: int = option(10_000, minimum=10, maximum=DAY_MS)
    """Time after the first message of a landing zone's file at which the file is published, even with few messages."""
    queue_bytes: int = option(256 * MIB, minimum=64 * 1024, maximum=1024 * GIB)
    """Number of bytes of the log that may wait in memory for the landing zone. If more bytes wait, the landing zone reads from
    the log until it has caught up."""
    compression: str = option("zstd", choices=("zstd", "snappy", "none"))
    """Compression of the landing zone's Parquet files."""
    fail_on_data_loss: bool = option(True)
    """Stops copying into the landing zone if retention has deleted messages that were not copied. If false, the gap is recorded
    and copying continues after the gap."""
    stop_timeout_ms: int = option(5_000, minimum=0, maximum=600_000)
    """Time for which a broker that stops waits until messages are copied into the landing zone. Messages that are not copied in
    this time are copied after the next start."""


@attrs.frozen(kw_only=True)
class SparkFeedSection:
    """``spark_feed:`` — settings of the dispatcher ``spark_feed``, which publishes how far other programs may read the log."""

    landing: LandingSection = attrs.field(factory=LandingSection)
    """Settings of the landing zone: files for programs that cannot read the store."""
