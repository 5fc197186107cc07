"""The feeder: the thread that copies the log to a landing zone. The dispatcher of the broker never waits for this thread.

The dispatcher gives the feeder positions in the log, not messages. The feeder reads the messages from the log's files, so
messages that are not copied yet cost no memory. If more than ``queue_bytes`` of the log are not copied yet, the feeder ignores
further positions. In this state (*catching up*), it copies the log part by part until it is near the log's end.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from typing import Final, Protocol

from flintmq.config.sections.store import LandingSection
from flintmq.core.errors import FlintError
from flintmq.core.io.clock import Clock
from flintmq.core.log_events import event_log
from flintmq.plugins.spark.landing.task import Landed, LandingLossError
from flintmq.plugins.spark.landing.worker import is_final

log = event_log("flintmq.landing")

_TICK_S: Final = 1.0
_RETRY_FIRST_S: Final = 1.0
_RETRY_LAST_S: Final = 60.0
_ABORT_S: Final = 10.0


class FeederState(enum.Enum):
    """The state of the thread that copies the log to a landing zone."""

    STARTING = "starting"
    FOLLOWING = "following"
    """State in which the copy in the landing zone is near the log's end: at most ``queue_bytes`` bytes of the log (a setting)
    have not been copied yet."""
    CATCHING_UP = "catching_up"
    """More than ``queue_bytes`` bytes of the log wait to be copied to the landing zone."""
    RETRYING = "retrying"
    """The last step of copying the log to the landing zone failed. The feeder repeats the step after a pause."""
    STOPPED = "stopped"
    """Copying the log to the landing zone failed for a reason that an operator must remove, and the feeder has ended. The
    error's text says how to remove the reason."""


class LanderHandle(Protocol):
    """The interface of a lander, which copies the log to a landing zone, in this process or in a separate process."""

    @property
    def committed_bytes(self) -> int: ...

    def land(self, limit_offset_bytes: int, max_bytes: int, *, skip_lost: bool = False) -> Landed: ...

    def close(self) -> None: ...


