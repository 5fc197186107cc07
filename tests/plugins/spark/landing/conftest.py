"""What the tests of the landing zone share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from landing_log import LittleLog


@pytest.fixture(scope="session")
def little_log(tmp_path_factory: pytest.TempPathFactory) -> LittleLog:
    """Read by tests, written by none."""
    return LittleLog(tmp_path_factory.mktemp("little") / "store")
