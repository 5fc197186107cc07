"""Keeps the registrations of consumers over a restart, so that consumers continue at once and not at their next heartbeat."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.kept_registrations import KEPT_S, KeptGroup, decode_kept, encode_kept
from flintmq.core.errors import RefusedError, StoreError, StoreFormatError
from flintmq.core.io.clock import stopwatch_of
from flintmq.core.io.config_manager import PERSIST_INTERVAL_S
from flintmq.core.limits import KEPT_REGISTRATIONS_MAX_BYTES
from flintmq.core.log_events import event_log

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

log = event_log("flintmq.broker")

_LOOK_S: Final = 1.0
"""Seconds between checks whether registrations of consumers have changed. A killed broker loses the changes since the last
check."""
_REST: Final = 20
"""Pause after a write of the registrations of consumers, as a multiple of the write's duration. Because of the pause, frequent
changes cost little."""
_NAMED_MAX: Final = 10


class KeptConsumers:
    """Writes the registrations of consumers after changes, in a thread, and at the stop of the broker. After a start of the
    broker it restores the registrations for one heartbeat interval. For the loop thread only.

    A restored consumer keeps its share of the queues, even if the consumer never connects again. Therefore its registration is
    restored only for that interval.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._path = api.folder.path / "flint" / "consumers"
        self._written = (0, 0)
        """Two counters at the time of the last write of the file with the consumers' registrations: how often the registrations
        had changed since the broker's start, and how often the queue locks had changed. If a counter has another value now, the
        file is written again."""
        self._left_out = 0
        self._is_failing = False
        self._next_s = 0.0
        self._writing: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Restore the registrations of consumers from their file. A file that cannot be read is logged and ignored."""
        clients = self._api.clients
        try:
            groups = self._read()
        except (OSError, StoreError) as error:
            log.warning(
                "consumers.not_known",
                "%(path)s: the registrations are not known again: %(reason)s; consumers register within 30 s",
                path=self._path,
                reason=error,
            )
            groups = []
        for group in groups:
            if group.client_ids:
                clients.consumers.keep(group)
            for client_id, queues in group.locks.items():
                try:
                    clients.locks.keep(group.group_name, client_id, queues, KEPT_S)
                except RefusedError as error:
                    # A refused lock is only logged, because its consumer requests the lock again within 20 s.
                    log.warning(
                        "consumers.locks_not_known",
                        "locks of group %(group)s are not known again: %(reason)s",
                        group=group.group_name,
                        reason=error,
                    )
        self._written = self._changes() if groups else (0, 0)

    def _read(self) -> list[KeptGroup]:
        disk = self._api.folder.disk
        if not disk.exists(self._path):
            return []
        size_bytes = disk.size(self._path)
        if size_bytes > KEPT_REGISTRATIONS_MAX_BYTES:
            raise StoreFormatError(
                f"the file has {size_bytes} bytes, more than the maximum {KEPT_REGISTRATIONS_MAX_BYTES}"
            )
        return decode_kept(disk.read(self._path))

    def ready(self) -> None:
        """Start two timers, because clients can connect from now on. One timer writes the registrations of consumers if they
        have changed. The other timer drops restored consumers that have not connected again."""
        self._api.work.every(_LOOK_S, self._look, "registrations", self._rest_s)
        self._api.work.every(KEPT_S, self._drop, "kept consumers")

    def _changes(self) -> tuple[int, int]:
        clients = self._api.clients
        return clients.consumers.changes, clients.locks.changes

    def _rest_s(self) -> float:
        return 0.0 if self._changes() != self._written else math.inf

    def _look(self) -> None:
        is_due = self._changes() != self._written and self._api.clock.monotonic_s() >= self._next_s
        if is_due and not self._is_closing and (self._writing is None or self._writing.done()):
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        changes = self._changes()
        now_s = stopwatch_of(self._api.clock)
        begin_s = now_s()
        try:
            left_out = await self._api.work.background(self._save)
        except (
            OSError,
            StoreError,
        ) as error:
            # If consumers' registrations cannot be written, their file keeps its old content until a later write succeeds.
            if not self._is_failing:
                log.error(
                    "consumers.not_written", "the registrations of consumers are not written: %(error)s", error=error
                )
            self._is_failing = True
            self._next_s = self._api.clock.monotonic_s() + PERSIST_INTERVAL_S
            return
        self._written, self._is_failing = changes, False
        if left_out and not self._left_out:
            log.warning(
                "consumers.too_many",
                "the registrations of %(groups)d consumer groups are not kept: there are too many",
                groups=left_out,
            )
        self._left_out = left_out
        self._next_s = self._api.clock.monotonic_s() + (now_s() - begin_s) * _REST

    def _save(self) -> int:
        """Replace the file with the consumers' registrations, and return the number of groups that do not fit in the file. Runs
        in a thread. Raises OSError and StoreError."""
        data, left_out = encode_kept(self._groups())
        disk = self._api.folder.disk
        temporary = self._path.with_name(self._path.name + ".tmp")
        disk.make_folder(self._path.parent)
        disk.write_file(temporary, data)
        disk.replace(temporary, self._path)
        return left_out

    def _groups(self) -> Iterator[KeptGroup]:
        """Yield the registrations of consumers. The loop thread may change the tables meanwhile, so each table is copied in one
        call."""
        locks = self._api.clients.locks.held()
        for info in self._api.clients.consumers:
            yield KeptGroup(
                group_name=info.group_name,
                client_ids=info.client_ids,
                consume_type=info.consume_type,
                message_model=info.message_model,
                consume_from_where=info.consume_from_where,
                subscriptions=list(info.subscriptions.values()),
                locks=locks.pop(info.group_name, {}),
            )
        for group_name, of_group in locks.items():
            yield KeptGroup(group_name=group_name, locks=of_group)

    def _drop(self) -> None:
        dropped = self._api.clients.consumers.drop_kept()
        if dropped:
            names = [f"{client_id} of {group}" for group, client_ids in dropped.items() for client_id in client_ids]
            more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
            log.info(
                "consumers.not_back",
                "consumers that did not come back after the start are gone: %(consumers)s%(more)s",
                consumers=", ".join(names[:_NAMED_MAX]),
                more=more,
            )

    async def withdraw(self) -> None:
        """Write the registrations of consumers while the consumers' connections still exist."""
        self._is_closing = True
        if self._writing is not None:
            await self._writing
        if self._changes() != self._written:
            await self._write()

    def stop(self) -> None:
        """Do nothing: the registrations of consumers were written before the consumers' connections ended."""
