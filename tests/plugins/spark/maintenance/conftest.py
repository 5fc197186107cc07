"""What the tests of maintenance share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stores import fill

from flintmq.plugins.spark.maintenance.engines import Engine, InlineEngine, ProcessEngine


@pytest.fixture(params=["inline", "process"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """One of the engines of this machine."""
    with closing(InlineEngine() if request.param == "inline" else ProcessEngine(2)) as made:
        yield made


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped store, to be copied or read."""
    root = tmp_path_factory.mktemp("template") / "store"
    fill(root)
    return root
