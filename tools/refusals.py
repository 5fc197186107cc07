"""Finds every refusal in the code of servers, with its reason id, code, message and key, for docs/refusals.md and its test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs
from sources import parsed

SERVING = ("core", "remoting", "plugins", "programs", "testing", "dispatchers", "flush")
NOT_SERVING = ("remoting/client/", "testing/", "programs/cli/", "programs/bench/", "plugins/spark/")


@attrs.frozen(order=True)
class Refusal:
    """One place in the code that refuses a request."""

    reason: str | None
    """Reason of the refusal; None if the code does not contain the reason as a literal."""
    code: str
    message: str
    key: str
    place: str
    """Place of the code that refuses, as ``file:line``."""


Wrapper = tuple[ast.FunctionDef, ast.Call]
"""A function in FlintMQ's code that refuses requests and has a parameter ``reason``, and the call ``RefusedError(...)`` in this
function. The call makes the exception with which a request is refused."""


def refusals(root: Path) -> list[Refusal]:
    """Return every refusal in the code of a checkout, sorted by reason. Each call of a refusing function with a parameter
    ``reason`` counts as a refusal."""
    refusing = dict(parsed(root, SERVING, NOT_SERVING, holding=["RefusedError("]))
    of_module = {name: _wrappers(module) for name, module in refusing.items()}
    public = {name: one for found in of_module.values() for name, one in found.items() if not name.startswith("_")}
    modules = dict(parsed(root, SERVING, NOT_SERVING, holding=[f"{name}(" for name in public])) | refusing
    found = [
        one for name, module in modules.items() for one in _of_module(module, name, public | of_module.get(name, {}))
    ]
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
            yield _refusal(call, _assigned(module, call.lineno), place)
        elif _called(call) in wrappers:
            function, refused = wrappers[_called(call)]
            here = _assigned(module, call.lineno)
            bound = {name: here.get(getattr(value, "id", ""), value) for name, value in _bound(call, function).items()}
            yield _refusal(refused, _assigned(function, refused.lineno) | bound, place)


def _assigned(scope: ast.AST, before_line: int) -> dict[str, ast.expr]:
    """Return the values that variables have at a line of the code, keyed by name. The value of a variable is that of the
    nearest assignment above the line, in the innermost function around the line."""
    around = [
        function
        for function in ast.walk(scope)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and function.lineno <= before_line <= (function.end_lineno or 0)
    ]
    found: dict[str, tuple[int, ast.expr]] = {}
    for node in ast.walk(around[-1]) if around else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and node.lineno <= before_line:
            target = node.targets[0]
            if isinstance(target, ast.Name) and found.get(target.id, (0,))[0] < node.lineno:
                found[target.id] = (node.lineno, node.value)
    return {name: value for name, (_, value) in found.items()}


def _refusal(call: ast.Call, names: dict[str, ast.expr], place: str) -> Refusal:
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    code, message = (names.get(getattr(value, "id", ""), value) for value in call.args[:2])
    reason, key = (given.get(part) for part in ("reason", "key"))
    reason, key = (names.get(getattr(value, "id", ""), value) if value is not None else None for value in (reason, key))
    return Refusal(
        reason.value if isinstance(reason, ast.Constant) and isinstance(reason.value, str) else None,
        ast.unparse(code).replace("ResponseCode.", ""),
        _text(message, names),
        _text(key, names) if key is not None else "",
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


def _text(node: ast.expr, names: dict[str, ast.expr]) -> str:
    """Return the text that an expression makes, with ``…`` in place of each inserted value that is not known."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name) and node.id in names:
        known = names[node.id]
        return _text(known, {name: value for name, value in names.items() if name != node.id})
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, names) for part in node.values)
    return _text(node.value, names) if isinstance(node, ast.FormattedValue) else "…"
