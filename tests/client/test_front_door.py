"""One table says what the client library has: ``flintmq.client`` and ``flintmq`` give out the same objects, and no other."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest

import flintmq
import flintmq.client
from flintmq.client import sync
from flintmq.remoting import client as library
from flintmq.remoting.client.instance import ClientInstance, InstanceOptions
from flintmq.remoting.client.producer import Producer, ProducerOptions
from flintmq.remoting.client.transport import RemotingClient, RemotingOptions

ROOT = Path(__file__).parents[2]
TYPED = ROOT / "tests" / "support" / "typed_client.py"
LOOP_ONLY = {"ClientInstance", "RemotingClient"}


@pytest.mark.parametrize("name", sorted(library.__all__))
def test_each_public_name_is_the_same_object_in_every_module_that_exports_it(name: str) -> None:
    """Two classes of one name would make ``isinstance`` and ``except`` lie."""
    assert getattr(flintmq.client, name) is getattr(library, name) is getattr(flintmq, name)


def test_public_client_names_are_listed_in_dunder_all() -> None:
    """For ``from flintmq.client import *``, for completion in an editor, and for nobody to rely on anything else."""
    assert flintmq.client.__all__ == library.__all__ == sorted(library.__all__)
    assert set(library.__all__) == set(library._HOME_OF)
    assert set(library.__all__) < set(flintmq.__all__)
    assert set(flintmq.__all__) <= set(dir(flintmq))
    assert set(library.__all__) <= set(dir(flintmq.client))
    for module in (flintmq, flintmq.client, library):
        with pytest.raises(AttributeError, match="no attribute 'Prodcuer'"):
            module.Prodcuer  # noqa: B018


def test_importing_the_producer_class_loads_neither_the_consumer_nor_the_store_nor_numpy() -> None:
    """A producer loads no consumer, and neither a store nor numpy: a front door that loads the house is not one."""
    script = (
        "import sys; from flintmq.client import Message; from flintmq.client import Producer\n"
        "unwanted = ('flintmq.remoting.client.consumer', 'flintmq.core.store', 'flintmq.plugins', 'numpy')\n"
        "print([name for name in unwanted if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_synchronous_module_exports_every_client_name_that_needs_no_event_loop() -> None:
    """A star import takes neither asyncio nor what lives on a loop."""
    assert set(sync.__all__) == set(library.__all__) - LOOP_ONLY
    assert all(hasattr(sync, name) for name in sync.__all__)


def test_the_public_names_of_flintmq_are_those_listed_in_the_compatibility_documentation() -> None:
    """Users rely on what docs/compatibility.md names: a name that is missing there could go without a word."""
    page = (ROOT / "docs" / "compatibility.md").read_text()
    rows = {
        first: set(re.findall(r"`(\w+)`", rest)) for first, rest in re.findall(r"^\| (.+?) \| (.+) \|$", page, re.M)
    }
    assert rows["`flintmq.client`"] == set(library.__all__)
    assert rows["`flintmq`"] == set(flintmq.__all__) - set(library.__all__)
    assert rows["`flintmq.client.sync`"] == LOOP_ONLY
    kits = {path.stem for path in (ROOT / "testing").glob("*_kit.py")}
    assert kits < rows["`flintmq.testing`"] < {path.stem for path in (ROOT / "testing").glob("*.py")}
    plugins = (ROOT / "testing").glob("*.py")
    fixtures = {name for path in plugins for name in re.findall(r"^def (flintmq_\w+)", path.read_text(), re.M)}
    assert rows["fixtures of pytest"] == fixtures
    for module in re.findall(r"^\| `(flintmq[\w.]*)` \|", page, re.M):
        importlib.import_module(module)


# --- types ---


@pytest.mark.parametrize("door", ["aio", "sync"])
def test_every_public_client_name_is_type_checked(door: str) -> None:
    """tools/typecheck.sh has mypy and pyright look at a file of calls; what does not stand there is looked at by nobody."""
    used = set(re.findall(rf"\b{door}\.(\w+)", TYPED.read_text()))
    assert set((sync if door == "sync" else library).__all__) <= used


def test_every_public_name_of_the_flintmq_package_is_type_checked() -> None:
    """Its names beside the client library's."""
    used = set(re.findall(r"\bflintmq\.(\w+)", TYPED.read_text()))
    assert set(flintmq.__all__) - set(library.__all__) <= used


@pytest.mark.parametrize("name", sorted(library.__all__))
def test_public_signatures_do_not_use_typing_any(name: str) -> None:
    """``Any`` takes a mistake without a word, and an editor has nothing to complete."""
    one: Any = getattr(library, name)
    functions = (
        [one] if inspect.isfunction(one) else [m for n, m in vars(one).items() if n[0] != "_" or n == "__init__"]
    )
    for function in functions:
        said = getattr(function.fget if isinstance(function, property) else function, "__annotations__", {})
        assert not [part for part, annotation in said.items() if re.search(r"\bAny\b(?!,)", str(annotation))], function


@pytest.mark.parametrize(
    ("options", "handed_on", "taken_by"),
    [
        (RemotingOptions, frozenset(), RemotingClient),
        (InstanceOptions, RemotingOptions.__annotations__.keys(), ClientInstance),
        (ProducerOptions, InstanceOptions.__annotations__.keys(), Producer),
    ],
)
def test_every_keyword_parameter_of_a_client_class_is_declared_in_the_typed_dict_of_its_options(
    options: Any, handed_on: Set[str], taken_by: type
) -> None:
    """One that is added to a constructor and not to its options is refused by type checkers, where others hand it on."""
    parameters = inspect.signature(taken_by).parameters.values()
    taken = {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert options.__annotations__.keys() - handed_on == taken
