"""What a shell completes, and what is suggested for words that are none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from flintmq.programs.cli.main import COMPLETE_VARIABLE, app

from .conftest import RunCommand

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "import sys; from flintmq.programs.cli.main import main; sys.argv[0] = 'flintmq'; main()"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder whose ``flintmq`` is this checkout's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "flintmq").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{PROGRAM}" "$@"\n')
    (folder / "flintmq").chmod(0o755)
    return folder


def run(program: Path, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{program}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, env=os.environ | {"PATH": path} | environment, capture_output=True, text=True, timeout=60, check=False
    )


def completed(program: Path, shell: str, *words: str) -> list[str]:
    """Return what a real shell offers after these words."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    setup = f'eval "$({COMPLETE_VARIABLE}={shell}_source flintmq)"'
    if shell == "fish":
        line = " ".join(words)
        script = f"{COMPLETE_VARIABLE}=fish_source flintmq | source; complete -C '{line}'"
    else:
        script = f"{setup}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _flintmq_completion flintmq\n"
        script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = run(program, [shell, "-c", script])
    assert done.returncode == 0, done.stderr
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_commands_and_options_and_option_values(program: Path, shell: str) -> None:
    """The lines that the page of commands shows, in a real shell: the commands of groups, lazily imported ones, choices."""
    assert completed(program, shell, "flintmq", "to") == ["topics", "top"]
    assert completed(program, shell, "flintmq", "topics", "cr") == ["create"]
    assert completed(program, shell, "flintmq", "topics", "create", "--permission", "r") == ["rw", "r"]
    assert "--group" in completed(program, shell, "flintmq", "consume", "--g")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documentation_of_commands_shows_how_to_enable_completion_in_each_shell(shell: str) -> None:
    """What nobody finds nobody uses."""
    assert f"{COMPLETE_VARIABLE}={shell}_source flintmq" in (ROOT / "docs" / "commands.md").read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_completion_function_for_each_shell(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the function may be printed: the shell runs it."""
    from click.shell_completion import BashComplete

    from flintmq.programs.cli.main import complete

    monkeypatch.setattr(BashComplete, "_check_version", staticmethod(lambda: None))
    assert complete(f"{shell}_source") == 0
    out = capsys.readouterr().out
    assert COMPLETE_VARIABLE in out
    assert "flintmq" in out


def test_the_error_about_an_invalid_shell_completion_request_lists_the_valid_requests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A typing error in the shell's configuration was silence, or a listing of help at each start of a shell."""
    from flintmq.programs.cli.main import complete

    assert complete("bsh_source") == 2
    assert "_FLINTMQ_COMPLETE is bash_source, zsh_source or fish_source, not 'bsh_source'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("topcis",), "topics"),
        (("topic",), "topics"),
        (("stauts",), "status"),
        (("topics", "crate"), "create"),
        (("config", "initt"), "init"),
        (("store", "verfy"), "verify"),
        (("bench", "lattency"), "latency"),
    ],
)
def test_the_error_about_an_unknown_command_suggests_a_command_with_a_similar_name(
    cli: RunCommand, words: tuple[str, ...], meant: str
) -> None:
    """Commands are imported when they are called: those that were not imported yet were not suggested."""
    outcome = cli(*words)
    assert outcome.code == 2
    told = outcome.err.partition(f"No such command '{words[-1]}'.")[2]
    assert f"'{meant}'" in told.partition(";")[0]


def test_the_error_about_an_unknown_command_suggests_no_command_if_no_name_is_similar(cli: RunCommand) -> None:
    """A guess that is far off would mislead."""
    assert cli("xyzzy").err == "flintmq: error: No such command 'xyzzy'; see 'flintmq --help'\n"


@pytest.mark.parametrize("words", ["run", "namesrv", "broker", "console"])
def test_help_shows_the_default_of_every_option(words: str) -> None:
    """``run --help`` did not say at which port, and into which folder."""
    context = click.Context(app, info_name="flintmq", show_default=True)
    command = app.get_command(context, words)
    assert command is not None
    silent = {
        "config",
        "settings",
        "log_file",
        "namesrv",
        "kv_path",
        "count",
        "host_names",
        "certificate",
        "key",
        "audit",
        "history",
    }
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden and not option.is_flag and option.expose_value:
            extra = option.get_help_extra(context)
            assert option.name in silent or extra.get("default"), f"{words} {option.opts}"
    shown = command.get_help(click.Context(command, parent=context, info_name=words))
    assert "[default: 127.0.0.1]" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("words", "default"),
    [("run", "10911"), ("run", "9876"), ("namesrv", "9876"), ("broker", "10911"), ("console", "9880")],
)
def test_the_default_ports_shown_by_help_equal_the_default_ports_in_the_configuration(
    cli: RunCommand, words: str, default: str
) -> None:
    """Help that is written by hand would go stale."""
    assert f"default: {default};" in " ".join(cli(words, "--help").out.split())
