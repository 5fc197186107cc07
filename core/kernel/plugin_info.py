"""The origin of a plugin, and the plugin's line in the output of ``flintmq plugins``."""

from __future__ import annotations

import enum

import msgspec


class PluginSource(enum.Enum):
    """How a plugin was found."""

    BUILT_IN = "built-in"
    ENTRY_POINT = "entry point"
    CONFIGURATION = "configuration"
    PROGRAM = "program"
    """Source of a plugin that the broker got as an object from the program that embeds the broker."""


class PluginOrigin(msgspec.Struct, frozen=True):
    """The name of a plugin and the place from which it was loaded, for errors and lists. Read-only; any thread."""

    name: str
    """Name of the plugin: the name of its entry point, or ``package.module.object`` for a plugin that the configuration
    names."""
    source: PluginSource
    place: str = ""
    """Place that the plugin was loaded from: distribution and version, or ``file:line`` of the configuration; empty for a
    built-in plugin."""

    @property
    def built_in(self) -> bool:
        return self.source is PluginSource.BUILT_IN

    def __str__(self) -> str:
        """Return the plugin as ``plugin 'audit' (entry point, flintmq-audit 1.0)`` or ``broker.yaml:12: plugin 'x.y.z'``."""
        if self.source is PluginSource.CONFIGURATION and self.place:
            return f"{self.place}: plugin '{self.name}'"
        place = f", {self.place}" if self.place else ""
        return f"plugin '{self.name}' ({self.source.value}{place})"


class PluginInfo(msgspec.Struct, frozen=True):
    """One line of ``flintmq plugins``, which describes a plugin."""

    origin: PluginOrigin
    enabled: bool
    """Whether the plugin is loaded; False if the configuration disables the plugin."""
    hooks: tuple[str, ...]
    """Names of the hooks that the plugin implements."""
    registered: tuple[str, ...]
    """The plugin's registrations, each as a kind and a name, such as ``dispatcher index``. Registrations that another plugin
    replaced are included."""
    errors: int
    """Number of errors that the plugin has raised since the broker was assembled."""
    last_error: str
    """Text of the plugin's last error; empty if the plugin has raised no error."""
    switched_off: tuple[str, ...] = ()
    """Objects of the plugin that are switched off after too many failures, each with the reason."""

    @property
    def name(self) -> str:
        return self.origin.name
