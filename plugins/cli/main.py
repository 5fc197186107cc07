"""The ``flintmq`` command: finds the command's file, runs it, and turns what it raises into one line and an exit code.

A command's file is imported when the command runs (or when all are listed), and imports what is heavy inside the command.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main

from flintmq.plugins.cli import connect, exits, logs, plugin_commands
from flintmq.plugins.cli.examples import add_examples

COMMANDS: Final = {
    "run": "serve:run",
    "namesrv": "serve:namesrv",
    "broker": "serve:broker",
    "demo": "demo:demo",
    "send": "send:send",
    "consume": "consume:consume",
    "query": "query:query",
    "topics": "topics:app",
    "groups": "groups:app",
    "status": "status:status",
    "pipeline": "pipeline:app",
    "bench": "bench:app",
    "store": "store:app",
    "config": "config:app",
    "plugins": "plugins:plugins",
}
"""Name → file and object, in the order in which help lists them."""


def made_command(name: str, target: typer.Typer | Callable[..., Any], help: str | None = None) -> Any:
    """A command of a name, of a group or of a function with annotations that typer understands."""
    if not isinstance(target, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name, help=help or None)(target)
        target = single
    command = typer.main.get_command(target)
    command.name = name
    return command


class LazyGroup(typer.core.TyperGroup):
    """The commands of this package and those of plugins, imported when they are wanted."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *(name for name in plugin_commands.commands() if name not in COMMANDS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = COMMANDS.get(cmd_name)
        if place is not None:
            file, _, attribute = place.partition(":")
            module = importlib.import_module(f"flintmq.plugins.cli.{file}")
            command = made_command(cmd_name, getattr(module, attribute))
            add_examples(command, cmd_name)
            connect.add_access_options(command)
            return command
        spec = plugin_commands.commands().get(cmd_name)
        if spec is None:
            return None
        command = made_command(cmd_name, spec.command, spec.help)
        connect.add_access_options(command)
        return command


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="FlintMQ: a RocketMQ 4.9 compatible message broker and name server.",
    epilog="Start with: flintmq demo. Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 store, "
    "4 network, 5 store fenced. Access control and TLS of every client: --access-key, --secret-key-file, --tls-ca and others, "
    "or FLINT_ACCESS_KEY, FLINT_SECRET_KEY, FLINT_TLS_CA.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from flintmq import __version__
        from flintmq.remoting.wire.version import MQ_VERSION, version_name

        print(f"flintmq {__version__} (RocketMQ {version_name(MQ_VERSION)})")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def flintmq(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    log_level: Annotated[
        logs.LogLevel, typer.Option("--log-level", help="What is logged to stderr; debug adds tracebacks.")
    ] = logs.LogLevel.WARNING,
) -> None:
    logs.configure(log_level)
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: without the program's name; None for the process's own.

    Returns:
        The exit code (see :mod:`flintmq.plugins.cli.exits`).
    """
    connect.forget_access()
    words = None if arguments is None else list(arguments)
    return exits.finished(lambda: app(args=words, prog_name="flintmq", standalone_mode=False), _usage)


def _usage(error: Any) -> int | None:
    """What typer raises for a wrong command line; a group called without a command shows its help instead."""
    if not hasattr(error, "format_message"):
        return None
    message = " ".join(str(error.format_message()).split())
    context = getattr(error, "ctx", None)
    if context is not None:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            return exits.ExitCode.USAGE
        message = f"{message.rstrip('.')}; see '{context.command_path} --help'"
    exits.complain(message)
    return exits.ExitCode.USAGE


def main() -> None:
    """The entry point: exits the process."""
    sys.exit(run_command_line())
