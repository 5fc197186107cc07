"""Finds the plugin whose code raised: failures are counted for it, and carry its name.

The plugin that registered something is not always the one that failed: a built-in calls what a third party handed it, a
plugin wraps another's dispatcher. So :class:`PluginCode` knows which code belongs to whom, and the innermost frame of a
traceback that is a plugin's decides; where there is none, the plugin that registered what was called.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from flintmq.core.client_log import printable
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.core.log_events import event_log

_LOG = event_log("flintmq.plugins")

PLUGIN_FAULTS: Final = (Exception, SystemExit)
"""What a plugin's code may raise and the broker survives: ``sys.exit()`` in a handler must not end the broker."""

_ERROR_MAX_CHARS: Final = 500
_PLACES_MAX: Final = 1_000
"""Kinds of failure that are logged separately; further ones are only counted."""
_CAUSES_MAX: Final = 8
_OWN_PACKAGE: Final = __name__.partition(".")[0]


class PluginCode:
    """Which plugin a piece of code belongs to. Filled while a broker is assembled; any thread may ask.

    All of the module that a plugin lives in is the plugin's, and the package around it; where several plugins share a
    module, and in a program's own modules, only the classes and functions that were handed over.
    """

    def __init__(self) -> None:
        self._modules: dict[str, list[tuple[str, PluginOrigin]]] = {}
        """Module → (qualified name of a class or function in it, empty for all of it; owner)."""
        self._packages: dict[str, set[PluginOrigin]] = {}

    def add(self, owner: PluginOrigin, thing: object) -> None:
        """Note a plugin object, a factory, or what a factory made, as the plugin's."""
        module, name = _home(thing)
        if not module or owner.built_in:
            return
        entry = (name, owner)
        known = self._modules.setdefault(module, [])
        if entry not in known:
            known.append(entry)
        if owner.source is PluginSource.PROGRAM or module.partition(".")[0] == _OWN_PACKAGE:
            return
        if ("", owner) not in known:
            known.append(("", owner))
        package = module.rpartition(".")[0]
        while package:
            self._packages.setdefault(package, set()).add(owner)
            package = package.rpartition(".")[0]

    def owner_of(self, module: str, name: str, likely: PluginOrigin | None = None) -> PluginOrigin | None:
        """Return the plugin that a function belongs to; None when it belongs to none, or when that is unknown.

        Args:
            module: ``__name__`` of its module.
            name: its qualified name.
            likely: whose it is where several could own it.
        """
        known = self._modules.get(module)
        if known is not None:
            named = [owner for prefix, owner in known if prefix and (name == prefix or name.startswith(f"{prefix}."))]
            return _one_of(named or [owner for prefix, owner in known if not prefix], likely)
        package = module
        while package:
            owners = self._packages.get(package)
            if owners is not None:
                return _one_of(owners, likely)
            package = package.rpartition(".")[0]
        return None

    def owner_of_code(self, thing: object) -> PluginOrigin | None:
        """Return the plugin that a function, or the class of an object, belongs to; None when it belongs to none.

        A method that is inherited belongs to the plugin of its object.
        """
        owner = self.owner_of(*_home(thing))
        if owner is None and isinstance(thing, types.MethodType):
            return self.owner_of(*_home(thing.__self__))
        return owner

    def culprit(self, error: BaseException, likely: PluginOrigin | None = None) -> PluginOrigin | None:
        """Return the plugin whose code raised: of the innermost frame that is a plugin's, else ``likely``."""
        cause: BaseException | None = error
        for _ in range(_CAUSES_MAX):
            if cause is None:
                break
            for module, name in reversed([*_frames(cause.__traceback__)]):
                owner = self.owner_of(module, name, likely)
                if owner is not None:
                    return owner
            cause = cause.__cause__
        return likely


def _one_of(owners: list[PluginOrigin] | set[PluginOrigin], likely: PluginOrigin | None) -> PluginOrigin | None:
    found = set(owners)
    if likely in found:
        return likely
    return found.pop() if len(found) == 1 else None


