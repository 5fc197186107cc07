"""The history of a cluster over the last day: a sample of its figures each minute, in a file of fixed size that survives
restarts."""

from __future__ import annotations

import asyncio
import math
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from flintmq.core.errors import FlintError
from flintmq.core.io.clock import Clock
from flintmq.core.log_events import event_log
from flintmq.programs.cluster_view.history import Sample
from flintmq.programs.console.clusters import ClusterAccess

log = event_log("flintmq.console")

EVERY_S: Final = 60.0
KEPT: Final = 24 * 60
"""Number of samples in the history file, one for each minute of a day. Each sample overwrites the sample of the same minute of
the day before."""
_FIGURES: Final = struct.Struct("<qdddd")
_RECORD: Final = struct.Struct(f"<{_FIGURES.size}sI")
FILE_BYTES: Final = KEPT * _RECORD.size


@attrs.define
class Hours:
    """The samples of a cluster's figures over the last day; their times are in seconds since 1970. For the loop thread only.

    Args:
        clock: the clock.
        file: the file for the samples; None to keep them in memory. Damaged samples in the file are ignored.
    """

    _clock: Clock
    _file: Path | None = None
    _kept: dict[int, Sample] = attrs.field(factory=dict, init=False)
    """Samples of the last day, keyed by the number of the minute in the day."""
    _is_failing: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            data = self._file.read_bytes()[:FILE_BYTES] if self._file.exists() else b""
        except OSError as error:
            log.error(
                "console.history_not_read",
                "the history file %(file)s is not read: %(error)s",
                file=self._file,
                error=error,
            )
            return
        for place in range(len(data) // _RECORD.size):
            sample = _decoded(data[place * _RECORD.size : (place + 1) * _RECORD.size])
            if sample is not None and _place(sample.at_s) == place:
                self._kept[place] = sample

    def note(self, sample: Sample) -> None:
        """Store a sample of the cluster's figures for this minute, with the current time. A write error is logged once."""
        now_s = self._clock.now_ms() / 1000
        place = _place(now_s)
        self._kept[place] = kept = attrs.evolve(sample, at_s=now_s)
        if self._file is None:
            return
        try:
            with self._file.open("r+b" if self._file.exists() else "w+b") as file:
                file.seek(place * _RECORD.size)
                file.write(_encoded(kept))
        except OSError as error:
            if not self._is_failing:
                log.error(
                    "console.history_not_written",
                    "the history file %(file)s is not written: %(error)s",
                    file=self._file,
                    error=error,
                )
            self._is_failing = True
        else:
            self._is_failing = False

    def since(self, span_s: float) -> tuple[Sample, ...]:
        """Return the samples of the cluster's figures in the last ``span_s`` seconds, oldest first."""
        now_s = self._clock.now_ms() / 1000
        found = [one for one in self._kept.values() if 0 <= now_s - one.at_s <= span_s]
        return tuple(sorted(found, key=lambda one: one.at_s))

    async def record(self, access: Callable[[], ClusterAccess]) -> None:
        """Take a sample of the cluster's figures each minute, until cancelled. No page needs to be open.

        Args:
            access: returns the client that asks the brokers.
        """
        while True:
            await self._record_once(access())
            await asyncio.sleep(EVERY_S)

    async def _record_once(self, access: ClusterAccess) -> None:
        try:
            if await access.is_taken():
                await access.open_view()
                await access.view.refresh()
                samples = access.view.history.cluster()
                if samples:
                    self.note(samples[-1])
        except FlintError as error:
            log.debug("console.minute_not_noted", "nobody answers, so this minute is not noted: %(error)s", error=error)


def _place(at_s: float) -> int:
    return int(at_s // EVERY_S) % KEPT


def _encoded(sample: Sample) -> bytes:
    values = (sample.put_per_s, sample.get_per_s, sample.lag, sample.put_latency_99_ms)
    figures = _FIGURES.pack(int(sample.at_s * 1000), *(math.nan if one is None else float(one) for one in values))
    return _RECORD.pack(figures, zlib.crc32(figures))


def _decoded(record: bytes) -> Sample | None:
    """Return the sample in a record of the history file; None for an empty record or a record that a crash cut off."""
    figures, checksum = _RECORD.unpack(record)
    if zlib.crc32(figures) != checksum:
        return None
    at_ms, *values = _FIGURES.unpack(figures)
    put, get, lag, latency = (None if math.isnan(one) else one for one in values)
    if at_ms <= 0 or not all(one is None or math.isfinite(one) for one in (put, get, lag, latency)):
        return None
    return Sample(at_ms / 1000, put, get, None if lag is None else int(lag), latency)
