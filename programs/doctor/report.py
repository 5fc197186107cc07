"""The result of a check of a store: findings and counts."""

from __future__ import annotations

import enum
from bisect import bisect_right
from typing import Any, Final

import attrs

_MOST: Final = 1_000
REPAIR: Final = "flintmq store repair rebuilds queues and index from the log"


@attrs.define
class Report:
    """The result of a check of a store. At most 1,000 findings are kept; ``more`` is the number of further findings."""

    findings: list[Finding] = attrs.field(factory=list)
    more: int = 0
    errors: int = 0
    records: int = 0
    log_end_bytes: int = 0
    """Physical offset of the end of the log's last complete record or blank record."""
    queues: int = 0
    units: int = 0
    index_entries: int = 0
    damaged_bytes: int = 0
    damaged: list[tuple[int, int]] = attrs.field(factory=list)
    """(start, end) of each damaged part of the log as physical offsets, in order."""

    def add(self, level: Level, where: object, what: str, advice: str = "") -> None:
        self.errors += level is Level.ERROR
        if len(self.findings) < _MOST:
            self.findings.append(Finding(level, str(where), what, advice))
        else:
            self.more += 1

    def was_lost(self, position: int) -> bool:
        """Return whether a physical offset lies in a damaged part of the log."""
        at = bisect_right(self.damaged, (position, 2**63)) - 1
        return at >= 0 and position < self.damaged[at][1]

    @property
    def is_sound(self) -> bool:
        """Whether the check of the store found no error."""
        return self.errors == 0

    def to_json(self) -> dict[str, Any]:
        return {
            "sound": self.is_sound,
            "records": self.records,
            "log_end_bytes": self.log_end_bytes,
            "damaged_bytes": self.damaged_bytes,
            "queues": self.queues,
            "units": self.units,
            "index_entries": self.index_entries,
            "findings": [finding.to_json() for finding in self.findings],
            "more_findings": self.more,
        }


class Level(enum.Enum):
    """The severity of a finding of a store's check."""

    ERROR = "error"
    """Level of a finding about damaged data, or about two files that contradict each other."""
    WARNING = "warning"
    """Level of a finding about unusual data, or about an error that the next start of a broker repairs."""
    NOTE = "note"
    """Level of a finding that is only information; nothing is wrong with the data."""


@attrs.frozen
class Finding:
    """One finding of a store's check."""

    level: Level
    where: str
    """The file, or the position in the log, that the finding is about."""
    what: str
    advice: str = ""
    """The action that the finding suggests; empty if no action is necessary."""

    def to_json(self) -> dict[str, str]:
        return {"level": self.level.value, "where": self.where, "what": self.what, "advice": self.advice}
