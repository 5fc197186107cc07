"""numpy, which every installation has, from the first time that it is worth its price.

It takes 13 MiB and a tenth of a second or more: a broker that starts, or has little to do, goes without. Modules write
``from flintmq.core.io.lazy_numpy import AVAILABLE, numpy`` and use the name as ever; what must not wait asks :func:`ready`.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from typing import TYPE_CHECKING, Any, Final

__all__ = ["AVAILABLE", "load", "loaded", "numpy", "ready"]

AVAILABLE: Final = importlib.util.find_spec("numpy") is not None


class _Numpy:
    """Stands for the module; remembers what was asked for."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module("numpy"), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy
else:
    numpy = _Numpy()


class _Loading:
    """The import in the background, at most once."""

    def __init__(self) -> None:
        self.done = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._load, name="flintmq-numpy", daemon=True)
            self._thread.start()

    def _load(self) -> None:
        importlib.import_module("numpy")
        self.done = True


_loading: Final = _Loading()


def ready() -> bool:
    """Whether numpy can be used at once. When it could be later, its import begins in a thread. One thread asks."""
    if _loading.done:
        return True
    if AVAILABLE:
        _loading.begin()
    return False


def loaded() -> bool:
    """Whether numpy can be used at once. Nothing is begun."""
    return _loading.done


def load() -> bool:
    """Imports numpy now; False where it is not installed."""
    if AVAILABLE:
        importlib.import_module("numpy")
        _loading.done = True
    return AVAILABLE
