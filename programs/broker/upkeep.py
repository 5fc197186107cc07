"""Services that maintain the broker's tables: the services write the tables at intervals, remove expired clients and sample
counters."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.core.broker.stats_table import SAMPLE_INTERVAL_S
from flintmq.core.errors import StoreError
from flintmq.core.io.clock import stopwatch_of
from flintmq.core.io.config_manager import PERSIST_INTERVAL_S
from flintmq.core.kernel.hookspecs import ApiContext, RegisterService, hookimpl
from flintmq.core.log_events import event_log
from flintmq.programs.broker.kept_consumers import KeptConsumers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.io.clock import Clock
    from flintmq.core.kernel.ports import Service

log = event_log("flintmq.broker")

_CLIENT_SCAN_S: Final = 10.0
_LOCK_SCAN_S: Final = 30.0
_HOLD_TICK_S: Final = 0.05
_DISPATCH_S: Final = 1.0
_PUT_TIMES_S: Final = 60.0
_REST: Final = 50
"""Pause after a write of the topics and groups, as a multiple of the write's duration. Because of the pause, changes in a large
table cost little."""
_NOTES_MAX: Final = 10_000
"""Maximum difference between the number of entries in a table's journal and in the table. If the journal becomes longer, the
table is written at once, because a start of the broker reads the whole journal."""


class UpkeepPlugin:
    """Registers the services that write tables, expire clients, locks and held pulls, and sample statistics."""

    plugin_name = "upkeep"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        for name, made in (("tables", TableKeeper), ("clients", ClientExpiry), ("held_pulls", HeldPulls)):
            register(name, partial(_made, made))
        # Services stop in reverse order: kept_consumers stops before held_pulls, to save consumers that are still connected.
        # When held_pulls stops, it answers held pulls. A consumer that gets an answer may disconnect, and is then not saved.
        register("kept_consumers", partial(_made, KeptConsumers))
        register("statistics", partial(_made, Statistics))


def _made(kind: Callable[[BrokerApi], Service], context: ApiContext[object]) -> Service:
    """Create a service from its class, whose only argument is the broker's API."""
    return kind(context.api)


class _Table(Protocol):
    def persist(self) -> object: ...


class NotedTable(Protocol):
    """A table of the broker whose changes are noted in a journal; see :class:`flintmq.core.io.config_manager.ConfigManager`."""

    @property
    def noted(self) -> int: ...

    def __len__(self) -> int: ...

    async def compact(self) -> None: ...


