"""Prints tables for people and JSON for programs. Results go to stdout, warnings and errors to stderr.

Names, properties and bodies come from clients, and may contain characters that control a terminal. Therefore everything that is
printed here goes through :func:`safe`, which escapes these characters. JSON contains them as ``\\uXXXX``. Only ``--raw`` prints
bodies unchanged (:mod:`.message_output`).
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

from flintmq.core.client_log import UNPRINTABLE, escape_all

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn, TaskID
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 160
WIDTH_IN_PIPE_MAX = 1_000
"""Maximum width, in columns, of a table that is printed to a pipe. A wider table is printed with one line per value."""
TEXT_MIN_CHARS = 24
"""Minimum width of a table's column whose text is broken into lines."""

CELL_MAX_CHARS = 8_000
"""Maximum number of characters of a value in a table, because breaking a longer value into lines takes seconds."""
LINE_MAX_CHARS = 64 * 1024


def print_json(value: object) -> None:
    """Print one JSON document on one line, and flush the output."""
    print(json_text(value), flush=True)


def json_text(value: object) -> str:
    """Return a value as JSON that cannot control a terminal and that stdout's encoding can represent."""
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
    """Return text on one line, with characters escaped that control a terminal or change the direction of writing.

    Text beyond ``max_chars`` is replaced by a remark.
    """
    plain = str(text)
    cut = escape_all(plain[:max_chars])
    return cut if len(plain) <= max_chars else f"{cut}… ({len(plain):,} characters)"


def print_line(text: object, *, file: TextIO | None = None) -> None:
    """Print text on one line (see :func:`safe`) and flush it. On a terminal that is too narrow, the text is broken between
    words."""
    line = safe(text, LINE_MAX_CHARS)
    width = terminal_width(stderr=file is sys.stderr)
    if width is not None and width < len(line) <= CELL_MAX_CHARS:
        indent = " " * (len(line) - len(line.lstrip()))
        line = "\n".join(_wrapped(line, width, indent))
    print(line, file=file, flush=True)


def print_text(text: str, *, file: TextIO | None = None) -> None:
    """Print text of any length with its line breaks, otherwise escaped like in :func:`safe`, and flush it."""
    print(escape_all(text, keep="\n"), file=file, end="" if text.endswith("\n") else "\n", flush=True)


def console(*, stderr: bool = False) -> Console:
    """Return a console of the library Rich, which prints tables. Texts are not interpreted as markup. If the output is not a
    terminal, the lines are wide."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(stderr=stderr, width=width, markup=False, highlight=False)


def terminal_width(*, stderr: bool = False) -> int | None:
    """Return the terminal's number of columns; None without a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return console(stderr=stderr).width if stream.isatty() else None


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", stderr: bool = False
) -> None:
    """Print a table. Columns whose name ends with ``#`` hold numbers. Markup in texts is not interpreted.

    Words are never cut. If a terminal is too narrow, only the longest column is broken into lines, between its words. If that
    is not enough, each row is a card with a line per value. In a pipe, lines are as long as needed.
    """
    from rich.console import Console

    cells = [[_cell(value) for value in row] for row in rows]
    stream, terminal = sys.stderr if stderr else sys.stdout, terminal_width(stderr=stderr)
    for line in _wrapped(safe(title), terminal or LINE_MAX_CHARS):
        print(line, file=stream)
    headings = [column.removesuffix("#") for column in columns]
    widths = [max(map(_width, column)) for column in zip(headings, *cells, strict=True)]
    natural = _natural_width(_table(columns, cells, None))
    room = terminal or max(WIDTH_WITHOUT_TERMINAL, min(natural, WIDTH_IN_PIPE_MAX))
    longest = widths.index(max(widths))
    words = (_width(word) for row in [headings, *cells] for word in row[longest].split())
    least = max(TEXT_MIN_CHARS, *words)
    if natural > room and natural - widths[longest] + least > room:
        _print_cards(headings, cells, room, stream)
        return
    table = _table(columns, cells, None if natural <= room else longest)
    if terminal is not None:
        Console(file=stream, width=room, markup=False, highlight=False).print(table)
        return
    plain = io.StringIO()
    Console(file=plain, width=room, markup=False, highlight=False).print(table)
    print("\n".join(line.rstrip() for line in plain.getvalue().splitlines()), file=stream)


