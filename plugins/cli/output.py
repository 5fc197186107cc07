"""What commands print: tables for people, JSON for programs. Results go to stdout, remarks to stderr.

Names, properties and bodies come from anybody. :func:`safe` makes of them what a terminal only shows. Everything that is
printed here goes through it; JSON has such characters as ``\\uXXXX``. ``--raw`` alone prints bodies as they are
(:mod:`.message_output`).
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from flintmq.core.client_log import UNPRINTABLE, escape_all

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn, TaskID

WIDTH_WITHOUT_TERMINAL = 160


CELL_MAX_CHARS = 8_000
"""Of a value in a table: to break longer ones into lines takes seconds."""
LINE_MAX_CHARS = 64 * 1024


def print_json(value: object) -> None:
    """Print one JSON document on one line, and flush it."""
    print(json_text(value), flush=True)


def json_text(value: object) -> str:
    """Return a value as JSON that steers no terminal, and that the encoding of stdout can write."""
    text = json.dumps(value, ensure_ascii=not _is_utf8())
    return UNPRINTABLE.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    return json.dumps(match.group())[1:-1]


def _is_utf8() -> bool:
    try:
        return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    except LookupError:
        return False


def safe(text: object, max_chars: int = CELL_MAX_CHARS) -> str:
    """Return text on one line, in which what steers a terminal or turns the direction of writing is escaped.

    What is behind ``max_chars`` is left out, with a remark.
    """
    plain = str(text)
    cut = escape_all(plain[:max_chars])
    return cut if len(plain) <= max_chars else f"{cut}… ({len(plain):,} characters)"


def print_line(text: object, *, file: TextIO | None = None) -> None:
    """Print text on one line, see :func:`safe`, and flush it."""
    print(safe(text, LINE_MAX_CHARS), file=file, flush=True)


def console(*, stderr: bool = False) -> Console:
    """Return where tables go. Without a terminal lines are wide, and no text is taken for markup."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(stderr=stderr, width=width, markup=False, highlight=False)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", stderr: bool = False
) -> None:
    """Print a table; columns whose name ends with ``#`` hold numbers. What looks like markup is text."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        number = column.endswith("#")
        table.add_column(column.removesuffix("#"), justify="right" if number else "left", no_wrap=number)
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    target = console(stderr=stderr)
    if title:
        target.print(Text(safe(title)), soft_wrap=True)  # as a title of the table it would be as narrow as its columns
    target.print(table)


def print_rows(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], *, title: str = "", stderr: bool = False
) -> None:
    """Print a table of what ``--json`` prints.

    Args:
        rows: the values of each row by name.
        columns: heading → the name of a value, or a text with names of values in braces.
        title: what stands above the table.
        stderr: print it there, as what belongs to a question.
    """
    cells = ([what.format_map(row) if "{" in what else row[what] for what in columns.values()] for row in rows)
    print_table(tuple(columns), cells, title=title, stderr=stderr)


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return safe(", ".join(value) if isinstance(value, list) else value)


def lag_text(lag: int | None) -> str:
    """Return a lag in messages for people; ``-`` where it is not known."""
    return "-" if lag is None else f"{lag:,}"


def print_done(text: str, as_json: bool, **done: object) -> None:
    """Print what was done, as a sentence or as JSON."""
    if as_json:
        print_json(done)
    else:
        print_line(text)


def when(timestamp_ms: int) -> str:
    """Return a time for people, local; ``-`` for none."""
    return f"{datetime.fromtimestamp(timestamp_ms / 1000):%Y-%m-%d %H:%M:%S}" if timestamp_ms > 0 else "-"


@contextmanager
def progress_bars(done_column: ProgressColumn) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for each step on stderr, if stderr is a terminal.

    What is yielded takes a step's name, how much of it is done, and its total. ``done_column`` says how much that is.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), done_column, TimeRemainingColumn())
    target = console(stderr=True)
    with Progress(*columns, console=target, disable=not target.is_terminal, transient=True) as bar:
        steps: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in steps:
                steps[what] = bar.add_task(what, total=max(total, 1))
            bar.update(steps[what], completed=done)

        yield report


def print_found(found: dict[str, Any], as_json: bool) -> None:
    """Print a result as JSON or as indented lines."""
    if as_json:
        print_json(found)
        return
    for line in _lines(found):
        print_line(line)


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    """Yield a nested result as indented lines."""
    if isinstance(value, dict):
        for key, member in value.items():
            if isinstance(member, dict | list) and member:
                yield f"{indent}{key}:"
                yield from _lines(member, indent + "  ")
            else:
                yield f"{indent}{key}: {'none' if member in (None, [], {}) else member}"
    elif isinstance(value, list):
        for member in value:
            if isinstance(member, dict | list):
                yield f"{indent}-"
                yield from _lines(member, indent + "  ")
            else:
                yield f"{indent}- {member}"
