"""The pytest fixtures that every installation of FlintMQ provides (docs/testing.md).

Each fixture imports FlintMQ's modules only when a test uses it.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flintmq.core.io.clock import Clock
    from flintmq.testing.clock import VirtualClock
    from flintmq.testing.cluster import EmbeddedCluster
    from flintmq.testing.embedded import EmbeddedBroker
    from flintmq.testing.faults import Faults


class _AsInstalled:
    """An import finder that keeps pytest from rewriting the assertions in FlintMQ's modules.

    Pytest rewrites the modules of every package that provides a plugin. If Python writes no bytecode files, pytest would
    rewrite and compile these modules again in every run, which takes two seconds for a test with a broker.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the import specification of a FlintMQ module. Return None for any other module, so that Python uses its next
        import finder."""
        if not name.startswith("flintmq.") or name.startswith("flintmq.tests"):
            return None
        return PathFinder.find_spec(name, path, target)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Import FlintMQ's modules without rewritten assertions, until pytest ends."""
    finder = _AsInstalled()
    sys.meta_path.insert(0, finder)
    early_config.add_cleanup(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)


@pytest.fixture
def flintmq_settings() -> Sequence[str]:
    """Return additional settings of ``flintmq_broker``, each as ``key=value``; no settings unless a test overrides this
    fixture."""
    return ()


@pytest.fixture
def flintmq_clock() -> VirtualClock:
    """Return the clock of ``flintmq_broker``: the clock stands still until a test moves it, for example by
    ``advance("2h")``."""
    from flintmq.testing.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def flintmq_broker(
    request: pytest.FixtureRequest, tmp_path: Path, flintmq_settings: Sequence[str]
) -> Iterator[EmbeddedBroker]:
    """Run a broker and its name server in this process, on ``flintmq_clock`` if the test uses it, otherwise in real time."""
    from flintmq.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(
        tmp_path / "flintmq",
        settings=flintmq_settings,
        clock=_clock(request),
        with_faults="flintmq_faults" in request.fixturenames,
    ) as broker:
        yield broker


def _clock(request: pytest.FixtureRequest) -> Clock:
    from flintmq.core.io.clock import SYSTEM_CLOCK

    asked: Clock = request.getfixturevalue("flintmq_clock") if "flintmq_clock" in request.fixturenames else SYSTEM_CLOCK
    return asked


@pytest.fixture
def flintmq_faults(flintmq_broker: EmbeddedBroker) -> Faults:
    """Return the faults of ``flintmq_broker`` that a test can script: faults of syncs, the disk, answers and the network, and
    crashes."""
    return flintmq_broker.faults


@pytest.fixture
def flintmq_layout() -> Mapping[str, int]:
    """Return the masters of ``flintmq_cluster``, each with its number of slaves. A test can override this fixture."""
    from flintmq.testing.cluster import LAYOUT

    return LAYOUT


@pytest.fixture
def flintmq_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, flintmq_settings: Sequence[str], flintmq_layout: Mapping[str, int]
) -> Iterator[EmbeddedCluster]:
    """Run masters, their slaves and a name server in this process, each broker with faults; see ``flintmq_broker``."""
    from flintmq.testing.cluster import EmbeddedCluster

    with EmbeddedCluster(
        tmp_path / "flintmq-cluster",
        layout=flintmq_layout,
        settings=flintmq_settings,
        clock=_clock(request),
        with_faults=True,
    ) as cluster:
        yield cluster


@pytest.fixture
def flintmq_topic(request: pytest.FixtureRequest, flintmq_broker: EmbeddedBroker) -> str:
    """Create a topic with four queues, named after the test, and return its name."""
    words = re.sub(r"[^a-zA-Z0-9_-]+", "_", request.node.name)[:80]
    return flintmq_broker.create_topic(f"{words}-{uuid.uuid4().hex[:8]}")
