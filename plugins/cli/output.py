"""What commands print: tables for people, JSON for programs. Results go to stdout, remarks to stderr."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn, TaskID

    from flintmq.remoting.client.message import MessageExt

WIDTH_WITHOUT_TERMINAL = 160


def print_json(value: object) -> None:
    """Print one JSON document on one line, and flush it."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


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
        target.print(Text(title), soft_wrap=True)  # as a title of the table it would be as narrow as its columns
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
    return ", ".join(value) if isinstance(value, list) else str(value)


def lag_text(lag: int | None) -> str:
    """Return a lag in messages for people; ``-`` where it is not known."""
    return "-" if lag is None else f"{lag:,}"


def print_done(text: str, as_json: bool, **done: object) -> None:
    """Print what was done, as a sentence or as JSON."""
    if as_json:
        print_json(done)
    else:
        print(text)


def body_fields(body: bytes) -> dict[str, str]:
    """Return a body as JSON can hold it: ``body`` where it is UTF-8, else ``body_base64``."""
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def message_body_fields(message: MessageExt) -> dict[str, str]:
    """Return a message's body as :func:`body_fields` does; one that cannot be read as stored, with the reason."""
    if not message.body_error:
        return body_fields(message.body)
    return {"body_error": message.body_error, "body_base64": base64.b64encode(message.body).decode()}


def message_json(message: MessageExt) -> dict[str, Any]:
    """Return a message as ``--json`` prints it. Times are milliseconds since 1970."""
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "size_bytes": message.store_size_bytes,
        "properties": dict(message.properties),
        **message_body_fields(message),
    }


def message_text(message: MessageExt) -> str:
    """Return a message on one line, for people."""
    body = message_body_fields(message)
    text = body.get("body") or (f"base64:{body['body_base64']}" if "body_base64" in body else "")
    labels = [f"tags={message.tags}"] if message.tags else []
    labels += [f"keys={' '.join(message.keys)}"] if message.keys else []
    labels += [f"reconsumed={message.reconsume_times}"] if message.reconsume_times else []
    labels += [f"(cannot be read: {message.body_error})"] if message.body_error else []
    place = f"{message.broker_name}:{message.queue_id}:{message.queue_offset}"
    return " ".join([place, message.msg_id, *labels, text])


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
        print(line)


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
