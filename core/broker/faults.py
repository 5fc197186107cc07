"""Records requests that a broker refuses because of its faults, logs them at growing intervals, and returns alarms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports.alarm import CRITICAL, Alarm
from flintmq.core.log_events import event_log

log = event_log("flintmq.broker")

SHOWN_S: Final = 300.0
"""Seconds after the last refused send at which an alarm about refused sends ends, if no send has succeeded since the
refusal."""
_PAUSES_S: Final = (10.0, 640.0)
"""Shortest and longest pause, in seconds, between two log lines about sends that are refused for the same reason. The pause
doubles with each line."""
_QUIET_S: Final = 60.0
"""Time in seconds after which a new fault is logged as if it were the first. If no send was refused for a reason during this
time, the pause between the log lines about this reason is the shortest pause again."""
_SETTLED_S: Final = 0.5
"""Seconds without refused sends before a fault can end. A fault thus does not end while some sends are refused and others are
accepted."""

_STORED: Final = "stored"
_DURABLE: Final = "durable"
_TAKEN: Final = "taken"
_FAULTS: Final[Mapping[str, tuple[str, float]]] = {
    "store.disk_full": (_STORED, 0.0),
    "store.exhausted": (_STORED, 0.0),
    "store.failed": (_STORED, 0.0),
    "store.file": (_STORED, 0.0),
    "flush.timeout": (_DURABLE, 0.0),
    "ha.no_slave": (_DURABLE, 0.0),
    "ha.timeout": (_DURABLE, 0.0),
    "admission.page_cache_busy": (_TAKEN, 10.0),
    "admission.send_wait": (_TAKEN, 10.0),
}
"""Faults of the broker for which it refuses sends, keyed by the reason of the refusals. Each value has two parts:

* The success that ends the fault: ``stored`` or ``taken`` if messages were stored again, ``durable`` if messages became durable
  again.
* The number of seconds that the fault must last before it is logged. Refusals by flow control are logged with a delay, because
  short peaks of load are normal.

