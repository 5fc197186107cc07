"""The command line itself: it starts fast, lists everything, survives broken plugins and ends in one line and a code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

import flintmq
from flintmq.core.errors import (
    FlintError,
    PluginError,
    RefusedError,
    RemotingConnectError,
    StoreFencedError,
    StoreFormatError,
    StoreLockedError,
)
from flintmq.programs.cli.commands import COMMANDS
from flintmq.programs.cli.exits import CommandError, ExitCode, exit_code_of
from flintmq.programs.cli.main import app
from flintmq.programs.cli.parser import LazyGroup

from .conftest import RunCommand

WITH_COMMAND = """
import click
from flintmq.core.kernel.hookspecs import hookimpl

@click.command()
@click.option("--name", default="you")
@click.option("--loud", is_flag=True)
def greet(name: str, loud: bool) -> None:
    print(f"hello {name}" + "!" * loud)

class plugin:
    @hookimpl
    def flintmq_cli_commands(self, register):
        register("greet", greet, help="Says hello.")
"""


def test_help_lists_every_command(cli: RunCommand) -> None:
    """A command nobody can find is none."""
    outcome = cli("--help")
    assert outcome.code == 0
    for name in COMMANDS:
        assert f" {name} " in outcome.out
    assert cli().out == outcome.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(cli: RunCommand, name: str) -> None:
    """Options are converted only when a command is asked for: a mistake in one would show to its first user."""
    outcome = cli(name, "--help")
    assert outcome.code == 0
    assert f"flintmq {name}" in outcome.out


def all_commands(group: Any = app, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, groups included, with the words that name it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from all_commands(command, (*words, name))


def test_the_help_text_of_every_command_ends_with_valid_examples() -> None:
    """An example that an option's new name has broken is worse than none."""
    commands = dict(all_commands())
    for words, command in commands.items():
        examples = re.findall(r"^  (flintmq .*)", command.epilog or "", re.MULTILINE)
        assert examples, words
        for example in examples:
            named = shlex.split(example)[1:]
            assert tuple(named[: len(words)]) == words, example
            called = max((one for one in commands if tuple(named[: len(one)]) == one), key=len)
            commands[called].make_context(" ".join(called), named[len(called) :])


def test_the_printed_list_of_commands_describes_each_command_by_the_first_paragraph_of_its_help() -> None:
    """Lists of commands are printed from a table, so that they import nothing; the table must not drift from the commands."""
    groups = [((), app), *((words, found) for words, found in all_commands() if isinstance(found, LazyGroup))]
    for words, group in groups:
        assert isinstance(group, LazyGroup)
        context = click.Context(group)
        for name, line in group.rows(context):
            command = group.get_command(context, name)
            assert command is not None
            assert " ".join((command.help or "").partition("\n\n")[0].split()) == line, (*words, name)


