"""The lander: takes the next stretch of the log into the landing zone."""

from __future__ import annotations

from pathlib import Path

from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.landing.errors import LandingLossError
from flintmq.plugins.spark.landing.lock import ZoneLock
from flintmq.plugins.spark.landing.log_reader import LogReader
from flintmq.plugins.spark.landing.parquet_zone import ParquetZone
from flintmq.plugins.spark.landing.task import Landed, LandingTask
from flintmq.plugins.spark.landing.zone import LandingZone


class Lander:
    """Moves messages from a log into a landing zone, one commit a step. One thread.

    Args:
        task: which log, which zone.
        begin_offset_bytes: where a new landing zone begins.

    Raises:
        LandingError: the zone cannot be used; see :meth:`flintmq.plugins.spark.landing.zone.LandingZone.open`.
        LandingTroubleError: another lander is at work in it.
    """

    def __init__(
        self, task: LandingTask, begin_offset_bytes: int, disk: Disk = OS_DISK, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._lock: ZoneLock | None = ZoneLock(Path(task.path)) if disk is OS_DISK else None
        try:
            self._zone = _zone(task, disk, clock)
            self._zone.open()
        except BaseException:
            self.close()
            raise
        self._reader = LogReader([Path(folder) for folder in task.log_folders], _decoder(task))
        committed = self._zone.committed_bytes
        self._start = begin_offset_bytes if committed is None else committed
        """Where the next commit begins."""
        self._at = self._start
        """Where reading continues: behind it when what was read had no row."""
        self._unsettled = False

    @property
    def committed_bytes(self) -> int:
        """Everything below this physical offset has landed."""
        return self._start

    def land(self, limit_offset_bytes: int, max_bytes: int, *, skip_lost: bool = False) -> Landed:
        """Land the next stretch.

        Args:
            limit_offset_bytes: a boundary of the log up to which it may be read.
            max_bytes: how much of the log, about.
            skip_lost: continues behind what retention has deleted, and notes the gap.

        Raises:
            LandingLossError: it is deleted, and not to be skipped.
            BadRecordError: the log is damaged.
            StoreError, OSError: the zone cannot be written; the same step can be tried again.
        """
        if self._unsettled:
            self._settle()
        stood, lost_to = self._at, None
        try:
            stretch = self._reader.read(stood, limit_offset_bytes, max_bytes)
        except LandingLossError as error:
            if not skip_lost or error.lost_to_bytes > limit_offset_bytes:
                raise
            lost_to = error.lost_to_bytes
            stretch = self._reader.read(lost_to, limit_offset_bytes, max_bytes)
        end = stretch.end_offset_bytes
        if not stretch.rows.num_rows and lost_to is None:
            self._at = end
            return Landed(
                committed_bytes=self._start, read_to_bytes=self._at, rows=0, files=0, file_bytes=0, lost_bytes=0
            )
        self._unsettled = True
        commit = self._zone.publish(self._start, end, stretch.rows, lost_to_bytes=lost_to)
        self._unsettled = False
        self._start = self._at = end
        return Landed(
            committed_bytes=self._start,
            read_to_bytes=self._at,
            rows=commit.rows,
            files=len(commit.files),
            file_bytes=sum(file.size_bytes for file in commit.files),
            lost_bytes=0 if lost_to is None else lost_to - stood,
        )

    def close(self) -> None:
        """Let the next lander in. Idempotent."""
        if hasattr(self, "_zone"):
            self._zone.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _settle(self) -> None:
        """After a failed step: whether it has happened only the zone can tell; it finishes or removes what there is."""
        self._zone.open()
        committed = self._zone.committed_bytes
        self._start = self._start if committed is None else committed
        self._at = self._start
        self._unsettled = False


def _zone(task: LandingTask, disk: Disk, clock: Clock) -> LandingZone:
    if task.format == "delta":
        from flintmq.plugins.spark.landing.delta_zone import DeltaZone

        return DeltaZone(Path(task.path), task.source, clock, task.compression)
    return ParquetZone(disk, Path(task.path), task.source, clock, task.compression)


def _decoder(task: LandingTask) -> Decoder:
    topics = frozenset(task.topics) if task.topics else None
    rows = RowFilter(topics=topics, system_topics=task.include_system_topics)
    return Decoder(rows=rows, broker_name=task.source.broker_name)
