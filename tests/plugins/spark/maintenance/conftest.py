"""What the tests of maintenance share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stores import fill


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped store, to be copied or read."""
    root = tmp_path_factory.mktemp("template") / "store"
    fill(root)
    return root
