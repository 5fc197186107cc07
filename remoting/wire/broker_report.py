"""The answer to GET_BROKER_REPORT, a request that only FlintMQ supports: last start, quarantine, and sources of settings."""

from __future__ import annotations

from msgspec import field

from flintmq.remoting.wire.json_body import PlainBody


class RemovedPart(PlainBody):
    """A range of bytes that the last start removed from the log: its end, or damage in the middle."""

    start_offset_bytes: int = 0
    end_offset_bytes: int = -1
    """Physical end of the range; -1 if it extends to the end of the log."""
    reason: str = ""
    """The reason why the bytes are not records."""
    file: str = ""
    """The file in the quarantine with the removed bytes; empty if they were zeros."""


class StartReport(PlainBody):
    """The findings and steps of the broker's last start. Positions are physical offsets in bytes."""

    last_stop: str = ""
    """How the previous broker ended: ``clean``, ``killed`` or ``crashed``."""
    walked_from_offset_bytes: int = 0
    because: str = ""
    """The reason why the scan of the log began at that position."""
    records: int = 0
    """Number of scanned records."""
    end_offset_bytes: int = 0
    """Physical end of the log after the recovery."""
    cut: RemovedPart | None = None
    """The range removed from the end of the log; None if there is none."""
    holes: list[RemovedPart] = field(default_factory=list)
    """The first ranges of damage in the middle of the log."""
    hole_count: int = 0
    rewritten_from_offset_bytes: int | None = None
    """Start of the part of the log that was rewritten to disk; None if there is none."""
    dispatched_from_offset_bytes: int = 0
    """Position from which records were dispatched again to all dispatchers."""
    indexed_from_offset_bytes: int | None = None
    """Position from which earlier records were also indexed again; None if there are none."""
    recovery_ms: int = 0
    catch_up_ms: int = 0
    """Time that dispatchers took to catch up with the log after the recovery, in ms."""


class QuarantinedFile(PlainBody):
    """A file in the quarantine with bytes that were removed from the log."""

    name: str = ""
    size_bytes: int = 0
    modified_ms: int = 0
    """Time of the last change, in ms since 1970."""
    why: str = ""
    """The reason why the bytes were removed."""


class Quarantine(PlainBody):
    """The contents of a store's quarantine."""

    files: list[QuarantinedFile] = field(default_factory=list)
    """The newest files."""
    file_count: int = 0
    """Number of all files in the quarantine."""
    size_bytes: int = 0
    """Size of all files in the quarantine."""


class ReportedSetting(PlainBody):
    """A setting with its current value, which is hidden if it is a secret, and the source of that value."""

    key: str = ""
    value: str = ""
    origin: str = ""
    """``default``, a file with its line, ``environment …``, ``command line`` or ``changed at run time``."""
    rocketmq: str = ""
    """RocketMQ's names for the setting, separated by commas."""


class BrokerReport(PlainBody):
    """A broker's report: its last start, the contents of its quarantine, and its settings with their sources."""

    start: StartReport = field(default_factory=StartReport)
    quarantine: Quarantine = field(default_factory=Quarantine)
    settings: list[ReportedSetting] = field(default_factory=list)
