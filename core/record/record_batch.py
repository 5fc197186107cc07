"""RecordBatch: consecutive records of the log, which the store passes to the dispatchers.

::

    def dispatch(self, batch: RecordBatch) -> None:
        for request in batch.requests():
            ...

A batch describes records without their bodies, which are in the log. A dispatcher reads the bodies with
``context.bodies(batch)``, where ``context`` is the argument of the dispatcher's factory
(:meth:`flintmq.core.kernel.hookspecs.DispatcherContext.bodies`).

A batch has three forms: one request per record, the units in which the records were appended, or numpy columns. Each form is
created at first use and cached for the next dispatchers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING

from flintmq.core.record.dispatch_request import (
    AppendedBatch,
    AppendUnit,
    DispatchRequest,
    count_messages,
    requests_of,
)

if TYPE_CHECKING:
    from flintmq.core.record.bulk_columns import RecordColumns


class RecordBatch:
    """Consecutive records of the log, in log order. Read-only; not thread-safe.

    There can be blank ends of files between records, but no other records. A batch can be empty; its positions are then 0.
    """

    __slots__ = ("_columns", "_length", "_requests", "_units", "begin_offset_bytes", "end_offset_bytes")

    def __init__(
        self,
        *,
        units: Sequence[AppendUnit] | None = None,
        requests: Sequence[DispatchRequest] | None = None,
        columns: RecordColumns | None = None,
    ) -> None:
        """Create a batch of records from one of its three forms; callers use :meth:`of_requests`, :meth:`of_units` or
        :meth:`of_columns`."""
        self._units = units if units is not None else requests
        self._requests = requests
        self._columns = columns
        self._length = -1
        self.begin_offset_bytes = 0
        """Physical offset of the batch's first record."""
        self.end_offset_bytes = 0
        """Physical offset just past the batch's last record."""
        if columns is not None:
            self._length = len(columns)
            self.begin_offset_bytes = int(columns.physical[0]) if self._length else 0
            self.end_offset_bytes = columns.end_offset_bytes
        elif self._units:
            last = self._units[-1]
            self.begin_offset_bytes = self._units[0].commit_log_offset_bytes
            self.end_offset_bytes = last.commit_log_offset_bytes + last.message_size_bytes

    @classmethod
    def of_requests(cls, requests: Sequence[DispatchRequest]) -> RecordBatch:
        """Return a batch of records that are given as dispatch requests, one per record."""
        return cls(requests=requests)

    @classmethod
    def of_units(cls, units: Sequence[AppendUnit]) -> RecordBatch:
        """Return a batch of records that were just appended: single records, and batch sends as a whole."""
        if AppendedBatch not in map(type, units):
            return cls(requests=units)  # type: ignore[arg-type]
        return cls(units=units)

    @classmethod
    def of_columns(cls, columns: RecordColumns) -> RecordBatch:
        """Return a batch of records that were read from the log in bulk."""
        return cls(columns=columns)

    def __len__(self) -> int:
        if self._length < 0:
            requests = self._requests
            self._length = len(requests) if requests is not None else count_messages(self._units or ())
        return self._length

    @property
    def has_requests(self) -> bool:
        """Whether the batch already has its dispatch requests, so that :meth:`requests` costs nothing."""
        return self._requests is not None

    @property
    def has_columns(self) -> bool:
        """Whether the batch already has its numpy columns, so that :meth:`columns` costs nothing and does not import numpy."""
        return self._columns is not None

    def requests(self) -> Sequence[DispatchRequest]:
        """Return one dispatch request per record of the batch. All callers get the same objects."""
        requests = self._requests
        if requests is None:
            columns = self._columns
            requests = columns.requests() if columns is not None else requests_of(self._units or ())
            self._requests = requests
        return requests

    def units(self) -> Sequence[AppendUnit]:
        """Return the records as they were appended to the log: a dispatch request for each single record, and each batch send
        as a whole.

        If the records were read back from the log, the result has a dispatch request for each record.
        """
        units = self._units
        return units if units is not None else self.requests()

    def columns(self) -> RecordColumns:
        """Return the records of the batch as numpy columns. The first call in a process imports numpy."""
        columns = self._columns
        if columns is None:
            from flintmq.core.record.bulk_columns import columns_of

            columns = self._columns = columns_of(self.requests())
        return columns

    def queues(self) -> set[tuple[str, int]]:
        """Return the distinct (topic, queue id) of all records, including prepared and rolled back records."""
        if self._units is not None:
            return {(unit.topic, unit.queue_id) for unit in self._units}
        return self.columns().queues()

    def requests_of(self, queues: Container[tuple[str, int]]) -> Iterator[DispatchRequest]:
        """Yield the dispatch requests of the records in some queues, without creating requests for the records in other queues.

        Args:
            queues: the (topic, queue id) of the queues. If the batch has only numpy columns, ``queues`` is read once at the
                start of the iteration. Otherwise it is read for each record, so that it can change during the iteration.
        """
        units: Sequence[AppendUnit] | None = self._requests or self._units
        if units is not None:
            for unit in units:
                if (unit.topic, unit.queue_id) in queues:
                    if isinstance(unit, AppendedBatch):
                        yield from unit.requests()
                    else:
                        yield unit
            return
        columns = self.columns()
        wanted = {queue for queue in columns.queues() if queue in queues}
        if wanted:
            rows = columns.rows_of(wanted)
            yield from columns.requests(rows)
