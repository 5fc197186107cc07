"""Commands of plugins: typer makes one of a function with annotations, and reads its words itself.

This is the only module that imports typer, so typer is imported only where a plugin brings a command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, cast

import click
import importlib_metadata
import typer
import typer.core
import typer.main

from flintmq.config.errors import ConfigError
from flintmq.config.sections.models import PluginRef
from flintmq.core.errors import FlintError, PluginError
from flintmq.core.kernel.blame import brief
from flintmq.core.kernel.finder import ENTRY_POINT_GROUP
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_shapes import COMMAND
from flintmq.core.kernel.registry import CommandSpec, Registered
from flintmq.programs.cli import options
from flintmq.programs.cli.commands import COMMANDS
from flintmq.programs.cli.exits import CommandError, warn
from flintmq.programs.cli.parser import ACCESS_SECTION

# The base of typer's usage errors, wherever this version of typer has it.
_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[2])


class PluginCommand(click.Command):
    """A command whose words are handed to typer as they stand."""

    def __init__(self, name: str, inner: Any) -> None:
        super().__init__(name, help=inner.help, short_help=inner.short_help)
        self._inner = inner

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words: options, help included, are those of the inner command."""
        ctx.args = list(args)
        return []

    def invoke(self, ctx: click.Context) -> None:
        """Run the inner command; an exit code that it ends with is this command's."""
        code = self._inner.main(args=ctx.args, prog_name=ctx.command_path, standalone_mode=False)
        if isinstance(code, int):
            ctx.exit(code)


def load_commands(configured: tuple[PluginRef, ...]) -> dict[str, click.Command]:
    """Return the commands of installed plugins and of these; warn of plugins and commands that cannot be used.

    All plugins are loaded at once, which settles which one wins a name; one by one when that fails, to find the culprit.
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
    """Return the command of a plugin.

    Raises:
        PluginError: the name belongs to a command of FlintMQ, or typer does not understand the annotations.
    """
    where = COMMAND.where(registered.owner, registered.name)
    if registered.name in COMMANDS:
        raise PluginError(f"{where}: expected a name of the plugin's own; found one of flintmq's commands")
    try:
        single = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
        single.command(registered.name, help=registered.value.help or None)(_with_access(_blamed(registered)))
        inner: Any = typer.main.get_command(single)
    except Exception as error:
        raise PluginError(
            f"{where}: expected a function with annotations that typer understands; found {brief(error)}"
        ) from error
    return PluginCommand(registered.name, inner)


def _with_access(command: Callable[..., object]) -> Callable[..., object]:
    """Return a client's command, which is one that takes ``namesrv``, with the options that FlintMQ's own clients have."""
    signature = inspect.signature(command, eval_str=True)
    if "namesrv" not in signature.parameters:
        return command

    added = [
        inspect.Parameter(
            name.replace("-", "_"),
            inspect.Parameter.KEYWORD_ONLY,
            default=False if metavar is None else None,
            annotation=Annotated[bool if metavar is None else str | None, _access_option(name, text, metavar)],
        )
        for name, (text, metavar) in options.ACCESS.items()
        if name.replace("-", "_") not in signature.parameters
    ]
    names = {parameter.name for parameter in added}

    @functools.wraps(command)
    def run(**named: object) -> object:
        return command(**{name: value for name, value in named.items() if name not in names})

    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    return run


def _access_option(name: str, text: str, metavar: str | None) -> Any:
    def note(parameter: typer.CallbackParam, value: Any) -> None:
        options.note_access(None, parameter, value)

    return typer.Option(
        f"--{name}",
        metavar=metavar,
        envvar=options.access_variable(name),
        help=text,
        callback=note,
        expose_value=False,
        rich_help_panel=ACCESS_SECTION,
    )


def _blamed(entry: Registered[CommandSpec]) -> Callable[..., object]:
    """Return the plugin's function; a failure in it is an error that names the plugin, except errors made to be reported."""
    command: Callable[..., object] = entry.value.command

    @functools.wraps(command)
    def run(*arguments: object, **named: object) -> object:
        try:
            return command(*arguments, **named)
        except (FlintError, ConfigError, CommandError, _USAGE_ERROR, typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            raise PluginError(f"{COMMAND.where(entry.owner, entry.name)} raised {brief(error)}") from error

    return run
