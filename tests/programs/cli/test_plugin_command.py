"""Commands of plugins are commands like FlintMQ's own: in their options for access, their exit codes and their errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.programs.cli import options
from flintmq.programs.cli.exits import ExitCode

from .conftest import RunCommand

CLIENT = """
import click
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.programs.cli import options

@click.command()
@click.argument("topic")
@click.option("--namesrv", default="127.0.0.1:9876")
@click.option("--words", multiple=True)
def count(topic: str, namesrv: str, words: tuple[str, ...]) -> None:
    print(topic, namesrv, list(words), options.given_access)

@click.command()
@click.option("--code", default=3)
@click.pass_context
def fails(context: click.Context, code: int) -> None:
    context.exit(code)

@click.command()
def waits() -> None:
    raise KeyboardInterrupt

class plugin:
    @hookimpl
    def flintmq_cli_commands(self, register):
        register("count", count, help="Counts messages.")
        register("fails", fails)
        register("waits", waits)
"""


@pytest.fixture
def brought(cli: RunCommand, plugin_module: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Runs commands while the plugin above is configured."""
    monkeypatch.setenv("FLINTMQ_PLUGINS", plugin_module("cli_client_plugin", CLIENT))
    return cli


def test_a_plugin_command_can_have_the_client_options_for_access_control_and_tls(brought: RunCommand) -> None:
    """A plugin that speaks with brokers must not write the options for access control and TLS again."""
    shown = brought("count", "--help").out
    assert "Counts messages." in shown
    assert all(f"--{name}" in shown for name in options.ACCESS)
    outcome = brought("count", "Orders", "--access-key", "me", "--tls", "--words", "a", "--words=-b")
    assert outcome.code == 0, outcome.err
    assert outcome.out == ("Orders 127.0.0.1:9876 ['a', '-b'] {'FLINT_ACCESS_KEY': 'me', 'FLINT_TLS': '1'}\n")
    assert "{}" in brought("count", "Orders").out, "nothing stays of an earlier command"
    assert "--access-key" not in brought("fails", "--help").out


def test_a_plugin_command_has_the_exit_codes_and_usage_errors_of_built_in_commands(brought: RunCommand) -> None:
    """Supervisors and scripts act on the code."""
    assert brought("fails").code == 3
    assert brought("fails", "--code", 0).code == 0
    wrong = brought("fails", "--code", "x")
    assert wrong.code == ExitCode.USAGE
    assert wrong.err.startswith("flintmq: error: ")
    assert wrong.err.count("\n") == 1
    assert "'flintmq fails --help'" in wrong.err
    assert brought("waits").code == ExitCode.INTERRUPTED
