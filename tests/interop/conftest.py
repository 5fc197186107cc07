"""The real Java broker of a test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flintmq.tests.interop.peer import PEER as PEER
from flintmq.tests.interop.peer import SHARED as SHARED
from flintmq.tests.interop.peer import Peer as Peer
from flintmq.tests.interop.peer import fetch_jars

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))  # bare_wire, replicas


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    """The real broker; the test is skipped where it cannot be run, and fails there when FLINTMQ_REQUIRE_JAVA is set."""
    fetch_jars()
    return Peer(tmp_path)
