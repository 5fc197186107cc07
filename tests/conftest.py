"""Makes ``import flintmq`` mean this checkout, whatever its folder is called, and adds the ``--slow`` flag."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent


def _register_checkout() -> None:
    """The repository root *is* the package, so its folder's name need not be ``flintmq``."""
    if "flintmq" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "flintmq", ROOT / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["flintmq"] = module
    spec.loader.exec_module(module)


_register_checkout()

# A machine that does other work has no deadlines, and what passed must pass again: chance is for --hypothesis-profile=explore.
hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")
    parser.addoption("--longest", action="store_true", help="and those that repeat a slow one with another variant")
    parser.addoption("--crash-states", type=int, default=6_000, help="how many crash states tests/crash tries")
    parser.addoption(
        "--fault-runs", type=int, default=5, help="how often tests/integration/test_faults.py breaks each thing"
    )
    parser.addoption("--fault-seconds", type=float, default=3.0, help="how long its pauses and cuts last at most")
    parser.addoption("--crash-seed", type=int, default=0, help="with which script tests/crash begins")
    parser.addoption("--fuzz-frames", type=int, default=200_000, help="how many bent frames tests/fuzz sends")
    parser.addoption("--fuzz-seed", type=int, default=1, help="where chance begins in tests/fuzz")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow, longest = config.getoption("--slow"), config.getoption("--longest")
    for item in items:
        if "longest" in item.keywords and not longest:
            item.add_marker(pytest.mark.skip(reason="repeats a long test: run with --longest"))
        elif "slow" in item.keywords and not slow and not longest:
            item.add_marker(pytest.mark.skip(reason="takes long: run with --slow"))
