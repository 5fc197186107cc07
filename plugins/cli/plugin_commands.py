"""Commands that plugins bring (hook ``flintmq_cli_commands``): installed plugins', and those named in ``FLINTMQ_PLUGINS``.

A plugin that cannot be loaded costs its own commands and a warning, never the command line.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from flintmq.core.errors import PluginError
from flintmq.plugins.cli.exits import warn

if TYPE_CHECKING:
    from flintmq.config.models import PluginRef
    from flintmq.core.registry import CommandSpec

PLUGINS_VARIABLE = "FLINTMQ_PLUGINS"


@functools.cache
def commands() -> Mapping[str, CommandSpec]:
    """The commands of all plugins by name. Loads plugins at the first call only."""
    import importlib_metadata

    from flintmq.core.plugin_finder import ENTRY_POINT_GROUP

    installed = sorted({point.name for point in importlib_metadata.entry_points(group=ENTRY_POINT_GROUP)})
    configured = _configured()
    if not installed and not configured:
        return {}
    return _load(installed, configured)


def _configured() -> tuple[PluginRef, ...]:
    if PLUGINS_VARIABLE not in os.environ:
        return ()
    from flintmq.config import ConfigError, load_config

    try:
        return load_config(environ={PLUGINS_VARIABLE: os.environ[PLUGINS_VARIABLE]}).config.plugins
    except ConfigError as error:
        warn(str(error))
        return ()


def _load(installed: list[str], configured: tuple[PluginRef, ...]) -> dict[str, CommandSpec]:
    """All together, which is quick and settles who wins a name; one by one when that fails, to find the culprit."""
    from flintmq.core.kernel import Kernel

    try:
        return _specs(Kernel.assemble(configured).cli_commands())
    except PluginError:
        pass
    found: dict[str, CommandSpec] = {}
    for name in installed:
        others = [other for other in installed if other != name]
        try:
            found |= _specs(Kernel.assemble(disabled=others).cli_commands())
        except PluginError as error:
            warn(str(error))
    for ref in configured:
        try:
            found |= _specs(Kernel.assemble((ref,), use_entry_points=False).cli_commands())
        except PluginError as error:
            warn(str(error))
    return found


def _specs(registered: Iterable[object]) -> dict[str, CommandSpec]:
    from flintmq.core.registry import Registered

    return {entry.name: entry.value for entry in registered if isinstance(entry, Registered)}
