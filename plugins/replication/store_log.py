"""Gives the connections of replication access to the log of a master and of a slave. Used only on the event loop's thread."""

from __future__ import annotations

from typing import Final

from flintmq.core.broker.log_copy import LogCopy
from flintmq.core.broker.log_view import LogView
from flintmq.core.log.epochs import Epochs
from flintmq.core.log_events import event_log
from flintmq.plugins.replication.agreement import Agreement, LogState

log = event_log("flintmq.ha")


class StoreLog:
    """The log of a master, which is sent to slaves.

    Args:
        copy: access to the bytes of the log.
        view: access to the positions of the log.
        broker_name: name that the master and its slaves share.
        address: the broker's address for clients, as ``host:port``.
    """

    def __init__(self, copy: LogCopy, view: LogView, broker_name: str, address: str) -> None:
        self.copy: Final = copy
        self._view = view
        self._broker_name = broker_name
        self._address = address

    @property
    def min_offset_bytes(self) -> int:
        return self._view.min_offset_bytes

    @property
    def end_offset_bytes(self) -> int:
        """Physical offset up to which the log may be sent."""
        return self._view.marks.committed

    @property
    def confirmed_offset_bytes(self) -> int:
        """Physical offset up to which the master may have acknowledged messages or shown messages to clients.

        If acknowledgements wait until messages are synced to disk, the value is the synced offset. A recovery keeps the log up
        to this offset. Otherwise the value is the end of the log, because a message may be acknowledged before the next frame
        is sent.
        """
        marks = self._view.marks
        return marks.readable if marks.synchronous else marks.committed

    @property
    def file_bytes(self) -> int:
        return self.copy.file_bytes

    def read(self, offset_bytes: int, max_bytes: int) -> memoryview | None:
        """Return a view of the log from a physical offset, within one file and before the end; None if the file is deleted."""
        return self.copy.read(offset_bytes, max_bytes, self.end_offset_bytes)

    def state(self) -> LogState:
        return LogState(
            broker_name=self._broker_name,
            epochs=self.copy.epochs.epochs,
            min_offset_bytes=self.min_offset_bytes,
            end_offset_bytes=self.end_offset_bytes,
            file_bytes=self.file_bytes,
            confirmed_offset_bytes=self.confirmed_offset_bytes,
            address=self._address,
        )


class SlaveStoreLog(StoreLog):
    """The log of a slave, to which the master's log is appended."""

    def __init__(self, copy: LogCopy, view: LogView, broker_name: str, address: str) -> None:
        super().__init__(copy, view, broker_name, address)
        self.master_confirmed_offset_bytes: int | None = None
        """Physical offset up to which masters have acknowledged messages or shown messages to clients; None if the offset is
        unknown."""

    @property
    def end_offset_bytes(self) -> int:
        return self._view.marks.wrote

    @property
    def confirmed_offset_bytes(self) -> int:
        told = self.master_confirmed_offset_bytes
        return self.end_offset_bytes if told is None else told

    def follow(self, agreement: Agreement, epochs: Epochs) -> None:
        """Prepare a slave's log for replication. Truncate the log to the physical offset that ``agreement`` names, if the log
        has a tail that the master's log lacks, and store the master's epochs. ``agreement`` is the permission to replicate.
        Raises StoreError if the disk fails."""
        if agreement.truncate_to_bytes is not None:
            end = self.end_offset_bytes
            kept = self.copy.truncate(agreement.truncate_to_bytes)
            log.warning(
                "replication.log_cut",
                "the log was cut from %(before_position)d to %(now_position)d, where the master's ends; what was cut "
                "is in %(quarantine)s",
                before_position=end,
                now_position=agreement.truncate_to_bytes,
                quarantine=kept,
            )
        if self.copy.epochs.epochs != epochs:
            self.copy.epochs.replace(epochs)
