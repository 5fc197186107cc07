"""The brokers of the matrix, once for a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .sites import Room, Sites


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """The brokers, each started when it is first asked for."""
    with ExitStack() as held:
        yield Sites(tmp_path_factory.mktemp("client-matrix"), held)


@pytest.fixture
def room(request: pytest.FixtureRequest, sites: Sites, tmp_path: Path) -> Room:
    """A room at the broker that the test is parametrised with."""
    return sites.room(request.param, tmp_path)
