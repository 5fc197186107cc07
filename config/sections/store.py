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
    """Round up to whole consume queue units, as RocketMQ does."""
    return -(-value // CONSUME_QUEUE_UNIT_BYTES) * CONSUME_QUEUE_UNIT_BYTES


def _two_digits(value: str) -> str:
    """Return ``4`` and ``4;16`` as RocketMQ writes them: ``04``, ``04;16``."""
    return ";".join(part.strip().zfill(2) for part in str(value).split(";") if part.strip())


def _distinct(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders without blank and repeated ones: a folder listed twice would be loaded twice."""
    stripped = (path.strip().rstrip("/") or path.strip() for path in paths)
    return tuple(dict.fromkeys(path for path in stripped if path))


def _within_10_and_95(value: int) -> int:
    """Return a ratio out of range as the nearest one within, as RocketMQ does."""
    return max(10, min(95, value)) if isinstance(value, int) and 0 <= value <= 100 else value


def _topic_retention(entries: Iterable[str]) -> tuple[str, ...]:
    """Refuse topics of the broker itself, whose messages are its memory, and a topic given twice."""
    found = tuple(entry.strip() for entry in entries)
    topics = [entry.partition("=")[0] for entry in found]
    for topic in topics:
        if topic in HOLDING_TOPICS or topic.startswith("RMQ_SYS_TRANS"):
            raise ConfigError(
                f"'topic_retention' cannot name '{topic}': undelivered messages lie there", key=_RETENTION
            )
        if topics.count(topic) > 1:
            raise ConfigError(f"'topic_retention' names '{topic[:80]}' twice", key=_RETENTION)
    return found


@attrs.frozen(kw_only=True)
class StoreSection:
    """``store:`` — the commit log and the consume queues."""

    path: str = option("./flintmq-store", rocketmq="storePathRootDir", pattern=r".+", expects="a path")
    """The store's folder."""
    commit_log_paths: tuple[str, ...] = option(
        (), rocketmq="storePathCommitLog", rocketmq_separator=",", pattern=r".+", expects="a path", converter=_distinct
    )
    """The commit log's folders, on as many disks; its files are spread over them. None is ``commitlog`` in ``path``."""
    read_only_commit_log_paths: tuple[str, ...] = option(
        (),
        rocketmq="readOnlyCommitLogStorePaths",
        rocketmq_separator=",",
        pattern=r".+",
        expects="a path",
        converter=_distinct,
    )
    """Folders whose commit log files are read, and deleted when they expire, but in which none is made."""
    commit_log_file_bytes: int = option(GIB, rocketmq="mappedFileSizeCommitLog", minimum=4 * KIB, maximum=2**31 - 1)
    """Size of each commit log file. A store can only be opened with the size it was written with."""
    consume_queue_file_bytes: int = option(
        6_000_000,
        rocketmq="mappedFileSizeConsumeQueue",
        minimum=CONSUME_QUEUE_UNIT_BYTES,
        maximum=2**31 - 1 - CONSUME_QUEUE_UNIT_BYTES,
        converter=_whole_units,
    )
    """Size of each consume queue file, rounded up to whole units of 20 bytes."""
    consume_queue_ext_enable: bool = option(False, rocketmq="enableConsumeQueueExt")
    """Keeps the tags code, the store time and the filters' bit map of each message in files beside the consume queue."""
    consume_queue_ext_file_bytes: int = option(
        48 * MIB, rocketmq="mappedFileSizeConsumeQueueExt", minimum=KIB, maximum=2**31 - 1
    )
    """Size of each of those files. They are read wherever there are any, and must have this size."""
    max_message_bytes: int = option(4 * MIB, rocketmq="maxMessageSize", minimum=1, maximum=16 * MIB)
    """A longer body is refused (MESSAGE_ILLEGAL)."""
    check_crc_on_recover: bool = option(True, rocketmq="checkCRCOnRecover")
    """Recovery checks the body's CRC of each record it reads."""
    access_in_memory_ratio: int = option(40, rocketmq="accessMessageInMemoryMaxRatio", minimum=0, maximum=100)
    """Percent of the machine's memory taken to hold the log's tail: what lies before it counts as on disk."""
    max_transfer_bytes_in_memory: int = option(
        256 * KIB, rocketmq="maxTransferBytesOnMessageInMemory", unit="bytes", minimum=1, maximum=16 * MIB
    )
    """Bytes one pull returns at most from memory."""
    max_transfer_count_in_memory: int = option(
        32, rocketmq="maxTransferCountOnMessageInMemory", minimum=1, maximum=65536
    )
    """Messages one pull returns at most from memory."""
    max_transfer_bytes_in_disk: int = option(
        64 * KIB, rocketmq="maxTransferBytesOnMessageInDisk", unit="bytes", minimum=1, maximum=16 * MIB
    )
    """Bytes one pull returns at most from disk."""
    max_transfer_count_in_disk: int = option(8, rocketmq="maxTransferCountOnMessageInDisk", minimum=1, maximum=65536)
    """Messages one pull returns at most from disk."""
    compat: str = option("safe", choices=("safe", "strict"))
    """``strict`` copies RocketMQ's known defects where a comparison needs them; ``safe`` does not. With ``strict`` a message
    that is sent back (36) and the end of a transaction (37) are acknowledged even where ``flush.strategy`` or ``sync_master``
    did not keep what they promise a send."""
    flush_consume_queue_interval_ms: int = option(
        1_000, rocketmq="flushIntervalConsumeQueue", minimum=1, maximum=DAY_MS
    )
    """How often consume queues are flushed."""
    flush_consume_queue_least_pages: int = option(2, rocketmq="flushConsumeQueueLeastPages", minimum=0, maximum=65536)
    """Dirty pages of 4 KiB a consume queue needs to be flushed."""
    flush_consume_queue_thorough_interval_ms: int = option(
        60_000, rocketmq="flushConsumeQueueThoroughInterval", minimum=1, maximum=DAY_MS
    )
    """How often consume queues are flushed however little is dirty."""
    preallocate: bool = option(True)
    """Allocates the next commit log file ahead of time."""
    warm: bool = option(False, rocketmq="warmMapedFileEnable")
    """Fills a new commit log file with zeros before it is used, in the background: its syncs then write no metadata."""
    disk_max_used_ratio: int = option(
        75,
        rocketmq="diskMaxUsedSpaceRatio",
        minimum=10,
        maximum=95,
        converter=_within_10_and_95,
        feature="retention",
    )
    """Percent of the disk in use above which expired files are deleted at any hour. Taken as 10 to 95, as RocketMQ does."""
    disk_forcible_ratio: int = option(85, minimum=35, maximum=100, feature="retention")
    """Percent of the disk in use above which old files are deleted though they have not expired
    (RocketMQ: the system property rocketmq.broker.diskSpaceCleanForciblyRatio)."""
    disk_full_ratio: int = option(90, minimum=35, maximum=100, feature="retention")
    """Percent of the disk in use above which writes are refused; 100 leaves it to ``disk_min_free_bytes``
    (RocketMQ: the system property rocketmq.broker.diskSpaceWarningLevelRatio)."""
    disk_min_free_bytes: int = option(64 * MIB, minimum=0, maximum=2**60, feature="retention")
    """With less free than this writes are refused and old files deleted, whatever the ratios say; 0 is off."""
    disk_enough_free_bytes: int = option(4 * GIB, minimum=0, maximum=2**60, feature="retention")
    """With this much free a disk is neither full nor nearly full, whatever the ratios say: nine tenths of a large shared disk
    may be other people's. 0 is off, as in RocketMQ; it is off when ``compat`` is strict."""
    clean_forcibly: bool = option(True, rocketmq="cleanFileForciblyEnable", feature="retention")
    """Lets a nearly full disk delete files that have not expired."""
    file_reserved_hours: int = option(72, rocketmq="fileReservedTime", minimum=1, maximum=876_000, feature="retention")
    """How long a message is kept; its file goes when the newest one in it is older (``compat: strict``: by the file's
    modification time)."""
    retention_bytes: int = option(0, minimum=0, maximum=2**60, feature="retention")
    """How much of the log is kept at least; older files go at any hour, expired or not. 0 is off."""
    topic_retention: tuple[str, ...] = option(
        (),
        pattern=r"[%|a-zA-Z0-9_-]{1,127}=\d{1,12}(ms|s|m|h|d)",
        expects="a topic and a duration such as 'orders=24h'",
        converter=_topic_retention,
        feature="retention",
    )
    """Topics whose messages are kept for less than the log's files: ``orders=24h``. They can no longer be consumed then;
    their bytes go with the files."""
    hold_until_consumed: bool = option(False, feature="retention")
    """Keeps files in which a group, by its stored offsets, has unread messages, up to ``hold_max_bytes``. A group reads the
    topics in which it has stored an offset, and those that its connected members subscribe to; a queue without an offset
    counts from its beginning. What waits for a delay, a time or the end of a transaction is unread, too. What no group reads is
    not kept."""
    hold_max_bytes: int = option(64 * GIB, minimum=0, maximum=2**60, feature="retention")
    """How much of the log ``hold_until_consumed`` may keep; beyond it the oldest file goes, unread or not."""
    keep_for_groups: tuple[str, ...] = option(
        (), pattern=r"[%|a-zA-Z0-9_-]{1,255}", expects="a group's name", feature="retention"
    )
    """Groups for which files are kept that they have not consumed, by their stored offsets; until ``keep_at_most_hours``, or
    until the disk is nearly full. Empty is off."""
    keep_at_most_hours: int = option(168, minimum=1, maximum=876_000, feature="retention")
    """How long files are kept for ``keep_for_groups``, by their newest message; then they go, unread or not, with a warning. At
    least ``file_reserved_hours``."""
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
    """Hours of the day, local time, at which expired files are deleted."""
    clean_resource_interval_ms: int = option(
        10_000, rocketmq="cleanResourceInterval", minimum=10, maximum=DAY_MS, feature="retention"
    )
    """How often the store looks at the disk, and for files to delete."""

    @property
    def topic_retention_ms(self) -> dict[str, int]:
        """Return ``topic_retention`` by topic."""
        return {
            topic: parse_duration(text) for topic, _, text in (entry.partition("=") for entry in self.topic_retention)
        }


@attrs.frozen(kw_only=True)
class IndexSection:
    """``index:`` — finding messages by key."""

    enable: bool = option(True, rocketmq="messageIndexEnable")
    """Builds the index."""
    builder: str = option("index", pattern=r"\S+", expects="a builder's name")
    """The index builder in force, by name."""
    max_hash_slot_num: int = option(5_000_000, rocketmq="maxHashSlotNum", minimum=1, maximum=100_000_000)
    """Hash slots of each index file."""
    max_index_num: int = option(20_000_000, rocketmq="maxIndexNum", minimum=2, maximum=100_000_000)
    """Entries of each index file."""


@attrs.frozen(kw_only=True)
class GroupCommitSection:
    """``flush.group_commit:`` — every acknowledgement waits for a sync that many share."""

    sync_flush_timeout_ms: int = option(5_000, rocketmq="syncFlushTimeout", minimum=1, maximum=DAY_MS)
    """How long an acknowledgement waits for its sync before it becomes FLUSH_DISK_TIMEOUT."""
    interval_ms: int = option(10, minimum=0, maximum=60_000)
    """How long the service sleeps when no message waits."""


@attrs.frozen(kw_only=True)
class FlushRealTimeSection:
    """``flush.flush_real_time:`` — acknowledges at once, syncs in the background."""

    interval_ms: int = option(500, rocketmq="flushIntervalCommitLog", minimum=1, maximum=DAY_MS)
    """How often the log is flushed."""
    least_pages: int = option(4, rocketmq="flushCommitLogLeastPages", minimum=0, maximum=65536)
    """Dirty pages of 4 KiB a flush needs."""
    thorough_interval_ms: int = option(10_000, rocketmq="flushCommitLogThoroughInterval", minimum=1, maximum=DAY_MS)
    """How often the log is flushed however little is dirty."""
    timed: bool = option(True, rocketmq="flushCommitLogTimed")
    """Sleeps the whole interval; false lets an append wake the service."""


@attrs.frozen(kw_only=True)
class CommitRealTimeSection:
    """``flush.commit_real_time:`` — appends to a buffer pool, copies it into the files, and syncs in the background."""

    interval_ms: int = option(200, rocketmq="commitIntervalCommitLog", minimum=1, maximum=DAY_MS)
    """How often buffers are copied into the files."""
    least_pages: int = option(4, rocketmq="commitCommitLogLeastPages", minimum=0, maximum=65536)
    """Pages of 4 KiB a copy needs."""
    thorough_interval_ms: int = option(200, rocketmq="commitCommitLogThoroughInterval", minimum=1, maximum=DAY_MS)
    """How often buffers are copied however little they hold."""
    pool_size: int = option(5, rocketmq="transientStorePoolSize", minimum=1, maximum=1024)
    """Buffers in the pool, each as large as a commit log file."""
    flush_interval_ms: int = option(500, rocketmq="flushIntervalCommitLog", minimum=1, maximum=DAY_MS)
    """How often the files are flushed."""
    flush_least_pages: int = option(4, rocketmq="flushCommitLogLeastPages", minimum=0, maximum=65536)
    """Dirty pages of 4 KiB a flush needs."""
    flush_thorough_interval_ms: int = option(
        10_000, rocketmq="flushCommitLogThoroughInterval", minimum=1, maximum=DAY_MS
    )
    """How often the files are flushed however little is dirty."""
    flush_timed: bool = option(True, rocketmq="flushCommitLogTimed")
    """Sleeps the whole interval; false lets each copy wake the service."""


@attrs.frozen(kw_only=True)
class FlushSection:
    """``flush:`` — which strategy makes messages durable. A plugin's is set in ``flush.<its name>``."""

    strategy: str = option("flush_real_time", pattern=r"[\w./-]+", expects="a strategy's name")
    """The flush strategy in force, by name (RocketMQ: flushDiskType and transientStorePoolEnable)."""
    pool: str = option("default", pattern=r"[\w./-]+", expects="a pool's name")
    """The transient store pool in force, by name."""
    group_commit: GroupCommitSection = attrs.field(factory=GroupCommitSection)
    """Settings of ``group_commit``."""
    flush_real_time: FlushRealTimeSection = attrs.field(factory=FlushRealTimeSection)
    """Settings of ``flush_real_time``."""
    commit_real_time: CommitRealTimeSection = attrs.field(factory=CommitRealTimeSection)
    """Settings of ``commit_real_time``."""


@attrs.frozen(kw_only=True)
class LandingSection:
    """``spark_feed.landing:`` — copies messages into a folder that Spark, pandas and others read. Off without a ``path``."""

    FEATURE: ClassVar = "spark_feed"

    path: str | None = option(None, pattern=r".+", expects="a path")
    """The landing zone's folder, on a POSIX file system; null is off."""
    format: str = option("parquet", choices=("parquet", "delta"))
    """``parquet``: files by topic and date; ``delta``: a Delta Lake table partitioned by them (needs deltalake)."""
    engine: str = option("process", choices=("process", "thread"))
    """Where messages are decoded and written: a process beside the broker, or a thread of it."""
    topics: tuple[str, ...] = option((), pattern=r"[%|a-zA-Z0-9_-]{1,127}", expects="a topic's name")
    """The topics that land; empty for all."""
    include_system_topics: bool = option(False)
    """Lands the topics of the broker itself, retries and dead letters too: a delayed message then lands twice."""
    start: str = option("earliest", choices=("earliest", "latest"))
    """Where a new landing zone begins: with the oldest message, or with the next one."""
    roll_bytes: int = option(64 * MIB, minimum=64 * 1024, maximum=GIB)
    """Bytes of the log after which files are published; the most that is read at once."""
    roll_interval_ms: int = option(10_000, minimum=10, maximum=DAY_MS)
    """Files are published so long after the first message in them, however few there are."""
    queue_bytes: int = option(256 * MIB, minimum=64 * 1024, maximum=1024 * GIB)
    """Bytes of the log that may wait for the landing zone; with more it reads from the log
    until it has caught up."""
    compression: str = option("zstd", choices=("zstd", "snappy", "none"))
    """The Parquet files' compression."""
    fail_on_data_loss: bool = option(True)
    """Stops landing where retention has deleted messages that have not landed; false notes the gap and goes on behind it."""
    stop_timeout_ms: int = option(5_000, minimum=0, maximum=600_000)
    """How long a stop of the broker waits for what has not landed; the next start goes on with the rest."""


@attrs.frozen(kw_only=True)
class SparkFeedSection:
    """``spark_feed:`` — the dispatcher of that name publishes how far other programs may read the log."""

    landing: LandingSection = attrs.field(factory=LandingSection)
    """Files for programs that cannot see the store."""
