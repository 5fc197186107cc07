"""Make ``import flintmq`` mean this checkout, whatever its folder is called, and add ``--slow`` and its like."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent


def _register_checkout() -> None:
    """Import the repository's root as the package ``flintmq``, though an installed one may have brought its fixtures."""
    found = sys.modules.get("flintmq")
    if found is not None and found.__file__ and Path(found.__file__).resolve().parent == ROOT:
        return
    for name in [name for name in sys.modules if name.partition(".")[0] == "flintmq"]:
        del sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        "flintmq", ROOT / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["flintmq"] = module
    spec.loader.exec_module(module)


_register_checkout()

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC  # noqa: E402
from flintmq.dispatchers.consume_queue.delay_times import delay_tags_codes  # noqa: E402
from flintmq.testing.store import TAGS_CODES  # noqa: E402
from flintmq.tests.support.effort import ALL_EXAMPLES, SAMPLE_EXAMPLES  # noqa: E402

TAGS_CODES[SCHEDULE_TOPIC] = delay_tags_codes

# A machine that does other work has no deadlines, and what passed must pass again: chance is for --hypothesis-profile=explore.
hypothesis.settings.register_profile("sample", deadline=None, derandomize=True, max_examples=SAMPLE_EXAMPLES)
hypothesis.settings.register_profile("whole", deadline=None, derandomize=True, max_examples=ALL_EXAMPLES)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=ALL_EXAMPLES)

SAMPLED = {"crash_states", "fuzz_frames", "effort"}
"""Fixtures by which a test learns how many cases it is to try."""


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command of the program, which some tests run in their own process, sets up logging: no other test may notice."""
    loggers = [logging.getLogger(name) for name in ("flintmq", "asyncio")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("flintmq") and isinstance(logger, logging.Logger):
            for gate in logger.filters:  # a line of one kind comes 20 times a second at most: other tests' do not count
                getattr(gate, "_seen", {}).clear()
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    """A command that serves ignores signals after its end. Processes that later tests start would inherit that."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")
    parser.addoption("--longest", action="store_true", help="and those that repeat a slow one with another variant")
    parser.addoption("--crash-states", type=int, help="how many crash states tests/crash tries")
    parser.addoption(
        "--fault-runs", type=int, default=5, help="how often tests/integration/test_faults.py breaks each thing"
    )
    parser.addoption("--fault-seconds", type=float, default=3.0, help="how long its pauses and cuts last at most")
    parser.addoption("--crash-seed", type=int, default=0, help="with which script tests/crash begins")
    parser.addoption("--fuzz-frames", type=int, help="how many bent frames tests/fuzz sends")
    parser.addoption("--fuzz-seed", type=int, default=1, help="where chance begins in tests/fuzz")


def is_whole(config: pytest.Config) -> bool:
    """Return whether every case is to be tried, not a sample of them."""
    return bool(config.getoption("--slow") or config.getoption("--longest"))


def keep_bytecode(config: pytest.Config) -> None:
    """Have the hundreds of processes that tests start compile each module once, where bytecode is not wanted beside sources.

    It lies in pytest's cache, so that a later run compiles what has changed only: with its tests' assertions rewritten, that is
    half of what collecting them costs. Workers of xdist are told by their environment.
    """
    if not sys.dont_write_bytecode or not config.pluginmanager.hasplugin("cacheprovider"):
        return
    folder = config.cache.mkdir("bytecode")
    patch = pytest.MonkeyPatch()
    config.add_cleanup(lambda: forget_temporary(folder))
    config.add_cleanup(patch.undo)
    patch.setattr(sys, "dont_write_bytecode", False)
    patch.setattr(sys, "pycache_prefix", str(folder))
    patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    patch.setenv("PYTHONPYCACHEPREFIX", str(folder))


def forget_temporary(folder: Path) -> None:
    """Remove the bytecode of what tests wrote, which nobody runs again, from a folder of bytecode."""
    lasting = [Path(folder, *path.parts[1:]) for path in (ROOT, Path(sys.prefix))]
    for found in Path(folder, *Path(tempfile.gettempdir()).parts[1:]).glob("*"):
        if not any(path.is_relative_to(found) for path in lasting):
            shutil.rmtree(found, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    keep_bytecode(config)
    if not config.getoption("--hypothesis-profile"):
        hypothesis.settings.load_profile("whole" if is_whole(config) else "sample")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow, longest = config.getoption("--slow"), config.getoption("--longest")
    for item in items:
        if "hypothesis" in item.keywords or not SAMPLED.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.sampled)
        if "longest" in item.keywords and not longest:
            item.add_marker(pytest.mark.skip(reason="repeats a long test: run with --longest"))
        elif "slow" in item.keywords and not slow and not longest:
            item.add_marker(pytest.mark.skip(reason="takes long: run with --slow"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Have ``-n auto`` start a worker more than there are processors: a third of the time tests wait for disks and programs."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else 1 + len(os.sched_getaffinity(0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup`` one worker runs a file; or a folder, where the tests share a Java broker or a Spark session."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return next(
                (folder for folder in ("tests/interop/", "tests/plugins/spark/") if path.startswith(folder)), path
            )

    return Together(config, log)


def pytest_collection_finish() -> None:
    """Keep the collector from walking through what five thousand collected tests hold, again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def effort(pytestconfig: pytest.Config) -> Callable[[int, int], int]:
    """Return a function that chooses how many cases a test tries: few by default, many with ``--slow``."""
    return lambda few, many: many if is_whole(pytestconfig) else few