Three faults are not in this mapping, because other modules report them: a store that acknowledges nothing after a failed write
or sync, a store with too little free disk space for the settings of retention, and a store that cannot dispatch.
"""


@attrs.define
class _Pace:
    """The time at which the logger may next report a fault that lasts."""

    told_s: float | None = None
    pause_s: float = 0.0

    def is_due(self, now_s: float) -> bool:
        """Return whether a line about the fault is to be logged now. If so, double the pause before the next line."""
        if self.told_s is not None and now_s - self.told_s < self.pause_s:
            return False
        self.told_s = now_s
        self.pause_s = min(max(self.pause_s * 2, _PAUSES_S[0]), _PAUSES_S[1])
        return True


@attrs.define
class _Fault:
    reason: str
    error: RefusedError
    since_s: float
    last_s: float
    times: int = 0
    """Number of refusals since this fault of the broker began."""
    is_over: bool = False
    well_s: float = -1.0
    """Monotonic time in seconds of the last successful send after the last refusal; -1 if no send has succeeded after the last
    refusal."""
    was_told: bool = False
    """Whether this fault of the broker was logged since it began."""
    pace: _Pace = attrs.field(factory=_Pace)

    @property
    def lasts(self) -> bool:
        return self.last_s - self.since_s >= _FAULTS[self.reason][1]


@attrs.define
class _Unwritten:
    """The last failed write of a table to its file."""

    error: str
    last_s: float
    pace: _Pace = attrs.field(factory=_Pace)


class BrokerFaults:
    """Records refusals that are faults of the broker, not of its clients. Used only on the event loop's thread.

    Args:
        clock: gives the monotonic time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: dict[str, _Fault] = {}
        self._unwritten: dict[str, _Unwritten] = {}
        self.are_some = False
        """Whether any fault of the broker lasts. If no fault lasts, callers need not report successful sends."""

    def refused(self, error: RefusedError, times: int = 1) -> None:
        """Record refused messages, or stored messages that are not as durable as promised.

        Refusals for which the client is responsible are ignored.

        Args:
            error: the answer to the clients.
            times: number of messages.
        """
        if error.reason not in _FAULTS:
            return
        now_s = self._clock.monotonic_s()
        self._end_some(now_s)
        fault = self._faults.get(error.reason)
        if fault is None:
            fault = self._faults[error.reason] = _Fault(error.reason, error, now_s, now_s)
        elif fault.is_over:
            if now_s - fault.last_s >= _QUIET_S:
                fault.pace = _Pace()
            fault.is_over, fault.was_told, fault.since_s, fault.times = False, False, now_s, 0
        self.are_some = True
        fault.error, fault.last_s, fault.well_s = error, now_s, -1.0
        fault.times += times
        if fault.lasts and fault.pace.is_due(now_s):
            log.error(
                "sends.refused",
                "sends are refused: %(refusal)s; %(refused)d since %(since_s).0f s",
                refusal=error.remark,
                refused=fault.times,
                since_s=now_s - fault.since_s,
            )
            fault.was_told = True

    def stored(self) -> None:
        """Record that messages were stored. This ends faults of the store and of flow control."""
        self._well(_STORED, _TAKEN)

    def durable(self) -> None:
        """Record that messages became as durable as promised. This ends faults of flushes and of replication."""
        self._well(_DURABLE)

    def _well(self, *kinds: str) -> None:
        now_s = self._clock.monotonic_s()
        for fault in self._faults.values():
            if _FAULTS[fault.reason][0] in kinds:
                fault.well_s = now_s
        self._end_some(now_s)

    def _end_some(self, now_s: float) -> None:
        """Mark the faults that are over, and log the end of each fault whose beginning was logged."""
        for fault in self._faults.values():
            quiet_s = now_s - fault.last_s
            is_well = fault.well_s >= fault.last_s and quiet_s >= _SETTLED_S
            if not fault.is_over and (is_well or quiet_s >= SHOWN_S):
                fault.is_over = True
                if fault.was_told and is_well:
                    log.warning(
                        "sends.taken_again",
                        "sends are accepted again: %(refused)d were refused [%(reason)s]",
                        refused=fault.times,
                        reason=fault.reason,
                    )
        self.are_some = any(not fault.is_over for fault in self._faults.values())

    def not_written(self, table: str, error: StoreError) -> None:
        """Record that the write of a table failed. The table's file still contains the last version that was written.

        Args:
            table: the table's name in the log.
            error: the error, with the file and the reason.
        """
        now_s = self._clock.monotonic_s()
        found = self._unwritten.setdefault(table, _Unwritten("", now_s))
        found.error, found.last_s = str(error), now_s
        if found.pace.is_due(now_s):
            log.error(
                "table.write_failed",
                "%(table)s cannot be written, so a crash would restore its last written version: %(error)s",
                table=table,
                error=error,
            )

    def written(self, table: str) -> None:
        """Record that a table was written to its file. This ends the table's alarm."""
        if self._unwritten and self._unwritten.pop(table, None) is not None:
            log.warning("table.written_again", "%(table)s can be written again", table=table)

    def alarms(self) -> Iterator[Alarm]:
        """Yield an alarm for each reason for which sends are refused now, and for each table that could not be written."""
        now_s = self._clock.monotonic_s()
        self._end_some(now_s)
        for table, one in list(self._unwritten.items()):
            if now_s - one.last_s >= SHOWN_S:
                del self._unwritten[table]
                continue
            text = f"{table} cannot be written, so a crash would restore its last written version: {one.error}"
            yield Alarm("table.not_written", CRITICAL, table, text, key="store.path")
        for fault in self._faults.values():
            if not fault.is_over and fault.lasts:
                text = f"sends are refused: {fault.error.remark}"
                yield Alarm("sends.refused", CRITICAL, fault.reason, text, fault.times, "messages", key=fault.error.key)
