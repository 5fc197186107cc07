"""Finds every refusal in the code that serves: reason id, response code, message, key. For docs/refusals.md and its test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs

SERVING = ("core", "remoting", "plugins", "dispatchers", "flush")
NOT_SERVING = ("remoting/client/", "core/testing/", "plugins/cli/", "plugins/bench/", "plugins/spark/")


@attrs.frozen(order=True)
class Refusal:
    """One place where something is refused."""

    reason: str | None
    """None where it cannot be told from the code alone."""
    code: str
    message: str
    key: str
    place: str
    """``file:line``."""


Wrapper = tuple[ast.FunctionDef, ast.Call]
"""A function that takes the reason as a parameter, and the refusal that it makes."""


def refusals(root: Path) -> list[Refusal]:
    """Every one below a checkout, by reason. What a function with a parameter ``reason`` refuses counts where it is called."""
    modules = {
        path.relative_to(root).as_posix(): ast.parse(path.read_text("utf-8"))
        for folder in SERVING
        for path in sorted((root / folder).rglob("*.py"))
        if not path.relative_to(root).as_posix().startswith(NOT_SERVING)
    }
    of_module = {name: _wrappers(module) for name, module in modules.items()}
    public = {name: one for found in of_module.values() for name, one in found.items() if not name.startswith("_")}
    found = [one for name, module in modules.items() for one in _of_module(module, name, public | of_module[name])]
    return sorted(found, key=lambda one: (one.reason or "", one.place))


def _wrappers(module: ast.Module) -> dict[str, Wrapper]:
    return {
        function.name: (function, call)
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef) and "reason" in _parameters(function)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and _called(call) == "RefusedError"
    }


def _of_module(module: ast.Module, name: str, wrappers: dict[str, Wrapper]) -> Iterator[Refusal]:
    inside = {id(call) for _, call in wrappers.values()}
    for call in ast.walk(module):
        if not isinstance(call, ast.Call):
            continue
        place = f"{name}:{call.lineno}"
        if _called(call) == "RefusedError" and id(call) not in inside:
            yield _refusal(call, {}, place)
        elif _called(call) in wrappers:
            function, refused = wrappers[_called(call)]
            yield _refusal(refused, _bound(call, function), place)


def _refusal(call: ast.Call, bound: dict[str, ast.expr], place: str) -> Refusal:
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    code, message = (bound.get(getattr(value, "id", ""), value) for value in call.args[:2])
    reason, key = (given.get(part) for part in ("reason", "key"))
    reason, key = (bound.get(getattr(value, "id", ""), value) if value is not None else None for value in (reason, key))
    return Refusal(
        reason.value if isinstance(reason, ast.Constant) and isinstance(reason.value, str) else None,
        ast.unparse(code).replace("ResponseCode.", ""),
        _text(message),
        _text(key) if key is not None else "",
        place,
    )


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.args, *function.args.kwonlyargs) if one.arg not in ("self", "cls")]


def _bound(call: ast.Call, function: ast.FunctionDef) -> dict[str, ast.expr]:
    arguments = function.args
    bound = {one.arg: value for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value}
    bound |= {one.arg: value for one, value in zip(arguments.args[::-1], arguments.defaults[::-1], strict=False)}
    bound |= dict(zip(_parameters(function), call.args, strict=False))
    return bound | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _text(node: ast.expr) -> str:
    """A text with what is filled in shown as ``…``."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return "…"