class LandingFeeder:
    """Copies the log to a landing zone. :meth:`offer` is for the loop thread, :meth:`run_once` for the feeder's thread.

    Args: make_lander: opens the landing zone; its argument is the physical offset at which a new zone begins. settings: when to
        copy messages to the landing zone, and how many bytes at once. readable_bytes: function that returns the physical offset
        up to which the log is dispatched and on disk. Can be used from any thread. begin_bytes: function that returns the
        physical offset at which a new landing zone begins. committed_bytes: the physical offset up to which the log has been
        copied; None if the offset is unknown until the zone is opened. clock: the clock.
    """

    def __init__(
        self,
        make_lander: Callable[[int], LanderHandle],
        settings: LandingSection,
        readable_bytes: Callable[[], int],
        begin_bytes: Callable[[], int],
        committed_bytes: int | None,
        clock: Clock,
    ) -> None:
        self._make_lander = make_lander
        self._settings = settings
        self._readable = readable_bytes
        self._begin = begin_bytes
        self._clock = clock
        self._lander: LanderHandle | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._closing = False
        self._abandoned = False
        self._state = FeederState.STARTING
        self._behind = False
        self._committed = committed_bytes
        self._read_to = committed_bytes or 0
        self._waits_since_s: float | None = None
        self._retry_s = _RETRY_FIRST_S
        self._retry_at_s = 0.0
        self._error = ""
        self._rows = self._files = self._file_bytes = self._commits = 0
        self._failures = 0
        """Number of failed steps of copying the log to the landing zone that the feeder has repeated or will repeat."""
        self._lost_bytes = 0
        """Number of bytes of the log that were deleted before the feeder could copy the bytes to the landing zone."""
        self._skipped = 0
        """Number of dispatched batches that the feeder ignored because too many bytes of the log were waiting to be copied to
        the landing zone."""

    # --- methods that are called on the event loop's thread ---

    def start(self) -> None:
        """Start the thread that copies the log to the landing zone."""
        self._thread = threading.Thread(target=self._run, name="flintmq-landing", daemon=True)
        self._thread.start()

    def offer(self, end_offset_bytes: int) -> None:
        """Record that the log is dispatched up to a position. Wake the feeder's thread if at least ``roll_bytes`` of the log
        are waiting to be copied to the landing zone. Never blocks."""
        if self._behind:
            self._skipped += 1
            return
        waiting = end_offset_bytes - self._read_to
        if waiting >= self._settings.roll_bytes:
            if waiting > self._settings.queue_bytes and self._state is not FeederState.STARTING:
                self._behind = True
            if self._state is not FeederState.RETRYING:
                self._wake.set()

    def committed(self) -> int | None:
        return self._committed

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> None:
        log.info(
            "landing.goes_on",
            "landing continues at position %(start_position)d of %(end_position)d",
            start_position=start_offset_bytes,
            end_position=end_offset_bytes,
        )
        self._behind = end_offset_bytes - start_offset_bytes > self._settings.queue_bytes

    def close(self) -> None:
        """Copy the dispatched messages to the landing zone within ``stop_timeout_ms``, and stop. Messages that remain are
        copied after the next start. Idempotent."""
        self._closing = True
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(self._settings.stop_timeout_ms / 1000)
        if thread.is_alive():
            self._abandoned = True
            self._wake.set()
            abort = getattr(self._lander, "abort", None)
            if abort is not None:
                abort()
            thread.join(_ABORT_S)
            lag = max(0, self._readable() - (self._committed or 0))
            log.warning(
                "landing.behind_at_stop",
                "the broker stops with %(lag_bytes)d bytes of the log not landed; the next start lands them",
                lag_bytes=lag,
            )

    def runtime_info(self) -> dict[str, str]:
        """Return the feeder's counts since the broker started, named as in the answer to GET_BROKER_RUNTIME_INFO (request 28).
        Can be called from any thread.

        ``CommittedOffset`` is empty while it is unknown. The oldest waiting bytes have waited for at least ``LagMillis``.
        ``Error`` is present only while copying to the landing zone has stopped, or while a failed step waits to be repeated.
        """
        lag = max(0, self._readable() - max(self._read_to, self._committed or 0))
        since_s = self._waits_since_s
        lag_ms = max(0, int((self._clock.monotonic_s() - since_s) * 1000)) if lag and since_s is not None else 0
        figures = {
            "LagBytes": lag,
            "LagMillis": lag_ms,
            "Rows": self._rows,
            "Files": self._files,
            "FileBytes": self._file_bytes,
            "Commits": self._commits,
            "SkippedHandOvers": self._skipped,
            "Failures": self._failures,
            "LostBytes": self._lost_bytes,
        }
        info = {
            "State": self._state.value,
            "CommittedOffset": "" if self._committed is None else str(self._committed),
            **{name: str(figure) for name, figure in figures.items()},
        }
        return info | ({"Error": self._error} if self._error else {})

    # --- methods that are called on the feeder's thread ---

    def _run(self) -> None:
        try:
            while True:
                wait_s = self.run_once()
                if self._closing and (wait_s > 0 or self._abandoned):
                    return
                if wait_s > 0 and not self._wake.wait(wait_s):
                    continue
                self._wake.clear()
        except Exception as error:
            self._stop(f"{type(error).__name__}: {error}")
            log.exception("landing.failed", "landing stopped by an unexpected error")
        finally:
            self._close_lander()

    def run_once(self) -> float:
        """Copy the next part of the log to the landing zone if this step is due. Return the seconds until the next call; 0 if
        another step is due now."""
        if self._state is FeederState.STOPPED:
            return _TICK_S
        pause_s = self._retry_at_s - self._clock.monotonic_s()
        if pause_s > 0 and not self._closing:
            # After an error, the feeder's thread pauses for the full time, even if a new batch wakes the thread earlier.
            return pause_s
        try:
            return self._step()
        except LandingLossError as error:
            self._lost_bytes += error.lost_to_bytes - error.lost_from_bytes
            self._stop(str(error))
        except (FlintError, OSError) as error:
            if is_final(error):
                self._stop(str(error))
            else:
                return self._retry_later(error)
        return _TICK_S

    def _step(self) -> float:
        if self._lander is None:
            self._lander = self._make_lander(self._begin())
            self._committed = self._read_to = self._lander.committed_bytes
            self._state = FeederState.CATCHING_UP if self._behind else FeederState.FOLLOWING
        settings = self._settings
        limit = self._readable()
        waiting = limit - self._read_to
        if waiting <= 0:
            self._follow()
            self._waits_since_s = None
            return min(_TICK_S, settings.roll_interval_ms / 1000)
        now_s = self._clock.monotonic_s()
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        due_s = self._waits_since_s + settings.roll_interval_ms / 1000
        if waiting < settings.roll_bytes:
            self._follow()
            if now_s < due_s and not self._closing:
                return min(due_s - now_s, _TICK_S)
        elif waiting > settings.queue_bytes:
            self._behind = True
            self._state = FeederState.CATCHING_UP
        self._note(self._lander.land(limit, settings.roll_bytes, skip_lost=not settings.fail_on_data_loss))
        self._waits_since_s = self._clock.monotonic_s() if self._read_to < limit else None
        return 0.0

    def _follow(self) -> None:
        self._behind = False
        self._state = FeederState.FOLLOWING

    def _note(self, landed: Landed) -> None:
        self._committed, self._read_to = landed.committed_bytes, landed.read_to_bytes
        self._rows += landed.rows
        self._files += landed.files
        self._file_bytes += landed.file_bytes
        self._commits += landed.committed_bytes == landed.read_to_bytes and (landed.rows > 0 or landed.lost_bytes > 0)
        if landed.lost_bytes:
            self._lost_bytes += landed.lost_bytes
            log.error(
                "landing.lost",
                "%(lost_bytes)d bytes of the log were deleted before they could land; landing continues at "
                "%(position)d, the gap is in the manifest",
                lost_bytes=landed.lost_bytes,
                position=landed.read_to_bytes,
            )
        self._retry_s = _RETRY_FIRST_S
        self._error = ""

    def _retry_later(self, error: Exception) -> float:
        self._failures += 1
        if not self._error:
            log.error("landing.tried_again", "landing failed and is tried again: %(error)s", error=error)
        self._error = str(error)
        self._state = FeederState.RETRYING
        self._close_lander()
        wait_s, self._retry_s = self._retry_s, min(_RETRY_LAST_S, self._retry_s * 2)
        self._retry_at_s = self._clock.monotonic_s() + wait_s
        return wait_s

    def _stop(self, why: str) -> None:
        log.critical("landing.stopped", "landing has stopped: %(reason)s", reason=why)
        self._state = FeederState.STOPPED
        self._error = why
        # A stopped feeder cannot copy messages. ``_behind`` is set, so that offer() ignores newly dispatched messages.
        self._behind = True
        self._close_lander()

    def _close_lander(self) -> None:
        lander, self._lander = self._lander, None
        if lander is not None:
            lander.close()