def _natural_width(table: Table) -> int:
    """Return the number of columns that a table needs if no cell is broken into lines."""
    from rich.console import Console
    from rich.measure import Measurement

    wide = Console(width=1_000_000)
    return Measurement.get(wide, wide.options, table).maximum


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return text as lines that are broken between words; all but the first are indented. A word longer than a line stays
    whole."""
    import textwrap

    if not text:
        return []
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]], broken: int | None) -> Table:
    """Return a table in which one column, or none, may be broken into lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if column.endswith("#") else "left"
        table.add_column(column.removesuffix("#"), justify=justify, no_wrap=number != broken)
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _print_cards(headings: Sequence[str], rows: Iterable[Sequence[str]], width: int, stream: TextIO) -> None:
    """Print each row as a card: its first value, and below it a line for each further value that is not empty."""
    label = max(map(len, headings)) + 4
    for row in rows:
        print(f"\n{row[0]}", file=stream)
        for heading, value in zip(headings[1:], row[1:], strict=True):
            for number, line in enumerate(_wrapped(value, max(width - label, TEXT_MIN_CHARS))):
                print(f"{'' if number else f'  {heading}':{label}}{line}", file=stream)
    stream.flush()


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def print_rows(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], *, title: str = "", stderr: bool = False
) -> None:
    """Print the rows of a ``--json`` result as a table.

    Args:
        rows: the values of each row, keyed by name.
        columns: the contents of each column, keyed by the column's heading. The contents are the name of a value in the rows,
            or a text with such names in braces.
        title: the line above the table.
        stderr: whether to print to stderr, for example a table before a question to the user.
    """
    cells = ([what.format_map(row) if "{" in what else row[what] for what in columns.values()] for row in rows)
    print_table(tuple(columns), cells, title=title, stderr=stderr)


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return safe(", ".join(value) if isinstance(value, list) else value)


def lag_text(lag: int | None) -> str:
    """Return a lag in messages for people; ``-`` if the lag is not known."""
    return "-" if lag is None else f"{lag:,}"


def print_done(text: str, as_json: bool, **done: object) -> None:
    """Print a command's result as a sentence or as JSON."""
    if as_json:
        print_json(done)
    else:
        print_line(text)


def span_text(seconds: int) -> str:
    """Return a duration in its two largest units: ``12s``, ``7m``, ``3h 5m``, ``2d 4h``."""
    if seconds < 60:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if minutes < 60:
        return f"{minutes}m"
    return f"{hours}h {minutes % 60}m" if hours < 24 else f"{days}d {hours % 24}h"


def when(timestamp_ms: int) -> str:
    """Return a time in milliseconds since 1970 as local time for people; ``-`` for 0."""
    return f"{datetime.fromtimestamp(timestamp_ms / 1000):%Y-%m-%d %H:%M:%S}" if timestamp_ms > 0 else "-"


@contextmanager
def progress_bars(done_column: ProgressColumn) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for each step on stderr, if stderr is a terminal.

    Yields a function of a step's name, the amount done and the total. ``done_column`` shows the amount.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), done_column, TimeRemainingColumn())
    target = console(stderr=True)
    with Progress(*columns, console=target, disable=not target.is_terminal, transient=True) as bar:
        steps: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in steps:
                steps[what] = bar.add_task(safe(what), total=max(total, 1))
            bar.update(steps[what], completed=done)

        yield report


def print_found(found: dict[str, Any], as_json: bool) -> None:
    """Print a command's result as JSON, or for people as indented lines."""
    if as_json:
        print_json(found)
        return
    for line in _lines(found):
        print_line(line)


FOREIGN: Final = frozenset({"properties", "topics"})
"""Names of the members of a result whose value is a mapping with keys that users have chosen, such as topic names. These keys
are printed unchanged."""
WORDS: Final = {"told_by": "where it ends was told by"}
VALUES: Final = {
    ("told_by", "queues"): "the queues",
    ("told_by", "feed"): "the feed",
    ("told_by", "walk"): "a walk through the log",
}
_NAME: Final = re.compile(r"[a-z]+(_[a-z]+)*")


def _heading(key: str) -> str:
    """Return the name of a JSON member as words for people."""
    key = key.removesuffix("_ms") if key.endswith(("_at_ms", "timestamp_ms")) else key
    return WORDS.get(key) or (key.replace("_", " ") if _NAME.fullmatch(key) else key)


def _value(key: str, value: Any) -> str:
    """Return the value of a JSON member for people, with yes and no for booleans, and local times."""
    if value in (None, [], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and key.endswith(("_at_ms", "timestamp_ms")):
        return when(value)
    return VALUES.get((key, value)) or str(value) if isinstance(value, str) else str(value)


def _lines(value: Any, indent: str = "", *, is_foreign: bool = False) -> Iterator[str]:
    """Yield a command's nested result as indented lines."""
    if isinstance(value, dict):
        for key, member in value.items():
            name = str(key) if is_foreign else _heading(str(key))
            if isinstance(member, dict | list) and member:
                yield f"{indent}{name}:"
                yield from _lines(member, indent + "  ", is_foreign=key in FOREIGN)
            else:
                yield f"{indent}{name}: {str(member) if is_foreign else _value(str(key), member)}"
    elif isinstance(value, list):
        for member in value:
            if isinstance(member, dict | list):
                yield f"{indent}-"
                yield from _lines(member, indent + "  ")
            else:
                yield f"{indent}- {member}"
