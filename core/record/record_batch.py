"""RecordBatch: consecutive records of the log, the value that flows from the log to the dispatchers.

::

    def dispatch(self, batch: RecordBatch) -> None:
        for request in batch.requests():
            ...

It says where records lie; their bodies are in the log, and ``context.bodies(batch)`` of the context that a dispatcher's factory
was given reads them (:meth:`flintmq.core.kernel.hookspecs.DispatcherContext.bodies`).

A user of a batch asks for the form that it needs: one request a record, the units in which the records were appended,
or numpy columns. Each form is made when it is first asked for, and kept for the next users of the batch.
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

    Nothing but the blank end of a file lies between two of them. A batch may be empty; its two positions are 0 then.
    """

    __slots__ = ("_columns", "_length", "_requests", "_units", "begin_offset_bytes", "end_offset_bytes")

    def __init__(
        self,
        *,
        units: Sequence[AppendUnit] | None = None,
        requests: Sequence[DispatchRequest] | None = None,
        columns: RecordColumns | None = None,
    ) -> None:
        """Make a batch of records in one form; see :meth:`of_requests`, :meth:`of_units` and :meth:`of_columns`."""
        self._units = units if units is not None else requests
        self._requests = requests
        self._columns = columns
        self._length = -1
        self.begin_offset_bytes = 0
        """Physical offset of the first record."""
        self.end_offset_bytes = 0
        """Physical offset behind the last record."""
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
        """Make a batch of records that are known one by one."""
        return cls(requests=requests)

    @classmethod
    def of_units(cls, units: Sequence[AppendUnit]) -> RecordBatch:
        """Make a batch of what was just appended: records, and batch sends as a whole."""
        if AppendedBatch not in map(type, units):
            return cls(requests=units)  # type: ignore[arg-type]
        return cls(units=units)

    @classmethod
    def of_columns(cls, columns: RecordColumns) -> RecordBatch:
        """Make a batch of records that were read back from the log many at a time."""
        return cls(columns=columns)

    def __len__(self) -> int:
        if self._length < 0:
            requests = self._requests
            self._length = len(requests) if requests is not None else count_messages(self._units or ())
        return self._length

    @property
    def has_requests(self) -> bool:
        """Whether the requests are made already, so that :meth:`requests` costs nothing."""
        return self._requests is not None

    @property
    def has_columns(self) -> bool:
        """Whether the columns are made already, so that :meth:`columns` costs nothing and needs no import of numpy."""
        return self._columns is not None

    def requests(self) -> Sequence[DispatchRequest]:
        """Return one request a record. All callers share the same objects."""
        requests = self._requests
        if requests is None:
            columns = self._columns
            requests = columns.requests() if columns is not None else requests_of(self._units or ())
            self._requests = requests
        return requests

    def units(self) -> Sequence[AppendUnit]:
        """Return the records as they were appended: requests, and batch sends as a whole.

        A batch that was not just appended has requests only.
        """
        units = self._units
        return units if units is not None else self.requests()

    def columns(self) -> RecordColumns:
        """Return the records as numpy columns. Needs numpy, which is imported if it is not there yet."""
        columns = self._columns
        if columns is None:
            from flintmq.core.record.bulk_columns import columns_of

            columns = self._columns = columns_of(self.requests())
        return columns

    def queues(self) -> set[tuple[str, int]]:
        """Return the (topic, queue id) of all records, invisible ones included."""
        if self._units is not None:
            return {(unit.topic, unit.queue_id) for unit in self._units}
        return self.columns().queues()

    def requests_of(self, queues: Container[tuple[str, int]]) -> Iterator[DispatchRequest]:
        """Walk the requests of some queues' records; of other records no request is made.

        Args:
            queues: (topic, queue id). It may change during the walk: each record is looked up when its turn comes.
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
