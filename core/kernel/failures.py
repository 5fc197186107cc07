"""Counts what plugins raise, and switches off what fails too often.

Each thing that a plugin registers is a :class:`Part`. A failure counts for the plugin that registered the part. The log,
``flintmq status``, request 28 and the measurements for monitoring systems show it. An optional part of a third party's plugin
that fails ``plugin_failures_max`` times is off until the broker is restarted.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Final, TypeVar

import msgspec

from flintmq.config.sections.models import PLUGIN_FAILURES_MAX
from flintmq.core.client_log import printable
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.plugin_info import PluginOrigin
from flintmq.core.log_events import event_log
from flintmq.core.response_code import ResponseCode

T = TypeVar("T")
_LOG = event_log("flintmq.plugins")

PLUGIN_FAULTS: Final = (Exception, SystemExit)
"""What a plugin's code may raise and the broker survives: ``sys.exit()`` in a handler must not end the broker."""

_ERROR_MAX_CHARS: Final = 500
_PLACES_MAX: Final = 1_000
"""Kinds of failure that are logged separately; further ones are only counted."""
_GAP_MAX_CALLS: Final = 2
"""Failures of what clients provoke count together while at least every second call fails."""

CALLING: Final[ContextVar[PluginOrigin | None]] = ContextVar("flintmq_calling", default=None)
"""The third party's plugin whose factory, start or hook runs: timers and figures that are added meanwhile are the plugin's."""


def brief(error: BaseException) -> str:
    """Return an error's type and text, on one line and cut; also of one whose text cannot be made."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be made)"
    return printable(f"{type(error).__name__}: {' '.join(text.split())}".rstrip(": "), _ERROR_MAX_CHARS)


class Row(msgspec.Struct, frozen=True):
    """One line of ``flintmq plugins --trace``."""

    plugin: str
    hook: str
    what: str
    """What was called: ``register``, ``make dispatcher 'audit'``, ``dispatcher 'audit'``."""
    calls: int
    errors: int
    outcome: str
    """What the last call of a start made, or raised."""
    switched_off: str
    """Why it is off; empty while it is on."""
    built_in: bool


class Part:
    """One thing that a plugin registered: its calls, its failures, and whether it is off. Loop thread, but for :meth:`failed`.

    Args:
        owner: the plugin that registered it.
        hook: where.
        what: its name in lists: ``dispatcher 'audit'``.
        failures: counts for the plugin.
        optional: whether failures switch it off.
        provoked: whether clients can make it fail: then only failures that follow one another switch it off.
    """

    def __init__(
        self,
        owner: PluginOrigin,
        hook: str,
        what: str,
        failures: Failures,
        *,
        optional: bool = False,
        provoked: bool = False,
    ) -> None:
        self.owner, self.hook, self.what = owner, hook, what
        self.calls = 0
        """How often it was called; of what is built in, only while the broker starts and stops."""
        self.errors = 0
        self.outcome = ""
        self.why_off = ""
        """Why it is off; empty while it is on."""
        self._failures = failures
        self._optional = optional and not owner.built_in
        self._provoked = provoked
        self._in_a_row = 0
        self._failed_at_call = 0

    def check(self) -> None:
        """Raise ``RefusedError`` while it is off."""
        if self.why_off:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"{self.what} is switched off: it {self.why_off}",
                reason="plugin.off",
                key="plugin_failures_max",
            )

    def failed(
        self, error: BaseException, doing: str = "", *, is_secret: bool = False, raised_on: bool = False
    ) -> None:
        """Count and log an error, and switch the part off if there were too many. Thread-safe.

        Args:
            error: what was raised.
            doing: what the part was asked to do: ``request 105``. The log distinguishes such texts, so there must be few of
                them.
            is_secret: the error's text may hold credentials, which only the log may show.
            raised_on: the caller raises the error again; it is not counted once more.
        """
        what = f"{self.what} ({doing})" if doing else self.what
        if not self._failures.note(self.owner, what, error, is_secret=is_secret, raised_on=raised_on):
            return
        with self._failures.lock:
            self.errors += 1
            if self._provoked and self.calls - self._failed_at_call > _GAP_MAX_CALLS:
                self._in_a_row = 0
            self._in_a_row += 1
            self._failed_at_call = self.calls
            if not self._optional or self.why_off or self._in_a_row != self._failures.most:
                return
        self.why_off = f"failed {self._in_a_row} times, the last time in {self._failures.last_error(self.owner)}"
        _LOG.error(
            "plugin.off",
            "%(plugin)s: its %(what)s is off until the broker is restarted: it %(reason)s",
            plugin=self.owner,
            what=self.what,
            reason=self.why_off,
        )

    @contextlib.contextmanager
    def counting(self, doing: str) -> Iterator[None]:
        """Count and log what is raised meanwhile; it goes no further."""
        self.calls += 1
        try:
            yield
        except PLUGIN_FAULTS as error:
            self.failed(error, doing)

    @contextlib.contextmanager
    def making(self) -> Iterator[Part]:
        """Note one call of a start or a stop, and what it raises; it passes. What the plugin adds meanwhile is the plugin's."""
        self.calls += 1
        token = CALLING.set(None if self.owner.built_in else self.owner)
        try:
            yield self
        except BaseException as error:
            self.errors += 1
            self.outcome = f"raised {brief(error)}"
            raise
        finally:
            CALLING.reset(token)

    def watched(self, handler: Callable[..., T]) -> Callable[..., T]:
        """Return a plain function that calls the given one and returns its result; it is refused while the part is off."""

        def call(*arguments: object) -> T:
            self.check()
            self.calls += 1
            return handler(*arguments)

        return call

    def row(self) -> Row:
        """Return what is known, for lists."""
        owner = self.owner
        return Row(
            owner.name, self.hook, self.what, self.calls, self.errors, self.outcome, self.why_off, owner.built_in
        )


