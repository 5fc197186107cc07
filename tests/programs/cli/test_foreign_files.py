"""Text of files that somebody else wrote reaches a terminal as text, as text of a message does."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import flintmq
from flintmq.config.loading.raw import RawScalar
from flintmq.testing.store import message, opened
from flintmq.tests.support.bench_reports import a_report
from flintmq.tests.support.extras import ROOT

from .conftest import RunCommand
from .test_foreign_text import HOSTILE, STEERS

TURNED = "a\u202eb\u200e"
IN_QUOTES = json.dumps(HOSTILE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file of each kind that a command reads."""
    (tmp_path / "broker.yaml").write_text(
        f'store: {{path: "{TURNED}"}}\nacme: {{words: [{IN_QUOTES}], {IN_QUOTES}: 1, token: x, {IN_QUOTES[:-1]}_token": x}}\n'
    )
    (tmp_path / "broken.yaml").write_text(f"listen: {{port: {IN_QUOTES}}}\n")
    (tmp_path / "unknown.yaml").write_text(f"{IN_QUOTES}: 1\n")
    (tmp_path / "broker.conf").write_text(
        "brokerClusterName=c\\u001b[2J\\u202e\nunknown\\u001b=\\u009b\\u2028\nbrokerName=\\u200ebroker\n"
    )
    for name, strategy in (("a.json", HOSTILE), ("b.json", f"{HOSTILE}2")):
        text = json.dumps(a_report(100)).replace('"group_commit"', json.dumps(strategy))
        (tmp_path / name).write_text(text.replace('"cpu"', IN_QUOTES))
    (tmp_path / "pipeline.yaml").write_text(
        f"source: {{path: ./store, subscribe: Orders}}\nsinks: [{{format: console, {IN_QUOTES}: 1}}]\n"
    )
    with opened(tmp_path / "store") as store:
        store.put([message("Orders", 0, HOSTILE.encode(), keys="k\x9b\u202e", tags="t\x1b[1m")])
        store.dispatch()
    return tmp_path


COMMANDS = (
    ("config", "show", "-c", "broker.yaml"),
    ("config", "show", "-c", "broker.yaml", "--json"),
    ("config", "show", "-c", "broker.yaml", "--yaml"),
    ("config", "show", "-c", "broker.conf"),
    ("config", "show", "-c", "broker.conf", "--yaml", "--changed"),
    ("config", "check", "broker.yaml"),
    ("config", "check", "broker.conf"),
    ("config", "check", "broken.yaml"),
    ("config", "check", "unknown.yaml"),
    ("config", "import", "broker.conf"),
    ("config", "import", "broker.conf", "-o", "made\x1b.yaml"),
    ("config", "schema", "-c", "broker.yaml"),
    ("plugins", "-c", "broker.yaml"),
    ("run", "-c", "broken.yaml"),
    ("bench", "report", "a.json", "b.json"),
    ("bench", "report", "a.json", "b.json", "--json"),
    ("pipeline", "run", "pipeline.yaml", "--dry-run"),
    ("store", "verify", "store"),
    ("store", "cat", "store"),
    ("store", "explain", "store", "--key", "Orders", "k\x9b\u202e"),
    ("store", "explain", "store", "--queue", "Orders/0/0"),
    ("store", "explain", "store", "--queue", "Orders/0/0", "--json"),
    ("store", "explain", "store", "--position", "0"),
    ("store", "explain", "store"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_control_characters_in_files_are_escaped_in_output(
    cli: RunCommand, folder: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    outcome = cli(*words)
    assert outcome.out or outcome.err
    assert "Traceback" not in outcome.err
    assert not STEERS.search(outcome.out)
    assert not STEERS.search(outcome.err)


def test_escaped_yaml_output_loads_as_the_same_configuration(cli: RunCommand, folder: Path) -> None:
    """What is escaped for the terminal is the same text for who reads the YAML."""
    shown, imported = folder / "shown.yaml", folder / "imported.yaml"
    shown.write_text(cli("config", "show", "-c", folder / "broker.yaml", "--yaml").out)
    before, after = (flintmq.load_config(file, (), {}) for file in (folder / "broker.yaml", shown))
    assert str(before.config.store.path) == str(after.config.store.path) == TURNED
    words = [loaded.sections["acme"].entries["words"] for loaded in (before, after)]
    texts = [item.text for node in words for item in getattr(node, "items", ()) if isinstance(item, RawScalar)]
    assert texts == [HOSTILE, HOSTILE]
    imported.write_text(cli("config", "import", folder / "broker.conf").out)
    assert flintmq.load_config(imported, (), {}).config.broker.cluster == "c\x1b[2J\u202e"


PRINTERS = {"exits.py", "message_output.py", "output.py", "serving.py"}
"""The modules of the command line that print by themselves; each escapes what is not its own."""


def prints() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call that writes to stdout or stderr, with where it is."""
    for package in ("cli", "bench", "doctor", "supervisor"):
        for path in (ROOT / "programs" / package).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                    "print",
                    "click.echo",
                    "sys.stdout.write",
                    "sys.stderr.write",
                    "sys.stdout.buffer.write",
                }:
                    yield f"{package}/{path.name}:{node.lineno}", node


def test_only_the_output_modules_and_the_store_commands_write_directly_to_the_terminal() -> None:
    """A ``print`` of a command shows text of others as it is; ``print_line`` and its like escape it."""
    found = [where for where, _node in prints() if where.partition("/")[2].partition(":")[0] not in PRINTERS]
    assert [where.partition(":")[0] for where in found] == ["cli/store.py"], (
        f"{found}: print what is not a constant by functions of programs/cli/output.py"
    )
