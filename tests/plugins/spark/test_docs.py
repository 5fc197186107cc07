"""The page of the data source names every option and column as the tables in the code do."""

from __future__ import annotations

from pathlib import Path

import flintmq
from flintmq.plugins.spark.options import READ_OPTIONS
from flintmq.plugins.spark.schema import COLUMNS

PAGE = Path(flintmq.__file__).parent / "docs" / "spark-reference.md"
ONLY = {None: "", "store": "files", "broker": "wire"}


def rows_of(heading: str) -> list[str]:
    """The rows of the first table below a heading."""
    below = PAGE.read_text("utf-8").split(f"## {heading}\n", 1)[1].splitlines()
    first = next(number for number, line in enumerate(below) if line.startswith("|---"))
    rows = []
    for line in below[first + 1 :]:
        if not line.startswith("|"):
            break
        rows.append(line)
    return rows


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def test_the_documentation_lists_every_option_of_the_spark_source() -> None:
    """Name, aliases, default, transport and meaning, in order."""
    assert rows_of("Options") == [
        f"| {', '.join(f'`{name}`' for name in (one.name, *one.aliases))} | {cell(one.default)} | {ONLY[one.only]} | "
        f"{cell(one.meaning)} |"
        for one in READ_OPTIONS.values()
    ]


def test_the_documentation_lists_every_column_of_the_spark_source() -> None:
    """Name, type and meaning, in order."""
    assert rows_of("Columns") == [f"| `{one.name}` | {one.type} | {cell(one.meaning)} |" for one in COLUMNS]