class _Faults(msgspec.Struct):
    count: int = 0
    last: str = ""
    seen: dict[tuple[str, type[BaseException]], int] = msgspec.field(default_factory=dict)


class Failures:
    """The parts of one broker, and what each plugin raised. Loop thread, but for :meth:`note`.

    The log has a trace when something fails for the first time in its way, and a line at the tenth, the hundredth and so on:
    a plugin that fails with each message must not fill a disk.

    Args:
        most: so many failures switch an optional part off; 0 never does.
    """

    def __init__(self, most: int = PLUGIN_FAILURES_MAX) -> None:
        self.most = most
        self.lock = threading.Lock()
        self._faults: dict[PluginOrigin, _Faults] = {}
        self._raised_on: BaseException | None = None
        self._parts: dict[tuple[PluginOrigin, str, str], Part] = {}

    def of(self, owner: PluginOrigin, hook: str, what: str, *, optional: bool = False, provoked: bool = False) -> Part:
        """Return the part of a plugin with this name, which is made the first time; the flags are those of :class:`Part`."""
        key = (owner, hook, what)
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = Part(owner, hook, what, self, optional=optional, provoked=provoked)
        return part

    def all(self) -> tuple[Part, ...]:
        """Return every part, in the order in which they were made."""
        return tuple(self._parts.values())

    def off(self, owner: PluginOrigin) -> tuple[str, ...]:
        """Return what is off of a plugin, each with why."""
        off = [one for one in self._parts.values() if one.why_off and one.owner == owner]
        return tuple(f"{one.what.replace(chr(39), '')}: {one.why_off}" for one in off)

    def note(
        self, owner: PluginOrigin, doing: str, error: BaseException, *, is_secret: bool = False, raised_on: bool = False
    ) -> bool:
        """Count and log an error of a plugin; the arguments are those of :meth:`Part.failed`. Thread-safe.

        Returns:
            Whether it was counted: an error that is raised again counts once.
        """
        with self.lock:
            again = self._raised_on is error
            self._raised_on = error if raised_on else None
            if again:
                return False
            faults = self._faults.setdefault(owner, _Faults())
            faults.count += 1
            faults.last = f"{doing}: {type(error).__name__ if is_secret else brief(error)}"
            kind = (doing, type(error))
            if kind not in faults.seen and len(faults.seen) >= _PLACES_MAX:
                return True
            times = faults.seen[kind] = faults.seen.get(kind, 0) + 1
        if times == 1:
            _LOG.error("plugin.failed", "%(plugin)s raised in %(doing)s", plugin=owner, doing=doing, exc_info=error)
        elif str(times).rstrip("0") == "1":
            _LOG.error(
                "plugin.failed_again",
                "%(plugin)s raised in %(doing)s for the %(times)dth time: %(error)s",
                plugin=owner,
                doing=doing,
                times=times,
                error=brief(error),
            )
        return True

    def errors(self, owner: PluginOrigin) -> int:
        """Return how often a plugin raised."""
        faults = self._faults.get(owner)
        return faults.count if faults is not None else 0

    def last_error(self, owner: PluginOrigin) -> str:
        """Return what it raised last; empty when it never did."""
        faults = self._faults.get(owner)
        return faults.last if faults is not None else ""
