"""What the doctor finds."""

from __future__ import annotations

import enum

import attrs


class Level(enum.Enum):
    """How bad it is."""

    ERROR = "error"
    """Data is damaged, or two files contradict each other."""
    WARNING = "warning"
    """A start will mend it, or it is unusual."""
    NOTE = "note"
    """Good to know."""


@attrs.frozen
class Finding:
    """One observation."""

    level: Level
    where: str
    """A file, or a place in the log."""
    what: str
    advice: str = ""
    """What to do about it."""

    def to_json(self) -> dict[str, str]:
        return {"level": self.level.value, "where": self.where, "what": self.what, "advice": self.advice}
