"""Copies a broker's commit log, one part after another, into a landing zone."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import Final

from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.landing.log_reader import LogReader
from flintmq.plugins.spark.landing.manifest import MANIFEST_FOLDER, Commit
from flintmq.plugins.spark.landing.task import Landed, LandingLossError, LandingTask, LandingTroubleError
from flintmq.plugins.spark.landing.zones import DeltaZone, LandingZone, ParquetZone

_LOCK_TRY_S: Final = 0.05


class Lander:
    """Copies messages from a log into a landing zone, with one commit per step. Not thread-safe.

    Args:
        task: the log, the landing zone and their settings.
        begin_offset_bytes: the physical offset at which a new landing zone begins.

    Raises:
        LandingError: the zone cannot be used; see :meth:`flintmq.plugins.spark.landing.zones.LandingZone.open`.
        LandingTroubleError: another lander uses the zone.
    """

    def __init__(
        self, task: LandingTask, begin_offset_bytes: int, disk: Disk = OS_DISK, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._source = task.source
        self._clock = clock
        self._lock = ZoneLock(Path(task.path)) if disk is OS_DISK else None
        try:
            self._zone: LandingZone = (
                DeltaZone(Path(task.path), task.source, task.compression)
                if task.format == "delta"
                else ParquetZone(disk, Path(task.path), task.source, task.compression)
            )
            committed = self._zone.open()
        except BaseException:
            self.close()
            raise
        rows = RowFilter(topics=frozenset(task.topics) or None, system_topics=task.include_system_topics)
        self._reader = LogReader(task.log_folders, Decoder(rows=rows, broker_name=task.source.broker_name))
        self._start = begin_offset_bytes if committed is None else committed
        """Start of the log range that the next commit covers, as a physical offset."""
        self._at = self._start
        """Physical offset at which the next read of the log begins. It is greater than the start of the next commit's range,
        :attr:`_start`, if the lander has read bytes after this start but has found no row in them for the landing zone."""
        self._unsettled = False

    @property
    def committed_bytes(self) -> int:
        """The physical offset up to which the log has been copied to the landing zone."""
        return self._start

    def land(self, limit_offset_bytes: int, max_bytes: int, *, skip_lost: bool = False) -> Landed:
        """Copy the next part of the log to the landing zone.

        Args:
            limit_offset_bytes: the physical offset, between two records, up to which the log may be read.
            max_bytes: the approximate number of bytes of the log to copy.
            skip_lost: whether to continue after messages that retention deleted, and to record the gap in the commit.

        Raises:
            LandingLossError: messages were deleted before they were copied, and ``skip_lost`` is not set.
            BadRecordError: the log is damaged.
            StoreError, OSError: the zone cannot be written. The caller may repeat the step.
        """
        if self._unsettled:
            # The last commit may be incomplete. Opening the landing zone again completes or removes an incomplete commit.
            committed = self._zone.open()
            self._at = self._start = self._start if committed is None else committed
            self._unsettled = False
        stood, lost_to = self._at, None
        try:
            rows, end = self._reader.read(stood, limit_offset_bytes, max_bytes)
        except LandingLossError as error:
            if not skip_lost or error.lost_to_bytes > limit_offset_bytes:
                raise
            lost_to = error.lost_to_bytes
            rows, end = self._reader.read(lost_to, limit_offset_bytes, max_bytes)
        if not rows.num_rows and lost_to is None:
            self._at = end
            return Landed(committed_bytes=self._start, read_to_bytes=end)
        commit = Commit(
            start_offset_bytes=self._start,
            end_offset_bytes=end,
            store_id=self._source.store_id,
            epoch=self._source.epoch,
            broker_name=self._source.broker_name,
            committed_at_ms=self._clock.now_ms(),
            lost_to_bytes=lost_to,
        )
        self._unsettled = True
        commit = self._zone.publish(commit, rows)
        self._unsettled = False
        self._start = self._at = end
        return Landed(
            committed_bytes=end,
            read_to_bytes=end,
            rows=commit.rows,
            files=len(commit.files),
            file_bytes=sum(file.size_bytes for file in commit.files),
            lost_bytes=0 if lost_to is None else lost_to - stood,
        )

    def close(self) -> None:
        """Release the lock of the landing zone, so that another lander can open the zone. Idempotent."""
        if self._lock is not None:
            self._lock.release()


class ZoneLock:
    """Locks a landing zone against other landers, from construction until :meth:`release`.

    If a broker is killed, the broker's lander process finishes its current step before it exits. The next lander waits until
    that process has exited.

    Args:
        root: the landing zone's folder.
        wait_s: the longest time in seconds to wait while another process has the lock.

    Raises:
        LandingTroubleError: another process holds the lock.
        OSError: the lock file cannot be created.
    """

    def __init__(self, root: Path, wait_s: float = 10.0) -> None:
        path = root / MANIFEST_FOLDER / "lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        until_s = time.monotonic() + wait_s
        while True:
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= until_s:
                    self._file.close()
                    raise LandingTroubleError(
                        f"{root}: another broker uses this landing zone; stop that broker, or set spark_feed.landing.path"
                    ) from error
            time.sleep(_LOCK_TRY_S)

    def release(self) -> None:
        """Release the lock of the landing zone, so that another lander can use the zone. Idempotent."""
        self._file.close()
