"""Settings of the Spark feed: what other programs are given of the log."""

from __future__ import annotations

import attrs

from flintmq.config.fields import option
from flintmq.config.sections.store import DAY_MS, GIB, MIB


@attrs.frozen(kw_only=True)
class LandingSection:
    """``spark_feed.landing:`` — copies messages into a folder that Spark, pandas and others read. Off without a ``path``."""

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
    roll_bytes: int = option(64 * MIB, unit="bytes", minimum=64 * 1024, maximum=GIB)
    """Bytes of the log after which files are published; the most that is read at once."""
    roll_interval_ms: int = option(10_000, unit="ms", minimum=10, maximum=DAY_MS)
    """Files are published so long after the first message in them, however few there are."""
    queue_bytes: int = option(256 * MIB, unit="bytes", minimum=64 * 1024, maximum=1024 * GIB)
    """Bytes of the log that may wait for the landing zone; with more it reads from the log
    until it has caught up."""
    compression: str = option("zstd", choices=("zstd", "snappy", "none"))
    """The Parquet files' compression."""
    fail_on_data_loss: bool = option(True)
    """Stops landing where retention has deleted messages that have not landed; false notes the gap and goes on behind it."""
    stop_timeout_ms: int = option(5_000, unit="ms", minimum=0, maximum=600_000)
    """How long a stop of the broker waits for what has not landed; the next start goes on with the rest."""


@attrs.frozen(kw_only=True)
class SparkFeedSection:
    """``spark_feed:`` — the dispatcher of that name publishes how far other programs may read the log."""

    landing: LandingSection = attrs.field(factory=LandingSection)
    """Files for programs that cannot see the store."""
