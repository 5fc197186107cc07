"""Fixtures of pytest, there wherever FlintMQ is installed (docs/testing.md). Nothing is imported before a test asks for one."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flintmq.core.testing.clock import VirtualClock
    from flintmq.plugins.testing.embedded import EmbeddedBroker


@pytest.fixture
def flintmq_settings() -> Sequence[str]:
    """Return further settings of ``flintmq_broker``, as ``key=value``; a test that has some overrides this fixture."""
    return ()


@pytest.fixture
def flintmq_clock() -> VirtualClock:
    """Return the clock of ``flintmq_broker``: it stands still until ``advance("2h")`` has two hours pass."""
    from flintmq.core.testing.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def flintmq_broker(
    request: pytest.FixtureRequest, tmp_path: Path, flintmq_settings: Sequence[str]
) -> Iterator[EmbeddedBroker]:
    """Run a broker and its name server in this process; on ``flintmq_clock`` where the test has it, else in real time."""
    from flintmq.core.io.clock import SYSTEM_CLOCK
    from flintmq.plugins.testing.embedded import EmbeddedBroker

    clock = request.getfixturevalue("flintmq_clock") if "flintmq_clock" in request.fixturenames else SYSTEM_CLOCK
    with EmbeddedBroker(tmp_path / "flintmq", settings=flintmq_settings, clock=clock) as broker:
        yield broker


@pytest.fixture
def flintmq_topic(request: pytest.FixtureRequest, flintmq_broker: EmbeddedBroker) -> str:
    """Create a topic with four queues, named for the test, and return its name."""
    words = re.sub(r"[^a-zA-Z0-9_-]+", "_", request.node.name)[:80]
    return flintmq_broker.create_topic(f"{words}-{uuid.uuid4().hex[:8]}")
