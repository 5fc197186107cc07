"""How many frames are bent, and from which seed on."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def fuzz_frames(request: pytest.FixtureRequest, effort: Callable[[int, int], int]) -> int:
    """How many frames are bent in all (``--fuzz-frames``)."""
    return int(request.config.getoption("--fuzz-frames") or effort(10_000, 200_000))


@pytest.fixture
def fuzz_seed(request: pytest.FixtureRequest) -> int:
    """Where chance begins; printed where a test fails (``--fuzz-seed``)."""
    given = request.config.getoption("--fuzz-seed")
    seed = random.SystemRandom().randrange(2**32) if given is None else int(given)
    print(f"--fuzz-seed {seed}")
    return seed
