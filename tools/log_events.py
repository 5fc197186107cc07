"""Finds every line that a log gets from the package: level, text, values. For docs/log-events.md and its test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs
from sources import parsed

LEVELS = ("info", "warning", "error", "critical", "exception", "log")
LOGGERS = ("logging.getLogger", "client_log")
"""The functions that return one."""


@attrs.frozen(order=True)
class Line:
    """One call of a logger, at INFO or above."""

    text: str
    """With its places for values; empty where it cannot be told from the code alone."""
    level: str
    values: int | None
    """How many it has; None where it cannot be told."""
    place: str
    """``file:line``."""


def lines(root: Path) -> list[Line]:
    """Return every one below a checkout."""
    return [
        line
        for name, module in parsed(root, holding=[f".{level}(" for level in LEVELS])
        for line in _of_module(module, name)
    ]


def loggers(root: Path) -> set[str]:
    """Return the names of the loggers that there are."""
    return {
        "flintmq." + name.removesuffix(".py").replace("/", ".") if ast.unparse(call.args[0]) == "__name__" else made
        for name, module in parsed(root, holding=LOGGERS)
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in LOGGERS and call.args
        for made in [call.args[0].value if isinstance(call.args[0], ast.Constant) else ""]
        if made or ast.unparse(call.args[0]) == "__name__"
    }


def _of_module(module: ast.Module, name: str) -> Iterator[Line]:
    texts = {
        ast.unparse(node.targets[0]): node.value.value
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for call in ast.walk(module):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in LEVELS:
            continue
        if "log" not in ast.unparse(call.func.value).lower().rpartition(".")[2]:
            continue
        level = call.func.attr
        message, *values = call.args[1:] if level == "log" else call.args
        written = message.value if isinstance(message, ast.Constant) else texts.get(ast.unparse(message), "")
        yield Line(
            str(written),
            {"exception": "ERROR", "log": "WARNING, ERROR"}.get(level, level.upper()),
            None if any(isinstance(value, ast.Starred) for value in values) else len(values),
            f"{name}:{call.lineno}",
        )