def test_help_does_not_import_the_broker() -> None:
    """Help and completion must come at once: nothing heavy may be imported for them."""
    code = (
        "import sys\n"
        "from flintmq.programs.cli.main import run_command_line\n"
        "assert run_command_line(['--help']) == 0\n"
        "heavy = {'flintmq.programs.broker.broker', 'flintmq.core.kernel.kernel', 'flintmq.remoting.server.server', 'uvloop'}\n"
        "found = heavy & set(sys.modules)\n"
        "sys.exit(f'imported: {found}' if found else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


def test_version_prints_the_versions_of_flintmq_and_the_protocol(cli: RunCommand) -> None:
    """Bug reports name the version, ours and the one of the protocol."""
    outcome = cli("--version")
    assert outcome.code == 0
    assert outcome.out == f"flintmq {flintmq.__version__} (RocketMQ V4_9_7)\n"


@pytest.mark.parametrize(
    "arguments", [("nope",), ("run", "--nope"), ("send",), ("consume", "T", "--count", "x"), ("--nope",)]
)
def test_wrong_usage_prints_one_line_and_exits_with_2(cli: RunCommand, arguments: tuple[str, ...]) -> None:
    """Scripts tell wrong usage from failure by the code; people read one line that says where help is."""
    outcome = cli(*arguments)
    assert outcome.code == ExitCode.USAGE
    assert outcome.out == ""
    assert outcome.err.startswith("flintmq: error: ")
    assert outcome.err.count("\n") == 1
    assert "--help'" in outcome.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (flintmq.config.ConfigError("x"), 2),
        (PluginError("x"), 2),
        (StoreLockedError("x"), 3),
        (StoreFormatError("x"), 3),
        (RemotingConnectError("x"), 4),
        (StoreFencedError("x"), 5),
        (RefusedError(1, "x", reason="a.b"), 1),
        (FlintError("x"), 1),
        (CommandError("x", ExitCode.NETWORK), 4),
        (RuntimeError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_error_has_its_documented_exit_code(error: BaseException, code: int) -> None:
    """The codes are documented; whoever supervises a broker acts on them."""
    assert exit_code_of(error) == code


def test_a_traceback_is_printed_only_at_log_level_debug(cli: RunCommand) -> None:
    """A traceback frightens users and helps developers."""
    quiet = cli("topics", "-n", "127.0.0.1:1")
    assert quiet.code == 4
    assert "Traceback" not in quiet.err
    assert "flintmq run" in quiet.err
    loud = cli("--log-level", "debug", "topics", "-n", "127.0.0.1:1")
    assert loud.code == 4
    assert "Traceback" in loud.err


def test_a_command_of_a_plugin_can_be_called_as_a_subcommand_of_flintmq(
    cli: RunCommand, plugin_module: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin's command is a subcommand like any other, with options of its own."""
    monkeypatch.setenv("FLINTMQ_PLUGINS", plugin_module("cli_greet_plugin", WITH_COMMAND))
    assert "Says hello." in cli("--help").out
    assert cli("greet", "--name", "world", "--loud").out == "hello world!\n"
    assert cli("greet", "--nope").code == ExitCode.USAGE


def test_a_broken_plugin_does_not_affect_other_commands(
    cli: RunCommand, plugin_module: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broken plugin must not take the command line, or other plugins' commands, away."""
    good = plugin_module("cli_good_plugin", WITH_COMMAND)
    broken = plugin_module("cli_broken_plugin", "raise RuntimeError('kaput')")
    monkeypatch.setenv("FLINTMQ_PLUGINS", f"{broken},{good}")
    outcome = cli("--help")
    assert outcome.code == 0
    assert "Says hello." in outcome.out
    assert "warning" in outcome.err
    assert "kaput" in outcome.err
    assert cli("greet").out == "hello you\n"
    assert "kaput" not in cli("config", "show").err, "a built-in command loads no plugins"


FAILING_COMMANDS = """
import click
from flintmq.core.kernel.hookspecs import hookimpl

@click.command()
def fails(): raise KeyError("greeting")

class plugin:
    @hookimpl
    def flintmq_cli_commands(self, register):
        register("greet-all", fails, help="Fails.")
        register("status", fails)
"""


def test_the_error_of_a_failing_plugin_command_names_the_command_in_one_line(
    cli: RunCommand, plugin_module: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, without a trace; one that cannot be used costs a warning, and no other command."""
    monkeypatch.setenv("FLINTMQ_PLUGINS", plugin_module("cli_failing_plugin", FAILING_COMMANDS))
    outcome = cli("greet-all")
    assert outcome.code == ExitCode.USAGE
    warnings, error = outcome.err.splitlines()[:-1], outcome.err.splitlines()[-1]
    assert error == (
        "flintmq: error: plugin 'cli_failing_plugin.plugin' (configuration): flintmq_cli_commands: "
        "the command 'greet-all' raised KeyError: 'greeting'"
    )
    assert ["'status'" in line for line in warnings] == [True], warnings
    assert "Fails." in cli("--help").out
