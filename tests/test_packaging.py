"""The repository's root is the package, so what is installed is a list by hand: these hold the list against the tree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = ("client", "config", "core", "dispatchers", "flush", "plugins", "programs", "protocol", "remoting", "testing")


def test_pyproject_toml_requires_exactly_the_expected_packages_and_makes_uvloop_optional() -> None:
    """docs/performance.md measures what ``pip install`` leaves: numpy is there, uvloop is not. Nothing imports it at rest
    (tests/programs/cli/test_memory.py)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split(r"[<>=]", requirement)[0] for requirement in project["dependencies"]} == {
        "attrs",
        "click",
        "importlib-metadata",
        "msgspec",
        "numpy",
        "pluggy",
        "pyyaml",
        "rich",
    }
    assert [requirement.partition(">")[0] for requirement in project["optional-dependencies"]["fast"]] == ["uvloop"]


def test_every_subpackage_is_listed_for_installation_in_pyproject_toml() -> None:
    """One that is forgotten in pyproject.toml would be missing from the wheel without a word."""
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {"flintmq"}
    for folder in CODE:
        for init in (ROOT / folder).rglob("__init__.py"):
            is_top_level = init.parent.name == "pyspark_flintmq"  # where Spark looks for data sources
            found.add(init.parent.name if is_top_level else ".".join(("flintmq", *init.parent.relative_to(ROOT).parts)))
    assert listed == found


def test_the_wheel_contains_the_py_typed_file() -> None:
    """Without the file in the wheel every public name is ``Any`` to those who installed it."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "py.typed" in data["flintmq"]
    assert (ROOT / "py.typed").exists()


def test_every_folder_with_modules_has_an_init_py() -> None:
    """A folder without ``__init__.py`` works in a checkout and is missing once installed."""
    for folder in CODE:
        for module in (ROOT / folder).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


def test_the_root_folder_of_the_package_contains_only_init_py_and_main_py() -> None:
    """Every module in the root goes into the wheel as ``flintmq.<name>``."""
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}