def _frames(trace: types.TracebackType | None) -> Iterator[tuple[str, str]]:
    while trace is not None:
        frame = trace.tb_frame
        yield str(frame.f_globals.get("__name__", "")), frame.f_code.co_qualname
        trace = trace.tb_next


def _home(thing: Any) -> tuple[str, str]:
    """Return the module and qualified name of a function, a class, an instance's class, or of all of a module (an empty
    name)."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    if isinstance(thing, types.ModuleType):
        return thing.__name__, ""
    if isinstance(thing, types.MethodType):
        thing = thing.__func__
    if not isinstance(thing, (type, types.FunctionType)):
        thing = type(thing)
    return str(getattr(thing, "__module__", "") or ""), str(thing.__qualname__)


def brief(error: BaseException) -> str:
    """Return an error's type and text, on one line and cut; also of one whose text cannot be made."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be made)"
    return printable(f"{type(error).__name__}: {' '.join(text.split())}".rstrip(": "), _ERROR_MAX_CHARS)


class _Faults(msgspec.Struct):
    count: int = 0
    last: str = ""
    seen: dict[tuple[str, type[BaseException]], int] = msgspec.field(default_factory=dict)


class Blame:
    """Counts what each plugin raised. Thread-safe.

    The log has a trace when something fails for the first time in its way, and a line at the tenth, the hundredth and so on:
    a plugin that fails with each message must not fill a disk.
    """

    def __init__(self) -> None:
        self.code = PluginCode()
        self._lock = threading.Lock()
        self._faults: dict[PluginOrigin, _Faults] = {}
        self._raised_on: BaseException | None = None

    def note(
        self,
        owner: PluginOrigin,
        doing: str,
        error: BaseException,
        *,
        raised_on: bool = False,
        is_secret: bool = False,
    ) -> PluginOrigin:
        """Count and logs an error for the plugin whose code raised it.

        Args:
            owner: the plugin that registered what was called.
            doing: what was called, as ``dispatcher 'audit'``.
            is_secret: the error's text may hold credentials, so that only its type is shown later.
            raised_on: the caller raises the error again; it is not counted once more.

        Returns:
            The plugin it was counted for.
        """
        guilty = self.code.culprit(error, owner) or owner
        if guilty != owner:
            doing = f"{doing} of {owner.name}"
        with self._lock:
            again = self._raised_on is error
            self._raised_on = error if raised_on else None
            if again:
                return guilty
            faults = self._faults.setdefault(guilty, _Faults())
            faults.count += 1
            faults.last = f"{doing}: {type(error).__name__ if is_secret else brief(error)}"
            kind = (doing, type(error))
            if kind not in faults.seen and len(faults.seen) >= _PLACES_MAX:
                return guilty
            times = faults.seen[kind] = faults.seen.get(kind, 0) + 1
        if times == 1:
            _LOG.error("plugin.failed", "%(plugin)s raised in %(doing)s", plugin=guilty, doing=doing, exc_info=error)
        elif str(times).rstrip("0") == "1":
            _LOG.error(
                "plugin.failed_again",
                "%(plugin)s raised in %(doing)s for the %(times)dth time: %(error)s",
                plugin=guilty,
                doing=doing,
                times=times,
                error=brief(error),
            )
        return guilty

    def note_code(self, doing: str, error: BaseException) -> bool:
        """Note a failure of code that was not registered by name, such as a timer's; False where it belongs to no plugin."""
        owner = self.code.culprit(error)
        if owner is not None:
            self.note(owner, doing, error)
        return owner is not None

    def errors(self, owner: PluginOrigin) -> int:
        """Return how often a plugin raised."""
        faults = self._faults.get(owner)
        return faults.count if faults is not None else 0

    def last_error(self, owner: PluginOrigin) -> str:
        """Return what it raised last; empty when it never did."""
        faults = self._faults.get(owner)
        return faults.last if faults is not None else ""
