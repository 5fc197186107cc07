"""The answer to GET_BROKER_REPORT, a request that only FlintMQ supports. The answer contains the findings of the last start,
the files with data that was removed from the store, and the sources of settings."""

from __future__ import annotations

from msgspec import field

from flintmq.remoting.wire.json_body import PlainBody


class RemovedPart(PlainBody):
    """A range of bytes that the broker's last start removed from the log. The range is the log's end, or a damaged part in the
    middle of the log."""

    start_offset_bytes: int = 0
    end_offset_bytes: int = -1
    """Physical end of the bytes that were removed from the log; -1 if all bytes to the end of the log were removed."""
    reason: str = ""
    """The reason why the removed bytes are not records."""
    file: str = ""
    """The file in the quarantine that contains the removed bytes; empty if all removed bytes were zeros."""


class StartReport(PlainBody):
    """The findings and the steps of a broker's last start. Positions are physical offsets in bytes."""

    last_stop: str = ""
    """How the broker's previous run ended: ``clean``, ``killed`` or ``crashed``."""
    walked_from_offset_bytes: int = 0
    because: str = ""
    """The reason why the start scanned the log from ``walked_from_offset_bytes`` on."""
    records: int = 0
    """Number of records of the log that the start scanned."""
    end_offset_bytes: int = 0
    """Physical end of the log after the recovery."""
    cut: RemovedPart | None = None
    """The part that the broker's last start removed from the end of the log; None if nothing was removed."""
    holes: list[RemovedPart] = field(default_factory=list)
    """The first damaged parts that the start removed from the middle of the log. ``hole_count`` is the number of all such
    parts."""
    hole_count: int = 0
    rewritten_from_offset_bytes: int | None = None
    """Physical offset from which the start wrote the log to disk again, because a sync of these bytes may have failed; None if
    it wrote nothing again."""
    dispatched_from_offset_bytes: int = 0
    """Physical offset from which the broker, at its last start, dispatched the records of the log again to all dispatchers."""
    indexed_from_offset_bytes: int | None = None
    """Physical offset of the first record that the index lacked when the broker last started, if this record is before the
    offset :attr:`dispatched_from_offset_bytes`. The broker indexed this record and the later records again. None if the index
    had all records before :attr:`dispatched_from_offset_bytes`."""
    recovery_ms: int = 0
    catch_up_ms: int = 0
    """Time that dispatchers took to catch up with the log after the recovery, in ms."""


class QuarantinedFile(PlainBody):
    """A file in the store's quarantine. The file contains bytes that were removed from the log."""

    name: str = ""
    size_bytes: int = 0
    modified_ms: int = 0
    """Time of the last change of a file in the quarantine, in ms since 1970."""
    why: str = ""
    """The reason why the bytes in a file of the quarantine were removed from the log."""


class Quarantine(PlainBody):
    """The contents of a store's quarantine, the folder for data that was removed from the store."""

    files: list[QuarantinedFile] = field(default_factory=list)
    """The newest files in the quarantine. The length of the list is limited; ``file_count`` is the number of all files."""
    file_count: int = 0
    """Number of all files in the quarantine."""
    size_bytes: int = 0
    """Total size of all files in the quarantine."""


class ReportedSetting(PlainBody):
    """A setting of a broker with its current value and the source of the value. The value of a secret is hidden."""

    key: str = ""
    value: str = ""
    origin: str = ""
    """Source of the setting's value: ``default``, a file with its line, ``environment …``, ``command line`` or ``changed at run
    time``."""
    rocketmq: str = ""
    """RocketMQ's names for the setting, separated by commas; empty if there are none."""


class BrokerReport(PlainBody):
    """A broker's report: its last start, the data that was removed from its store, and its settings with their sources."""

    start: StartReport = field(default_factory=StartReport)
    quarantine: Quarantine = field(default_factory=Quarantine)
    settings: list[ReportedSetting] = field(default_factory=list)
