"""A lander's settings: a value that crosses to its process as JSON."""

from __future__ import annotations

import json
from typing import Any

import attrs

from flintmq.plugins.spark.landing.source import LogSource


@attrs.frozen(kw_only=True)
class LandingTask:
    """A log, a landing zone, and what of the one is put into the other how."""

    path: str
    """The landing zone's folder."""
    format: str
    """``parquet`` or ``delta``."""
    compression: str
    topics: tuple[str, ...]
    """Empty for all."""
    include_system_topics: bool
    log_folders: tuple[str, ...]
    """Where the commit log's files lie."""
    source: LogSource

    def to_json(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LandingTask:
        content: dict[str, Any] = json.loads(text)
        source = content.pop("source")
        epochs = tuple((number, start) for number, start in source.pop("epochs"))
        content |= {name: tuple(content[name]) for name in ("topics", "log_folders")}
        return cls(source=LogSource(epochs=epochs, **source), **content)


@attrs.frozen(kw_only=True)
class Landed:
    """What one step of landing did."""

    committed_bytes: int
    """Everything below this physical offset has landed for good."""
    read_to_bytes: int
    """How far the log was read: behind ``committed_bytes`` where nothing that lands was found."""
    rows: int
    files: int
    file_bytes: int
    lost_bytes: int
    """So much of the log was deleted before it could land."""
