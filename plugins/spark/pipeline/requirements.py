"""What a pipeline needs beyond FlintMQ itself, and how to get it."""

from __future__ import annotations

import importlib.util
from typing import Final

from flintmq.config.loading.raw import DEFAULT, Origin

EXTRAS: Final = {
    "spark": ("pyspark", "flintmq[spark]"),
    "avro": ("fastavro", "flintmq[avro]"),
    "protobuf": ("google.protobuf", "flintmq[protobuf]"),
    "delta": ("deltalake", "flintmq[delta]"),
}
"""What for → the module it takes, and what to install."""


def is_installed(what: str) -> bool:
    """Whether an optional part's module can be imported."""
    try:
        return importlib.util.find_spec(EXTRAS[what][0]) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def require(what: str, wanted_by: str, origin: Origin = DEFAULT) -> None:
    """Make sure that an optional part is there.

    Args:
        what: a key of ``EXTRAS``.
        wanted_by: what asks for it, for the error.
        origin: where it asks.

    Raises:
        ConfigError: it is not; says what to install.
    """
    if not is_installed(what):
        module, extra = EXTRAS[what]
        raise origin.error(f"{wanted_by} needs {module}: pip install '{extra}'", key=what)
