"""What a broker cannot do through a fault of its own: said in the log, with growing pauses, and shown as alarms."""

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
"""After the last refusal the alarm is shown for so long, where no send came that could be taken."""
_PAUSES_S: Final = (10.0, 640.0)
"""Between two lines of the log about one reason: the shortest, and the longest after it was doubled again and again."""
_QUIET_S: Final = 60.0
"""A reason that was not met for so long begins with the shortest pause again."""
_SETTLED_S: Final = 0.5
"""Where sends are taken and refused in turn, it is not over before none was refused for so long."""

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
"""Reason → what shows that it is over, and for how many seconds it has to last before it is said: flow control is for peaks.

A store that is fenced, that is full by the limits of retention, or that cannot dispatch has alarms and lines of its own.
"""


@attrs.define
class _Pace:
    """When something is said again that goes on."""

    told_s: float | None = None
    pause_s: float = 0.0

    def is_due(self, now_s: float) -> bool:
        """Return whether it is said now, and if so, let the next pause be twice as long."""
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
    """Since ``since_s``."""
    is_over: bool = False
    well_s: float = -1.0
    """When a send was last taken since."""
    was_told: bool = False
    """Whether the log says so since ``since_s``."""
    pace: _Pace = attrs.field(factory=_Pace)

    @property
    def lasts(self) -> bool:
        return self.last_s - self.since_s >= _FAULTS[self.reason][1]


@attrs.define
class _Unwritten:
    """A table that cannot be written."""

    error: str
    last_s: float
    pace: _Pace = attrs.field(factory=_Pace)


class BrokerFaults:
    """What the broker refuses through a fault of its own. Loop thread.

    Args:
        clock: says how long something lasts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: dict[str, _Fault] = {}
        self._unwritten: dict[str, _Unwritten] = {}
        self.are_some = False
        """Whether there are any; hot paths look at nothing else."""

    def refused(self, error: RefusedError, times: int = 1) -> None:
        """Take note of refusals, or of messages that are stored and not kept as promised; others than the broker's are ignored.

        Args:
            error: what the clients are told.
            times: how many of them.
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
        """Take note that messages were stored."""
        self._well(_STORED, _TAKEN)

    def durable(self) -> None:
        """Take note that messages were kept as promised."""
        self._well(_DURABLE)

    def _well(self, *kinds: str) -> None:
        now_s = self._clock.monotonic_s()
        for fault in self._faults.values():
            if _FAULTS[fault.reason][0] in kinds:
                fault.well_s = now_s
        self._end_some(now_s)

    def _end_some(self, now_s: float) -> None:
        """End what is over by now."""
        for fault in self._faults.values():
            quiet_s = now_s - fault.last_s
            is_well = fault.well_s >= fault.last_s and quiet_s >= _SETTLED_S
            if not fault.is_over and (is_well or quiet_s >= SHOWN_S):
                fault.is_over = True
                if fault.was_told and is_well:
                    log.warning(
                        "sends.taken_again",
                        "sends are taken again: %(refused)d were refused [%(reason)s]",
                        refused=fault.times,
                        reason=fault.reason,
                    )
        self.are_some = any(not fault.is_over for fault in self._faults.values())

    def not_written(self, table: str, error: StoreError) -> None:
        """Take note that a table cannot be written: on disk is what was written last.

        Args:
            table: what people call it.
            error: names the file and the reason.
        """
        now_s = self._clock.monotonic_s()
        found = self._unwritten.setdefault(table, _Unwritten("", now_s))
        found.error, found.last_s = str(error), now_s
        if found.pace.is_due(now_s):
            log.error(
                "table.write_failed",
                "%(table)s cannot be written, and what was written last counts after a crash: %(error)s",
                table=table,
                error=error,
            )

    def written(self, table: str) -> None:
        """Take note that a table is written."""
        if self._unwritten and self._unwritten.pop(table, None) is not None:
            log.warning("table.written_again", "%(table)s can be written again", table=table)

    def alarms(self) -> Iterator[Alarm]:
        """Return an alarm for each reason for which sends are refused now, and for each table that is not written."""
        now_s = self._clock.monotonic_s()
        self._end_some(now_s)
        for table, one in list(self._unwritten.items()):
            if now_s - one.last_s >= SHOWN_S:
                del self._unwritten[table]
                continue
            text = f"{table} cannot be written, and what was written last counts after a crash: {one.error}"
            yield Alarm("table.not_written", CRITICAL, table, text, key="store.path")
        for fault in self._faults.values():
            if not fault.is_over and fault.lasts:
                text = f"sends are refused: {fault.error.remark}"
                yield Alarm("sends.refused", CRITICAL, fault.reason, text, fault.times, "messages", key=fault.error.key)
