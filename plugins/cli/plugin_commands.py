"""Commands that plugins bring (hook ``flintmq_cli_commands``): installed plugins', and those named in ``FLINTMQ_PLUGINS``.

A plugin that cannot be loaded costs its own commands and a warning, never the command line.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

import click
import importlib_metadata

from flintmq.config import ConfigError, load_config
from flintmq.config.sections.models import PluginRef
from flintmq.core.kernel.finder import ENTRY_POINT_GROUP
from flintmq.plugins.cli.exits import warn

PLUGINS_VARIABLE = "FLINTMQ_PLUGINS"


@functools.cache
def commands() -> Mapping[str, click.Command]:
    """Return the commands of all plugins by name. Loads plugins at the first call only."""
    installed = sorted({point.name for point in importlib_metadata.entry_points(group=ENTRY_POINT_GROUP)})
    configured = _configured()
    if not installed and not configured:
        return {}
    from flintmq.plugins.cli.plugin_command import load_commands  # with the kernel and typer, which only this needs

    return load_commands(installed, configured)


def _configured() -> tuple[PluginRef, ...]:
    if PLUGINS_VARIABLE not in os.environ:
        return ()
    try:
        return load_config(environ={PLUGINS_VARIABLE: os.environ[PLUGINS_VARIABLE]}).config.plugins
    except ConfigError as error:
        warn(str(error))
        return ()
