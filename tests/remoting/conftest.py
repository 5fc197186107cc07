"""Golden frames, and a peer that answers by script, for the tests of remoting."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.tests.support.fake_broker import FakePeer


def _golden_folder() -> Path:
    shared = os.environ.get("FLINTMQ_SHARED")
    return (Path(shared) if shared else Path(str(flintmq.__file__)).parent.parent / "shared") / "golden"


@pytest.fixture(scope="session")
def golden_frames() -> list[dict[str, Any]]:
    """Requests and answers of RocketMQ as they were on the wire; see the golden data's README."""
    path = _golden_folder() / "frames" / "frames.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the golden frames are not at {path} (set FLINTMQ_SHARED)")
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture
def fake_peer() -> type[FakePeer]:
    """The class: make it inside the running loop."""
    return FakePeer