class NotedTables:
    """Writes a table of the broker to its file if the table's journal notes changes. For the loop thread only.

    Args:
        clock: the clock.
        tables: returns the tables with their names for people.
        failed: called with a table's name and the error that prevented its writing.
        done: called with the name of a written table.
    """

    def __init__(
        self,
        clock: Clock,
        tables: Callable[[], Iterable[tuple[str, NotedTable]]],
        failed: Callable[[str, StoreError], object],
        done: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._tables = tables
        self._failed = failed
        self._done = done
        self._writing: asyncio.Task[None] | None = None
        self._rests_until_s = 0.0

    def look(self) -> None:
        """Write the changed tables in a thread, because tables may be large. During the pause after the last write, do nothing
        unless a journal is too long. The pause loses no changes, because the changes are already in the tables' journals."""
        is_due = self._clock.monotonic_s() >= self._rests_until_s or any(
            table.noted > len(table) + _NOTES_MAX for _, table in self._tables()
        )
        if is_due and (self._writing is None or self._writing.done()):
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def stop(self) -> None:
        """Wait until a table that is being written to its file is complete."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        now_s = stopwatch_of(self._clock)
        began_s = now_s()
        for name, table in self._tables():
            if table.noted:
                try:
                    await table.compact()
                except StoreError as error:
                    # If the disk is full, the table's changes stay in the journal, and the table's file is written later.
                    self._failed(name, error)
                else:
                    self._done(name)
        self._rests_until_s = self._clock.monotonic_s() + _REST * (now_s() - began_s)


class TableKeeper:
    """Writes consumer offsets, topics and groups at intervals and at the stop. For the loop thread only.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._noted: NotedTables | None = None
        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to write consumer offsets, topics and groups to their files at intervals."""
        api, faults = self._api, self._api.figures.counts.faults
        api.work.pace(api.settings.current.offsets.flush_interval_ms / 1000, self._write_offsets, "consumer offsets")
        self._noted = NotedTables(
            api.clock,
            lambda: (("topics", api.topics.file), ("groups", api.groups.file)),
            faults.not_written,
            faults.written,
        )
        api.work.every(PERSIST_INTERVAL_S, self._noted.look, "topics and groups")

    async def stop(self) -> None:
        """Wait until a table that is being written to its file is complete."""
        if self._noted is not None:
            await self._noted.stop()
        if self._writing is not None:
            await self._writing

    def persist(self) -> None:
        """Write every table to its file. A failure is logged; the table's last written state still applies."""
        api = self._api
        for what, table in (("topics", api.topics), ("groups", api.groups), ("consumer offsets", api.offsets)):
            if table.file.is_dirty:
                _persist(what, table.file)

    def _write_offsets(self) -> float:
        if self._api.offsets.file.is_dirty and (self._writing is None or self._writing.done()):
            self._writing = asyncio.get_running_loop().create_task(self._compact_offsets())
        return self._api.settings.current.offsets.flush_interval_ms / 1000

    async def _compact_offsets(self) -> None:
        faults = self._api.figures.counts.faults
        try:
            await self._api.offsets.file.compact()
        except StoreError as error:
            # If the disk is full, the consumer offsets stay in memory, and the write is tried again later.
            faults.not_written("consumer offsets", error)
        else:
            faults.written("consumer offsets")


def _persist(what: str, table: _Table) -> None:
    try:
        table.persist()
    except StoreError as error:
        # After a failed write, the table's file keeps the content that was written before.
        log.error("table.lost", "the newest %(table)s are lost: %(error)s", table=what, error=error)


class _Timed:
    """Base class of the services that maintain the broker's tables with timers."""

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    def stop(self) -> None:
        """Do nothing when the broker stops: the timers of this service have already ended."""


class ClientExpiry(_Timed):
    """Closes connections of clients without heartbeats, and frees the queues that clients without heartbeats had locked. For
    the loop thread only."""

    def start(self) -> None:
        """Start to check for clients without heartbeats and for expired locks of queues."""
        self._api.work.every(_CLIENT_SCAN_S, self._scan, "client expiry")
        self._api.work.every(_LOCK_SCAN_S, self._api.clients.locks.remove_expired, "queue locks")

    def _scan(self) -> None:
        clients = self._api.clients
        for channel in (*clients.consumers.remove_expired(), *clients.producers.remove_expired()):
            channel.close("no heartbeat for too long")


class HeldPulls(_Timed):
    """Answers held pull requests when their time is up, and when the broker stops. For the loop thread only."""

    def start(self) -> None:
        """Start three timers. The first answers held pull requests whose queue has new messages. The second answers held pull
        requests whose time is up. The third dispatches the commit log's records that are readable but not in the consume
        queues yet."""
        api = self._api
        held = api.outlet.held
        check_s = api.settings.current.pull.hold_check_interval_ms / 1000
        api.work.every(check_s, held.check, "held pulls", lambda: 0.0 if len(held) else math.inf)
        api.work.pace(_HOLD_TICK_S, self._expire, "held pulls' deadlines", self._until_deadline_s)
        api.work.every(_DISPATCH_S, api.log.dispatch, "dispatch", self._until_dispatch_s)

    def withdraw(self) -> None:
        """Answer every held pull request while the broker still listens."""
        self._api.outlet.held.release_all()

    def _expire(self) -> float:
        self._api.outlet.held.expire()
        return _HOLD_TICK_S

    def _until_deadline_s(self) -> float:
        deadline_s = self._api.outlet.held.next_deadline_s
        return math.inf if deadline_s is None else deadline_s - self._api.clock.monotonic_s()

    def _until_dispatch_s(self) -> float:
        marks = self._api.log.marks
        return 0.0 if marks.dispatched < marks.readable else math.inf


class Statistics(_Timed):
    """Samples the broker's counters for answers to GET_BROKER_RUNTIME_INFO (request 28) and VIEW_BROKER_STATS_DATA (request
    315). For the loop thread only."""

    def start(self) -> None:
        """Start a timer that samples the broker's counters, and a timer that starts new statistics of the append times every
        minute."""
        stats = self._api.figures.counts
        self._api.work.every(SAMPLE_INTERVAL_S, stats.sample, "statistics")
        self._api.work.every(_PUT_TIMES_S, stats.roll_put_times, "times of appends")
