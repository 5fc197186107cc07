"""The short way to a server must do what the long way does, or step aside; and it must stay short."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from flintmq.plugins.cli import plain_words, serve, servers
from flintmq.plugins.cli.main import made_command


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What was called instead of serving: the command, and what it was given beside defaults."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in plain_words.COMMANDS:
        names = getattr(servers, name).__code__.co_varnames

        def stand_in(*words: Any, _name: str = name, _names: Sequence[str] = names, **named: Any) -> None:
            given = dict(zip(_names, words, strict=False)) | named
            given.setdefault("log_level", "info")
            found.append((_name, {key: value for key, value in given.items() if value}))

        monkeypatch.setattr(servers, name, stand_in)
    return found


def test_both_ways_know_the_same_options() -> None:
    """An option that is added to one way only would be missed by who reads the other's help."""
    for command, options in plain_words.COMMANDS.items():
        known = made_command(command, getattr(serve, command)).params
        expected = {text: param.name for param in known for text in param.opts if param.name != "help"}
        assert {text: name for text, (name, _read) in options.items()} == expected


@pytest.mark.parametrize(
    "line",
    [
        "run",
        "run --store /tmp/x --port 0 --namesrv-port=65535 --set a=b --set c.d=e=f --log-level error",
        "run -c /tmp/broker.yaml --host=::1 --namesrv-host 0.0.0.0 --log-level=debug",
        "broker -n 127.0.0.1:9876;127.0.0.2:9876 --store s --port 10911",
        "broker --namesrv h:1 --namesrv h:2 --set x=",
        "namesrv --kv-path k.json --port 9876 --host localhost",
    ],
)
def test_plain_words_mean_what_they_always_meant(called: list[tuple[str, dict[str, Any]]], line: str) -> None:
    call = plain_words.plain_call(line.split())
    assert call is not None
    call()
    command, *words = line.split()
    made_command(command, getattr(serve, command)).main(words, standalone_mode=False)
    assert called[0] == called[1]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "send T",
        "--log-level debug run",
        "run --help",
        "run -h",
        "run --port",
        "run --port x",
        "run --port 65536",
        "run --port -1",
        "run --port ٣",
        "run --store --port 0",
        "run --stor x",
        "run x",
        "run -- --port 0",
        "run -c=x",
        "run --log-level loud",
        "namesrv --store x",
    ],
)
def test_everything_else_goes_the_long_way(line: str) -> None:
    """Help and mistakes have one author."""
    assert plain_words.plain_call(line.split()) is None


def test_a_server_has_no_parser_in_memory() -> None:
    """What the short way is for: typer, rich and pydantic stay on the disk; so do the consumers and producers."""
    program = (
        "import sys\n"
        "from flintmq.plugins.cli import servers, serving\n"
        "from flintmq.plugins.cli.entry import main\n"
        "import flintmq.plugins.broker.broker, flintmq.plugins.name_server.name_server\n"
        "serving.serve = lambda start, loop: None\n"
        "sys.argv = ['flintmq', 'run', '--port', '0']\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 0, end.code\n"
        "unwanted = {'typer', 'rich', 'pydantic', 'flintmq.remoting.client.consumer', 'flintmq.plugins.cli.main'}\n"
        "print(sorted(unwanted & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "[]", done.stderr
