"""Imports numpy only when it is used, because a broker needs no numpy for its start and for small amounts of work.

Modules write ``from flintmq.core.io.lazy_numpy import numpy`` and use the name as usual. Code that must not wait for the import
calls :func:`ready` first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

__all__ = ["load", "loaded", "numpy", "ready"]


class _Numpy:
    """A stand-in for the module numpy that imports it at the first access and caches each attribute."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module("numpy"), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy
else:
    numpy = _Numpy()


class _Loading:
    """Imports numpy on a background thread, at most once."""

    def __init__(self) -> None:
        self.done = False
        self._has_begun = False

    def begin(self) -> None:
        if not self._has_begun:
            # daemon_thread is imported late, because the module ``threads`` loads asyncio, which tools do not need.
            from flintmq.core.io.threads import daemon_thread

            self._has_begun = True
            daemon_thread(self._load, "flintmq-numpy").start()

    def _load(self) -> None:
        importlib.import_module("numpy")
        self.done = True


_loading: Final = _Loading()


def ready() -> bool:
    """Return whether numpy is imported; the first call starts the import on a background thread. Call this function from one
    thread only."""
    if not _loading.done:
        _loading.begin()
    return _loading.done


def loaded() -> bool:
    """Return whether numpy is imported, without starting the import."""
    return _loading.done


def load() -> None:
    """Import numpy now, in the caller's thread."""
    importlib.import_module("numpy")
    _loading.done = True
