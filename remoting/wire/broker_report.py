"""The answer to GET_BROKER_REPORT, which FlintMQ's brokers alone give: last start, quarantine, settings with their origin."""

from __future__ import annotations

from msgspec import field

from flintmq.remoting.wire.json_body import PlainBody


class RemovedPart(PlainBody):
    """Bytes that the start took out of the log: its end, or damage in the middle."""

    start_offset_bytes: int = 0
    end_offset_bytes: int = -1
    """-1 for everything behind the start."""
    reason: str = ""
    """Why the bytes there are not records."""
    file: str = ""
    """The file in the quarantine that keeps them; empty where they were zeros."""


class StartReport(PlainBody):
    """What the last start found and did. Positions are physical offsets in bytes."""

    last_stop: str = ""
    """How the broker before ended: ``clean``, ``killed`` or ``crashed``."""
    walked_from_offset_bytes: int = 0
    because: str = ""
    """Why the walk over the log began there."""
    records: int = 0
    """How many records were walked."""
    end_offset_bytes: int = 0
    """Where the log ended after the recovery."""
    cut: RemovedPart | None = None
    """What was taken off the end of the log; None for nothing."""
    holes: list[RemovedPart] = field(default_factory=list)
    """Damage that the log goes on behind; the first ones."""
    hole_count: int = 0
    rewritten_from_offset_bytes: int | None = None
    """From where on the log was written to disk once more; None for nothing."""
    dispatched_from_offset_bytes: int = 0
    """From where on records were dispatched again."""
    indexed_from_offset_bytes: int | None = None
    """From where on they were indexed again beside that; None for nothing."""
    recovery_ms: int = 0
    catch_up_ms: int = 0
    """How long dispatchers took for what they lacked."""


class QuarantinedFile(PlainBody):
    """A file that keeps what was taken out of the log."""

    name: str = ""
    size_bytes: int = 0
    modified_ms: int = 0
    why: str = ""


class Quarantine(PlainBody):
    """What a store's quarantine holds."""

    files: list[QuarantinedFile] = field(default_factory=list)
    """The newest ones."""
    file_count: int = 0
    """Of all; likewise the size."""
    size_bytes: int = 0


class ReportedSetting(PlainBody):
    """A setting that is in force; the value of a secret is hidden."""

    key: str = ""
    value: str = ""
    origin: str = ""
    """``default``, a file with its line, ``environment …``, ``command line`` or ``changed at run time``."""
    rocketmq: str = ""
    """RocketMQ's names for it, separated by commas."""


class BrokerReport(PlainBody):
    """How a broker's last start went, what its quarantine holds, and where each of its settings comes from."""

    start: StartReport = field(default_factory=StartReport)
    quarantine: Quarantine = field(default_factory=Quarantine)
    settings: list[ReportedSetting] = field(default_factory=list)
