"""Defines what both ends of a replication connection share: settings, and the views of a log that the ends work with."""

from __future__ import annotations

from typing import Protocol

import attrs

from flintmq.core.log.epochs import Epochs
from flintmq.plugins.replication.agreement import Agreement, LogState, Truncate

Buffer = bytes | memoryview


@attrs.frozen(kw_only=True)
class LinkSettings:
    """The settings of an end."""

    heartbeat_s: float
    """Silence after which it says that it lives."""
    housekeeping_s: float
    """Silence of the other end after which the connection is given up."""
    batch_bytes: int
    """Bytes of the log in one frame, at most."""
    secret: bytes | None = attrs.field(default=None, repr=False)
    """What both ends know; None speaks RocketMQ's stream."""
    truncate: Truncate = "proven"
    """A slave's: what it may do with a tail that its master does not have."""


class MasterLog(Protocol):
    """The log of a master, which slaves follow. Loop thread."""

    @property
    def min_offset_bytes(self) -> int: ...

    @property
    def end_offset_bytes(self) -> int:
        """The end of what may be sent."""
        ...

    @property
    def confirmed_offset_bytes(self) -> int:
        """The position up to which the log was promised or shown to clients."""
        ...

    @property
    def file_bytes(self) -> int: ...

    def read(self, offset_bytes: int, max_bytes: int) -> memoryview | None:
        """Return bytes from a position on, within one file and below the end; None when that file is deleted."""
        ...

    def state(self) -> LogState: ...


class SlaveLog(Protocol):
    """The log of a slave. Loop thread."""

    @property
    def end_offset_bytes(self) -> int: ...

    @property
    def file_bytes(self) -> int: ...

    def state(self) -> LogState: ...

    def follow(self, agreement: Agreement, epochs: Epochs) -> None:
        """End the log where the agreement says, and take over the master's epochs. Raises StoreError."""
        ...
