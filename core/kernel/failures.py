"""Counts the errors of plugins, and switches off objects of plugins that fail too often.

A :class:`Part` counts the failures of one object that a plugin registered; each failure is also counted for the plugin. The
log, ``flintmq status``, the answer to request GET_BROKER_RUNTIME_INFO (28) and the measurements for monitoring systems show the
failures. If an optional object of a third party's plugin fails ``plugin_failures_max`` times, it is off until the broker is
restarted.
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
"""Exceptions of plugins that do not end the broker. ``SystemExit`` is included because a plugin's ``sys.exit()`` must not end
the broker."""

_ERROR_MAX_CHARS: Final = 500
_PLACES_MAX: Final = 1_000
"""Maximum number of kinds of failure that are logged separately for a plugin; failures of further kinds are only counted."""
_GAP_MAX_CALLS: Final = 2
"""Maximum distance, in calls, between two consecutive failures of a plugin's object. With the value 2, one successful call may
lie between the two failures. If more calls lie between them, the count of consecutive failures starts again at one. The limit
applies only to objects that clients can make fail. Such an object is switched off only after many consecutive failures; for any
other object, all failures count."""

CALLING: Final[ContextVar[PluginOrigin | None]] = ContextVar("flintmq_calling", default=None)
"""Plugin of a third party whose factory, start or hook is being called; None if no such call runs. Timers and figures that are
added during the call belong to this plugin."""


def brief(error: BaseException) -> str:
    """Return an error's type and text, on one line and shortened. Never raises, even if ``str(error)`` raises."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be made)"
    return printable(f"{type(error).__name__}: {' '.join(text.split())}".rstrip(": "), _ERROR_MAX_CHARS)


class Row(msgspec.Struct, frozen=True):
    """One line of ``flintmq plugins --trace``, which describes one function or object of a plugin."""

    plugin: str
    hook: str
    what: str
    """Name of the plugin's function or object that was called, such as ``register``, ``make dispatcher 'audit'`` or
    ``dispatcher 'audit'``."""
    calls: int
    errors: int
    outcome: str
    """Result of the last call of a plugin's factory: the type of the made object, or the error."""
    switched_off: str
    """Reason why the object that a plugin registered is switched off; empty while the object is on."""
    built_in: bool


class Part:
    """Counts the calls and failures of one object that a plugin registered, and switches the object off. The object is called a
    part of the plugin.

    Loop thread, except :meth:`failed`.

    Args:
        owner: the plugin that registered the part.
        hook: the hook in which the part was registered.
        what: the part's name in lists: ``dispatcher 'audit'``.
        failures: the failures of all plugins, to which the part's errors are added.
        optional: whether too many failures switch the part off.
        provoked: whether clients can make the part fail. If they can, only consecutive failures switch it off.
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
        """Number of calls of the object that a plugin registered. Calls of built-in plugins' objects are counted only while the
        broker starts and stops."""
        self.errors = 0
        self.outcome = ""
        self.why_off = ""
        """Reason why the object that a plugin registered is switched off; empty while the object is on."""
        self._failures = failures
        self._optional = optional and not owner.built_in
        self._provoked = provoked
        self._in_a_row = 0
        self._failed_at_call = 0

    def check(self) -> None:
        """Raise ``RefusedError`` if this part of a plugin is switched off."""
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
        """Count and log an error of the plugin's object that this instance watches, and switch the object off after too many
        errors. Thread-safe.

        Args:
            error: the error that the object raised.
            doing: the call of the object that failed, such as ``request 105``. The log treats each text as a kind of failure,
                so callers must use few different texts.
            is_secret: whether the error's text may hold credentials, which only the log may show.
            raised_on: whether the caller raises the error again. If so, the next report of the same error is not counted.
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
        """Count and log an exception of the ``with`` block as an error of the plugin's object, and suppress the exception."""
        self.calls += 1
        try:
            yield
        except PLUGIN_FAULTS as error:
            self.failed(error, doing)

    @contextlib.contextmanager
    def making(self) -> Iterator[Part]:
        """Record a call of a plugin at the start or stop of the broker.

        An exception of the call is counted and raised again. During the call, the context variable :data:`CALLING` contains the
        name and source of the plugin; for a built-in plugin it contains None. The broker reads this variable when the call adds
        a timer or a runtime figure, and counts the failures of the timer or figure for the plugin.
        """
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
        """Return a function that calls ``handler``, a function of an object that a plugin registered, and counts the calls. If
        the object was switched off after too many errors, the function raises ``RefusedError`` and does not call
        ``handler``."""

        def call(*arguments: object) -> T:
            self.check()
            self.calls += 1
            return handler(*arguments)

        return call

    def row(self) -> Row:
        """Return a line of ``flintmq plugins --trace`` about the plugin's object whose calls and failures are counted here."""
        owner = self.owner
        return Row(
            owner.name, self.hook, self.what, self.calls, self.errors, self.outcome, self.why_off, owner.built_in
        )


class _Faults(msgspec.Struct):
    count: int = 0
    last: str = ""
    seen: dict[tuple[str, type[BaseException]], int] = msgspec.field(default_factory=dict)


class Failures:
    """The registered objects (parts) of all plugins of one broker, and the errors of each plugin. Loop thread, except
    :meth:`note`.

    The first failure of each kind is logged with a traceback, and the tenth, the hundredth and so on with one line: a plugin
    that fails for each message must not fill the disk with its log.

    Args:
        most: the number of failures that switch an optional part off; 0 for no limit.
    """

    def __init__(self, most: int = PLUGIN_FAILURES_MAX) -> None:
        self.most = most
        self.lock = threading.Lock()
        self._faults: dict[PluginOrigin, _Faults] = {}
        self._raised_on: BaseException | None = None
        self._parts: dict[tuple[PluginOrigin, str, str], Part] = {}

    def of(self, owner: PluginOrigin, hook: str, what: str, *, optional: bool = False, provoked: bool = False) -> Part:
        """Return the part of a plugin with the given name; the first call creates the part.

        The flags are described at :class:`Part`.
        """
        key = (owner, hook, what)
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = Part(owner, hook, what, self, optional=optional, provoked=provoked)
        return part

    def all(self) -> tuple[Part, ...]:
        """Return every part of all plugins, in the order of creation."""
        return tuple(self._parts.values())

    def off(self, owner: PluginOrigin) -> tuple[str, ...]:
        """Return the parts of a plugin that are off, each with the reason, as text."""
        off = [one for one in self._parts.values() if one.why_off and one.owner == owner]
        return tuple(f"{one.what.replace(chr(39), '')}: {one.why_off}" for one in off)

    def note(
        self, owner: PluginOrigin, doing: str, error: BaseException, *, is_secret: bool = False, raised_on: bool = False
    ) -> bool:
        """Count and log an error of a plugin. The arguments are described at :meth:`Part.failed`. Thread-safe.

        Returns:
            True if the error was counted; False if the error was raised again after it had been counted.
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
        """Return the number of errors that a plugin has raised."""
        faults = self._faults.get(owner)
        return faults.count if faults is not None else 0

    def last_error(self, owner: PluginOrigin) -> str:
        """Return the last error of a plugin and the call that failed; empty if the plugin has raised no error."""
        faults = self._faults.get(owner)
        return faults.last if faults is not None else ""
