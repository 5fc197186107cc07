"""Where a plugin came from, and what is known about it."""

from __future__ import annotations

import enum

import msgspec


class PluginSource(enum.Enum):
    """How a plugin was found."""

    BUILT_IN = "built-in"
    ENTRY_POINT = "entry point"
    CONFIGURATION = "configuration"
    PROGRAM = "program"
    """Handed over as an object by the program the broker lives in."""


class PluginOrigin(msgspec.Struct, frozen=True):
    """Names a plugin, for errors, lists and blame. Read-only, any thread."""

    name: str
    """The entry point's name; ``package.module.object`` for one named in the configuration."""
    source: PluginSource
    place: str = ""
    """Distribution and version, or ``file:line`` of the configuration; empty for a built-in."""

    @property
    def built_in(self) -> bool:
        return self.source is PluginSource.BUILT_IN

    def __str__(self) -> str:
        """Return text like ``plugin 'audit' (entry point, flintmq-audit 1.0)`` or ``broker.yaml:12: plugin 'x.y.z'``."""
        if self.source is PluginSource.CONFIGURATION and self.place:
            return f"{self.place}: plugin '{self.name}'"
        place = f", {self.place}" if self.place else ""
        return f"plugin '{self.name}' ({self.source.value}{place})"


class PluginInfo(msgspec.Struct, frozen=True):
    """One line of ``flintmq plugins``."""

    origin: PluginOrigin
    enabled: bool
    """False when the configuration switched it off."""
    hooks: tuple[str, ...]
    """Names of the hooks it implements."""
    registered: tuple[str, ...]
    """What it registered, such as ``dispatcher index``; replaced things are listed too."""
    errors: int
    """How often it raised since the broker was assembled."""
    last_error: str
    """What it raised last; empty when it never did."""
    switched_off: tuple[str, ...] = ()
    """What is off of it, or because of it, each with why."""

    @property
    def name(self) -> str:
        return self.origin.name
