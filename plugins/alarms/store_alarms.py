"""Raises alarms about the broker's store, the dispatch of stored messages, and the store's disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.core.errors import StoreFormatError
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm
from flintmq.core.log.slow import SLOW_S

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_LOOK_S: Final = 5.0
_SLOW_MS: Final = round(SLOW_S * 1000)
_LOOK_AT_DISK: Final = "look at the disk (iostat, the kernel's log) and at what else writes to it"


class StoreAlarms:
    """The service ``store_alarms``. Used only on the event loop's thread.

    It raises alarms if the store refuses messages, if stored messages stay invisible to consumers, and if the disk is slow.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._settings = api.settings.current.alarms
        self._dispatched = -1
        self._still_since_s: float | None = None
        """Monotonic time, in seconds, since which no message was dispatched although messages wait for dispatch; None if no
        message waits. The time is measured every :data:`_LOOK_S` seconds, so it may be late by this interval."""

    def start(self) -> None:
        """Begin to check at intervals whether the dispatch of stored messages makes progress."""
        self._api.work.every(_LOOK_S, self._look, "progress of dispatch", self._rest_s)

    def stop(self) -> None:
        """Do nothing, because the broker has already ended this service's timer."""

    def _rest_s(self) -> float:
        marks = self._api.log.marks
        return 0.0 if marks.dispatched < marks.wrote else math.inf

    def _look(self) -> None:
        marks = self._api.log.marks
        if marks.dispatched >= marks.wrote:
            self._still_since_s = None
        elif self._still_since_s is None or marks.dispatched != self._dispatched:
            self._still_since_s = self._api.clock.monotonic_s()
        self._dispatched = marks.dispatched

    def alarms(self) -> Iterator[Alarm]:
        """Yield alarms for refused messages, for messages that stay invisible, and for recent slow operations."""
        log = self._api.log
        if log.marks.fence_reason is not None:
            yield _fenced(log.marks.fence_reason)
        error = log.health.dispatch_error
        if isinstance(error, StoreFormatError):
            yield _damaged(str(error))
        elif error is not None:
            yield _dispatch_stopped(str(error), log.health.behind_bytes)
        else:
            yield from self._dispatch()
        yield from self._api.figures.counts.faults.alarms()
        if trouble := log.health.queues_trouble:
            text = f"consume queues are not synced any more, and the next start writes them again: {trouble}; {_LOOK_AT_DISK}"
            yield Alarm("queues.not_synced", WARNING, "", text, key="store.path")
        yield from self._slow()

    def _dispatch(self) -> Iterator[Alarm]:
        """Yield alarms if the dispatch of stored messages is behind, or makes no progress although it reported no error."""
        marks, limit_bytes = self._api.log.marks, self._settings.dispatch_behind_bytes
        waits_bytes = marks.wrote - marks.dispatched
        since_s = self._still_since_s
        still_ms = (self._api.clock.monotonic_s() - since_s) * 1000 if since_s is not None else 0.0
        if waits_bytes > 0 and marks.dispatched == self._dispatched and still_ms >= self._settings.dispatch_still_ms:
            if marks.readable > marks.dispatched:
                why = "dispatch does not move"
            elif marks.replicated is not None and marks.replicated <= marks.dispatched:
                why = "no slave has them: start one, or give up waiting for slaves (broker.role)"
            else:
                why = f"they are not synced: {_LOOK_AT_DISK}"
            text = f"{waits_bytes:,} bytes of messages have been invisible for {still_ms / 1000:.0f} s: {why}"
            limit_ms = self._settings.dispatch_still_ms
            yield Alarm(
                "dispatch.still", CRITICAL, "", text, round(still_ms), "ms", limit_ms, "alarms.dispatch_still_ms"
            )
        behind_bytes = marks.readable - marks.dispatched
        if behind_bytes > limit_bytes:
            text = (
                f"consumers do not see the newest {behind_bytes:,} bytes of the log yet: dispatch is behind; leave out "
                "dispatchers that are not needed (dispatchers), or send less to this broker"
            )
            yield Alarm(
                "dispatch.behind", WARNING, "", text, behind_bytes, "bytes", limit_bytes, "alarms.dispatch_behind_bytes"
            )

    def _slow(self) -> Iterator[Alarm]:
        """Yield an alarm for each kind of operation of the store (append, flush, commit) that was slow recently."""
        oldest_s = self._api.clock.monotonic_s() - self._settings.slow_shown_ms / 1000
        slow = {kind: one.took_ms for kind, one in self._api.log.health.slow_operations.items() if one.at_s >= oldest_s}
        if took_ms := slow.get("append"):
            text = f"an append to the log took {took_ms:,} ms, and all clients waited: {_LOOK_AT_DISK}"
            yield Alarm("append.slow", WARNING, "", text, took_ms, "ms", _SLOW_MS)
        if took_ms := slow.get("flush"):
            text = f"a sync of the log took {took_ms:,} ms: {_LOOK_AT_DISK}"
            yield Alarm("flush.slow", WARNING, "", text, took_ms, "ms", _SLOW_MS)
        if took_ms := slow.get("commit"):
            text = f"a write of the transient store pool to the log's file took {took_ms:,} ms: {_LOOK_AT_DISK}"
            yield Alarm("commit.slow", WARNING, "", text, took_ms, "ms", _SLOW_MS)


def _fenced(reason: str) -> Alarm:
    """Return the alarm for a fenced store, which refuses messages until the broker is restarted."""
    text = (
        f"the store is fenced and takes nothing until the broker is restarted: {reason}; look at the disk, then restart"
    )
    return Alarm("store.fenced", CRITICAL, "", text, key="store.path")


def _damaged(error: str) -> Alarm:
    """Return the alarm for a damaged record of the commit log, at which the dispatch of messages has stopped."""
    text = f"a record of the log cannot be read, and dispatch stands still; restart the broker to recover: {error}"
    return Alarm("store.damaged", CRITICAL, "", text, key="store.path")


def _dispatch_stopped(error: str, behind_bytes: int) -> Alarm:
    """Return the alarm for an error that has stopped the dispatch of stored messages. The dispatch is retried."""
    text = f"dispatch stands still, so consumers get nothing new and sends are refused: {error}"
    return Alarm("dispatch.stopped", CRITICAL, "", text, behind_bytes, "bytes", key="dispatchers")
