"""Modules that a process which serves imports when they are first used, not when they are first named.

asyncio imports ``ssl`` whether or not anybody encrypts, and ours name ``hmac`` for access control that may be off; with them
comes OpenSSL, a sixth of the memory of a broker at rest. So in such a process ``import ssl`` gives an empty module, which
fills itself when somebody looks at a name in it; ``from ssl import X`` is such a look. Only :mod:`.entry` switches this on:
who embeds a broker has imports as ever.

The standard library's ``LazyLoader`` does not serve: with it the second ``import`` of a module fills it, and before CPython
3.11.8 two threads that looked at once filled it twice.
"""

from __future__ import annotations

import sys
import threading
import typing
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

LATE: Final = frozenset(
    {
        "asyncio.sslproto",
        "asyncio.staggered",
        "attr.converters",
        "attr.filters",
        "attr.validators",
        "attrs.converters",
        "attrs.exceptions",
        "attrs.filters",
        "attrs.setters",
        "attrs.validators",
        "base64",
        "difflib",
        "hashlib",
        "hmac",
        "ipaddress",
        "locale",
        "msgspec.inspect",
        "ntpath",
        "secrets",
        "ssl",
        "tempfile",
        "textwrap",
        "typing_extensions",
    }
)
"""Modules that others name for what a broker may never do. None of them is an extension module."""

_one_fills: Final = threading.RLock()


class _NoSocket:
    """What no object is."""


_IN_PASSING: Final[dict[tuple[str, str], tuple[str, object]]] = {
    # It asks of every socket it is given: while ssl is empty, none can be one of its own.
    ("ssl", "SSLSocket"): ("asyncio.base_events", _NoSocket),
    # It takes them from typing where this is not installed.
    ("typing_extensions", "NotRequired"): ("msgspec._utils", typing.NotRequired),
    ("typing_extensions", "Required"): ("msgspec._utils", typing.Required),
    ("typing_extensions", "get_type_hints"): ("msgspec._utils", typing.get_type_hints),
}
"""Looks that fill nothing, by module and name: who looks, and what it is told."""


class _LateModule(ModuleType):
    """Empty until somebody looks; an ordinary module ever after."""

    def __getattr__(self, name: str) -> Any:
        who, told = _IN_PASSING.get((self.__name__, name), (None, None))
        if who is not None and sys._getframe(1).f_globals.get("__name__") == who:
            return told
        if name == "__path__":  # every ``from X import Y`` asks whether it is a package, which would have one by now
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _one_fills:
            loader: Any = self.__spec__ and self.__spec__.loader
            if isinstance(loader, _LateLoader):
                loader.fill(self)
        return ModuleType.__getattribute__(self, name)


class _LateLoader:
    """Stands before a module's own loader."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self._imported = False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LateModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Only notes that a look at the module is no longer the import system's own."""
        self._imported = True

    def fill(self, module: Any) -> None:
        """Runs the module. What it raises is raised again at the next look."""
        if not self._imported:
            return
        spec = module.__spec__
        spec.loader = module.__loader__ = self._own  # first: while it runs, it sees itself half full, as ever
        try:
            self._own.exec_module(module)
        except BaseException:
            spec.loader = module.__loader__ = self
            raise
        module.__class__ = ModuleType


class _LateFinder:
    """The first of ``sys.meta_path``."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        spec: Any = PathFinder.find_spec(name, path, target) if name in LATE else None
        if spec is not None:
            spec.loader = _LateLoader(spec.loader)
        return spec


def begin() -> None:
    """From now on the modules of :data:`LATE` that are not there yet are imported late. Once in a process, before the rest."""
    sys.meta_path.insert(0, _LateFinder())
