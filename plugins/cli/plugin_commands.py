"""Commands that plugins bring (hook ``flintmq_cli_commands``): installed plugins', and those named in ``FLINTMQ_PLUGINS``.

A plugin that cannot be loaded costs its own commands and a warning, never the command line.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, cast

import attrs

from flintmq.config.errors import ConfigError
from flintmq.core.errors import FlintError, PluginError
from flintmq.core.kernel.blame import brief
from flintmq.core.kernel.plugin_shapes import COMMAND
from flintmq.plugins.cli.exits import CommandError, warn

if TYPE_CHECKING:
    from flintmq.config.sections.models import PluginRef
    from flintmq.core.kernel.registry import CommandSpec, Registered

PLUGINS_VARIABLE = "FLINTMQ_PLUGINS"


@functools.cache
def commands() -> Mapping[str, CommandSpec]:
    """The commands of all plugins by name. Loads plugins at the first call only."""
    import importlib_metadata

    from flintmq.core.kernel.finder import ENTRY_POINT_GROUP

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
    from flintmq.core.kernel.kernel import Kernel

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


def _specs(registered: Iterable[Registered[CommandSpec]]) -> dict[str, CommandSpec]:
    from flintmq.plugins.config_check import check_command

    found = {}
    for entry in registered:
        try:
            check_command(entry)
        except PluginError as error:
            warn(str(error))
        else:
            found[entry.name] = attrs.evolve(entry.value, command=_named(entry))
    return found


def _named(entry: Registered[CommandSpec]) -> Callable[..., object]:
    """The command, whose failure is an error that names the plugin. What it raises to be reported passes as it is."""
    import typer

    # ClickException, wherever this version of typer has click.
    usage_error = cast("type[Exception]", typer.BadParameter.__mro__[2])
    command: Callable[..., object] = entry.value.command

    @functools.wraps(command)
    def run(*arguments: object, **named: object) -> object:
        try:
            return command(*arguments, **named)
        except (
            FlintError,
            ConfigError,
            CommandError,
            usage_error,
            typer.Exit,
            typer.Abort,
            BrokenPipeError,
        ):
            raise
        except Exception as error:
            raise PluginError(f"{COMMAND.where(entry.owner, entry.name)} raised {brief(error)}") from error

    return run
