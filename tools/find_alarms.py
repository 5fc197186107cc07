"""Finds every alarm in the code of the built-in features, with its id and key, for the test of docs/alarms.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs
from sources import parsed

FOLDERS = ("core", "remoting", "plugins", "programs", "dispatchers", "flush")
NOT_SERVING = ("testing/", "programs/scaffold/templates/")


@attrs.frozen(order=True)
class Found:
    """One place in the code that makes an alarm."""

    id: str
    """Id of the alarm; empty if the code does not contain the id as a literal."""
    key: str
    """The setting that the alarm names. It is empty if the alarm names no setting, or if the code does not contain the
    setting's name as a literal."""
    place: str
    """Place of the code that makes the alarm, as ``file:line``."""


def alarms(root: Path) -> list[Found]:
    """Return every place in the code of a checkout that makes an alarm, sorted by the alarm's id."""
    modules = parsed(root, FOLDERS, NOT_SERVING, holding=["Alarm("])
    return sorted(found for name, module in modules for found in _of_module(module, name))


def sections(page: str) -> list[str]:
    """Return the ids of the alarms that have a section in the text of docs/alarms.md, in the order of the sections."""
    heads = (line.removeprefix("### ") for line in page.splitlines() if line.startswith("### "))
    return [head.strip("`") for head in heads]


def _of_module(module: ast.Module, name: str) -> Iterator[Found]:
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Alarm":
            given = dict(
                zip(("id", "level", "subject", "message", "value", "unit", "limit", "key"), call.args, strict=False)
            )
            given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
            yield Found(_text(given.get("id")), _text(given.get("key")), f"{name}:{call.lineno}")


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
