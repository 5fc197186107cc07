"""Loads the commands of plugins. Each is a ``click.Command`` that a plugin registers, like FlintMQ's own commands."""

from __future__ import annotations

from collections.abc import Iterable

import click
import importlib_metadata

from flintmq.config.errors import ConfigError
from flintmq.config.sections.models import PluginRef
from flintmq.core.errors import FlintError, PluginError
from flintmq.core.kernel.failures import brief
from flintmq.core.kernel.finder import ENTRY_POINT_GROUP
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_shapes import COMMAND
from flintmq.core.kernel.registry import CommandSpec, Registered
from flintmq.programs.cli import options
from flintmq.programs.cli.commands import COMMANDS
from flintmq.programs.cli.exits import CommandError, warn
from flintmq.programs.cli.parser import Command

_EXPECTED = (
    FlintError,
    ConfigError,
    CommandError,
    click.ClickException,
    click.exceptions.Exit,
    click.Abort,
    BrokenPipeError,
)
"""Types of errors that a plugin's command raises on purpose. Such an error is reported unchanged, without the plugin's name."""


class PluginCommand(Command):
    """A plugin's command under its registered name. An unexpected error is raised as a PluginError that names the plugin.

    Args:
        registered: the command and its plugin. The plugin's command object is not changed.
    """

    def __init__(self, registered: Registered[CommandSpec]) -> None:
        own: click.Command = registered.value.command
        super().__init__(
            registered.name,
            context_settings=own.context_settings,
            callback=own.callback,
            params=list(own.params),
            help=registered.value.help or own.help,
            epilog=own.epilog,
            no_args_is_help=own.no_args_is_help,
        )
        self._where = COMMAND.where(registered.owner, registered.name)
        names = {parameter.name for parameter in self.params}
        # A plugin's command with the option --namesrv is a client, so it also gets the options to sign and encrypt requests.
        if "namesrv" in names:
            # Decorators add a command's options in reverse order, so reversed() restores their order.
            access = options.access(click.Command(None)).params
            self.params += [one for one in reversed(access) if one.name not in names]

    def invoke(self, ctx: click.Context) -> object:
        """Call the function of a plugin's command. Raises ``PluginError`` if the function raises an unexpected error."""
        try:
            return super().invoke(ctx)
        except _EXPECTED:
            raise
        except Exception as error:
            raise PluginError(f"{self._where} raised {brief(error)}") from error


def load_commands(configured: tuple[PluginRef, ...]) -> dict[str, click.Command]:
    """Return the commands of plugins, keyed by name, and warn of plugins and commands that cannot be used.

    All plugins are loaded together first, as by a broker. That fails, for example, if two plugins register the same name. Then
    each plugin is loaded alone, to find the plugins at fault and to use the commands of the other plugins.

    Args:
        configured: plugins to load in addition to the installed ones.
    """
    try:
        return _made(Kernel.assemble(configured).registries.cli_commands.all())
    except PluginError:
        pass
    found: dict[str, click.Command] = {}
    installed = sorted({point.name for point in importlib_metadata.entry_points(group=ENTRY_POINT_GROUP)})
    for name in installed:
        others = [other for other in installed if other != name]
        try:
            found |= _made(Kernel.assemble(disabled=others).registries.cli_commands.all())
        except PluginError as error:
            warn(str(error))
    for ref in configured:
        try:
            found |= _made(Kernel.assemble((ref,), use_entry_points=False).registries.cli_commands.all())
        except PluginError as error:
            warn(str(error))
    return found


def _made(registered: Iterable[Registered[CommandSpec]]) -> dict[str, click.Command]:
    found = {}
    for entry in registered:
        try:
            found[entry.name] = made_command(entry)
        except PluginError as error:
            warn(str(error))
    return found


def made_command(registered: Registered[CommandSpec]) -> click.Command:
    """Return a plugin's command, wrapped so that unexpected errors name the plugin.

    Raises:
        PluginError: FlintMQ has a command with this name.
    """
    if registered.name in COMMANDS:
        where = COMMAND.where(registered.owner, registered.name)
        raise PluginError(f"{where}: expected a new name; found the name of one of flintmq's commands")
    return PluginCommand(registered)
