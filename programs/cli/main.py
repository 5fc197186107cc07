"""The ``flintmq`` command: finds a command, runs it, and turns its error into one line and an exit code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from flintmq import __version__
from flintmq.programs.cli import exits, options
from flintmq.programs.cli.commands import COMMANDS
from flintmq.programs.cli.output import print_text
from flintmq.programs.cli.parser import LazyGroup
from flintmq.remoting.wire.codes import MQ_VERSION, version_name

PLUGINS_VARIABLE: Final = "FLINTMQ_PLUGINS"
COMPLETE_VARIABLE: Final = "_FLINTMQ_COMPLETE"
"""Name of the environment variable with which a shell requests completions. The name is click's."""


class _Flintmq(LazyGroup):
    """The group of FlintMQ's commands and plugins' commands. Plugins are loaded when a command is not one of FlintMQ's, and to
    list all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *_plugin_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or _plugin_commands().get(cmd_name)

    def rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        brought = ((name, command.get_short_help_str(200)) for name, command in _plugin_commands().items())
        return [*super().rows(ctx), *brought]


@functools.cache
def _plugin_commands() -> dict[str, click.Command]:
    """Return the commands of installed plugins and of the plugins that ``FLINTMQ_PLUGINS`` names.

    A plugin that cannot be loaded causes a warning, and its commands are missing; other commands still work.
    """
    import importlib_metadata

    if PLUGINS_VARIABLE not in os.environ and not importlib_metadata.entry_points(group="flintmq"):
        return {}
    # The settings and the kernel are imported only if plugins may exist, because only commands of plugins need them.
    from flintmq.config import ConfigError, PluginRef, load_config
    from flintmq.programs.cli.plugin_command import load_commands

    configured: tuple[PluginRef, ...] = ()
    if PLUGINS_VARIABLE in os.environ:
        try:
            configured = load_config(environ={PLUGINS_VARIABLE: os.environ[PLUGINS_VARIABLE]}).config.plugins
        except ConfigError as error:
            exits.warn(str(error))
    return load_commands(configured)


@click.group(
    cls=_Flintmq,
    table=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 120},
    help="FlintMQ: a RocketMQ 4.9 compatible message broker and name server.",
    epilog="Start with: flintmq demo. Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 store, "
    "4 network, 5 store fenced. Access control and TLS of every client: --access-key, --secret-key-file, --tls-ca and others, "
    "or FLINT_ACCESS_KEY, FLINT_SECRET_KEY, FLINT_TLS_CA.",
)
@click.version_option(
    __version__,
    message=f"flintmq %(version)s (RocketMQ {version_name(MQ_VERSION)})",
    help="Print the version and exit.",
)
@options.log_level("warning")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Print the help of ``flintmq`` if no command is named."""
    if ctx.invoked_subcommand is None:
        print_text(ctx.get_help())


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (see :mod:`flintmq.programs.cli.exits`).

    Args:
        arguments: the command line without the program's name; None for this process's command line.
    """
    options.given_access.clear()
    exits.take_any_text()
    words = list(sys.argv[1:] if arguments is None else arguments)
    code = exits.finished(lambda: _run(words), _usage)
    # Only commands that serve, such as `broker`, import the module serving_output and start threads for their output.
    # If serving_output was not imported, the command has no output threads to end.
    if "flintmq.programs.cli.serving_output" in sys.modules:
        from flintmq.programs.cli.serving_output import SERVING_OUTPUT

        SERVING_OUTPUT.end()
    return code


def _run(words: list[str]) -> int:
    try:
        with app.make_context("flintmq", words) as context:
            app.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except KeyboardInterrupt:
        return exits.ExitCode.INTERRUPTED
    return exits.ExitCode.OK


def _usage(error: Exception) -> int | None:
    """Report a wrong command line and return the exit code; return None for any other error.

    A group that is called without a command prints its help instead.
    """
    if not isinstance(error, click.ClickException):
        return None
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if context is not None:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            print_text(error.format_message())
            return exits.ExitCode.USAGE
        message = f"{message.rstrip('.')}; see '{context.command_path} --help'"
    exits.complain(message)
    return exits.ExitCode.USAGE


def main() -> None:
    """Run the command of this process's command line, or answer a shell's completion request, and exit."""
    asked = os.environ.get(COMPLETE_VARIABLE)
    sys.exit(run_command_line() if asked is None else complete(asked))


def complete(asked: str) -> int:
    """Print a shell's completion function, or the completions of a command line; return the exit code.

    Args:
        asked: the value of the environment variable with which a shell asks for completion: ``bash_source`` or
            ``bash_complete``, and the same for ``zsh`` and ``fish``.
    """
    from click.shell_completion import get_completion_class, shell_complete

    shell = asked.partition("_")[0]
    if get_completion_class(shell) is None or asked not in (f"{shell}_source", f"{shell}_complete"):
        exits.complain(f"{COMPLETE_VARIABLE} is bash_source, zsh_source or fish_source, not '{asked[:40]}'")
        return exits.ExitCode.USAGE
    return shell_complete(app, {}, "flintmq", COMPLETE_VARIABLE, asked)
