"""What plugins may use of a broker stays small, and nobody assigns to it."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest

import flintmq
from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.log_copy import LogCopy, MasterTables
from flintmq.core.broker.log_files import LogFiles
from flintmq.core.broker.state import BrokerState

ROOT: Final = Path(__file__).parents[3]
MEMBERS_MAX: Final = 20
NAMES_MAX: Final = 110
NAMES_OF_ONE_MAX: Final = 20
PARTS_MAX: Final[dict[type, int]] = {LogCopy: 10, LogFiles: 13, MasterTables: 5}
"""Names of the privileged parts; they may only shrink."""
OUTSIDE: Final = ("plugins", "dispatchers", "remoting/processors", "examples")
"""Where code is that is given the api. The assembly is not: it is the broker."""
PROGRAMS: Final = ("bench", "broker", "cli", "cluster_view", "console", "testing", "top")
API_NAMES: Final = {"api", "_api", "broker", "_broker", "state", "_state"}


def public(of: object) -> list[str]:
    return [name for name in dir(of) if not name.startswith("_")]


def reachable(api: BrokerApi) -> dict[str, int]:
    """How many names each member leads to; a method is one."""
    methods = {name for name in public(BrokerApi) if inspect.isfunction(inspect.getattr_static(BrokerApi, name))}
    return {name: 1 if name in methods else len(public(getattr(api, name))) for name in public(BrokerApi)}


def test_the_number_of_public_members_of_the_broker_api_does_not_exceed_a_fixed_limit(tmp_path: Path) -> None:
    """The test counts at a running broker, so that no member hides behind a protocol."""

    async def live() -> dict[str, int]:
        config = flintmq.load_config(None, [f"store.path={tmp_path}", "listen.enable=false"], {})
        async with flintmq.Broker(config) as broker:
            for part, count in PARTS_MAX.items():
                assert len(public(broker.api.part(part))) <= count, part
            return reachable(broker.api)

    found = asyncio.run(live())
    assert len(found) <= MEMBERS_MAX, sorted(found)
    assert sum(found.values()) <= NAMES_MAX, found
    assert max(found.values()) <= NAMES_OF_ONE_MAX, {name: count for name, count in found.items() if count > 20}


def test_every_member_of_the_broker_api_is_documented() -> None:
    """In a docstring, or in a string below an attribute."""
    (tree,) = (
        node
        for node in ast.parse(inspect.getsource(inspect.getmodule(BrokerApi))).body  # type: ignore[arg-type]
        if isinstance(node, ast.ClassDef) and node.name == "BrokerApi"
    )
    methods = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    explained = {name for name, node in methods.items() if ast.get_docstring(node)}
    for first, second in zip(methods["__init__"].body, methods["__init__"].body[1:], strict=False):
        if (
            isinstance(first, ast.AnnAssign)
            and isinstance(first.target, ast.Attribute)
            and isinstance(second, ast.Expr)
        ):
            explained.add(first.target.attr)
    assert set(public(BrokerApi)) <= explained


def test_the_broker_api_does_not_expose_the_broker_state(tmp_path: Path) -> None:
    """Features must use verbs of the API, which say what they do, and not the tables behind them."""

    async def live() -> None:
        config = flintmq.load_config(None, [f"store.path={tmp_path}", "listen.enable=false"], {})
        async with flintmq.Broker(config) as broker:
            with pytest.raises(
                LookupError, match="the broker has no service, dispatcher or other component of type BrokerState"
            ):
                broker.api.part(BrokerState)

    asyncio.run(live())


@attrs.frozen
class Assigned:
    """A statement that assigns to something that the api hands out."""

    path: str
    line: int
    text: str


def assignments(source: str, path: str = "") -> Iterator[Assigned]:
    """Yield what assigns to the api or to a member of it."""
    for node in ast.walk(ast.parse(source)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) else ():
            names = ast.unparse(target).split(".")
            if len(names) > 1 and API_NAMES & set(names[:-1]):
                yield Assigned(path, node.lineno, ast.unparse(node))


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("broker.runtime_info = info", 1),
        ("self._api.stats.figures = Figures()", 1),
        ("api.stats.put_failed += 1", 1),
        ("api.x: int = 3", 1),
        ("self._api = api", 0),
        ("found = api.topics.select('T')", 0),
    ],
)
def test_the_source_code_check_finds_each_assignment_to_an_attribute_of_the_broker(source: str, count: int) -> None:
    assert len([*assignments(source)]) == count


def is_outside(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return "tests" not in parts and not (parts[0] == "plugins" and parts[1] in PROGRAMS)


def test_no_module_assigns_to_attributes_of_the_broker() -> None:
    """A feature that changes the broker asks for it by a method, which says what it does."""
    found = [
        one
        for folder in OUTSIDE
        for path in sorted((ROOT / folder).rglob("*.py"))
        if is_outside(path)
        for one in assignments(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    ]
    assert not found, found
