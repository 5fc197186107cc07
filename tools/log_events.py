"""Finds every call that writes a log line, with the line's id, text, level and fields, for docs/log-events.md and its test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
from sources import module_name, parsed

LEVELS: Final = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "warn": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
    "critical": "CRITICAL",
    "fatal": "CRITICAL",
    "log": "WARNING, ERROR",
}
"""The levels of log lines, keyed by the method that writes the line."""
_MAKERS: Final = ("getLogger", "event_log", "client_log")
_EVENT: Final = re.compile(r"[a-z][a-z_]*\.[a-z][a-z_]*")
_NAME: Final = re.compile(r"%\((\w+)\)")
_PLACE: Final = re.compile(r"%(?:\((\w+)\))?[-+ #0-9.]*([a-zA-Z%])")
"""Pattern of a placeholder for a value in the text of a log line."""


@attrs.frozen(order=True)
class Line:
    """A call in the code that writes a log line."""

    event: str
    """The id of the log line; empty if the code does not contain the id as a literal."""
    text: str
    """The text of the log line with placeholders for its fields; empty if the code does not contain the text as a literal."""
    level: str
    fields: tuple[str, ...]
    """The names of the log line's fields, in the order in which the fields occur in the line's text."""
    place: str
    """Place of the call in the code, as ``file:line``."""
    faults: tuple[str, ...] = ()
    """Sentences about what is wrong with the call of the logger."""

    @property
    def unnamed(self) -> str:
        """The text of the log line with placeholders like ``%s``, which are filled with the fields in their order."""
        return _NAME.sub("%", self.text)


def lines(root: Path) -> Iterator[Line]:
    """Yield every call in the code of a checkout that writes a log line."""
    for name, module in parsed(root, without=("core/log_events.py",), holding=[f".{method}(" for method in LEVELS]):
        yield from lines_of(module, name)


def loggers(root: Path) -> set[tuple[str, str]]:
    """Return the names of all loggers that the package uses, each with the name of the function that returns the logger."""
    return {
        (maker, made)
        for name, module in parsed(root, without=("core/log_events.py",), holding=_MAKERS)
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and (maker := ast.unparse(call.func).rpartition(".")[2]) in _MAKERS and call.args
        if (made := module_name(name) if ast.unparse(call.args[0]) == "__name__" else _literal(call.args[0]))
    }


def lines_of(module: ast.Module, name: str) -> Iterator[Line]:
    """Yield the calls in a module that write a log line."""
    nodes = list(ast.walk(module))
    logs = {
        ast.unparse(target)
        for node in nodes
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func).rpartition(".")[2] in _MAKERS
        for target in (node.targets if isinstance(node, ast.Assign) else (node.target,))
    }
    for call in nodes:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS:
            receiver = ast.unparse(call.func.value)
            if receiver in logs or "log" in receiver.lower():
                yield _line(call, call.func.attr, f"{name}:{call.lineno}")


def _line(call: ast.Call, method: str, place: str) -> Line:
    event, text, *more = [_literal(one) for one in call.args[method == "log" :]] + ["", ""]
    keywords = [one.arg or "**" for one in call.keywords if one.arg != "exc_info"]
    named = tuple(dict.fromkeys(_NAME.findall(text)))
    rules = {
        "its id is not a literal, such as topic.created": not _EVENT.fullmatch(event),
        "its text is not a literal": not text,
        "values are not keywords": len(more) > 2,
        "its text has places without a name": any(not name and kind != "%" for name, kind in _PLACE.findall(text)),
        "its keywords are not the names in its text, in their order": keywords != list(named),
    }
    faults = tuple(rule for rule, is_broken in rules.items() if is_broken)
    return Line(event, text, LEVELS[method], named, place, faults)


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
