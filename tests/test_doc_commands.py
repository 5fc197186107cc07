"""Commands and tools that pages name exist, and take the options that stand with them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

import flintmq
from flintmq.programs.cli.main import app

ROOT: Final = Path(str(flintmq.__file__)).resolve().parent
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")])
CODE: Final = re.compile(r"^```.*?^```|`([^`\n]+)`", re.M | re.S)


def commands(page: Path) -> Iterator[str]:
    """Yield each line of a page's code, and each text in backticks, that begins with a command."""
    for found in CODE.finditer(page.read_text("utf-8")):
        for line in [found[1]] if found[1] else found[0].splitlines():
            text = re.sub(r"(?<= )#.*", "", line.strip().removeprefix("$ ")).strip()
            text = re.sub(r"^(?:[A-Z_]+=\S+ |python3? |\.venv/bin/)+", "", text)
            if re.match(r"flintmq [a-z]|(?:tools|tests/benchmarks)/\w", text):
                yield text


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that words name, and the words behind its name. Raises ``KeyError``."""
    command: click.Command = app
    context = click.Context(app, info_name="flintmq")
    rest = words[1:]
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
        inner = command.get_command(context, rest[0])
        if inner is None:
            raise KeyError(rest[0])
        command, rest = inner, rest[1:]
    return command, rest


def options_of(words: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if re.fullmatch(r"-[a-z]|--[a-z][a-z-]*(=.*)?", word)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_a_documentation_page_exists_with_its_options(page: Path) -> None:
    """A reader types them; an option that was renamed is found on every page that names it."""
    wrong = []
    of_plugin = {
        name
        for path in page.parent.glob("src/*/plugin.py")
        for name in re.findall(r'register\("([a-z-]+)"', path.read_text())
    }
    for text in commands(page):
        try:
            words = shlex.split(text)
        except ValueError:  # the beginning of a longer text
            words = text.split()
        words = words[: next((at for at, word in enumerate(words) if word in ("|", "&&", "&", ">", ";")), len(words))]
        if words[0] == "flintmq" and words[1] not in of_plugin:
            try:
                command, rest = resolved(words)
            except KeyError as error:
                wrong.append(f"{text}: no command {error}")
                continue
            known = {opt for one in command.params for opt in (*one.opts, *one.secondary_opts)} | {
                "--help",
                "--version",
            }
            wrong += [f"{text}: {option}" for option in options_of(rest) if option not in known]
        elif words[0] != "flintmq" and not (ROOT / words[0]).is_file():
            wrong.append(f"{text}: no such file")
        elif words[0] != "flintmq":
            source = (ROOT / words[0]).read_text("utf-8")
            if words[0].endswith(".sh"):  # hands its options on
                source += "".join(path.read_text("utf-8") for path in (ROOT / "tools").glob("bench_*.py"))
            wrong += [f"{text}: {option}" for option in options_of(words[1:]) if f'"{option}"' not in source]
    assert wrong == []


def test_the_check_of_documented_commands_finds_a_wrong_command(tmp_path: Path) -> None:
    """The check of the pages would prove nothing if it accepted any command."""
    page = tmp_path / "page.md"
    page.write_text(
        "`flintmq stauts`\n```console\n$ flintmq status --nowhere  # a remark\n$ python tools/none.py\n```\n"
    )
    assert list(commands(page)) == ["flintmq stauts", "flintmq status --nowhere", "tools/none.py"]
    with pytest.raises(KeyError):
        resolved(["flintmq", "stauts"])
    assert options_of(["--nowhere", "-n", "--a=b", "-1", "x"]) == ["--nowhere", "-n", "--a"]
