"""A cluster for the tests of the console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintmq.testing.cluster import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """One master; tests have topics and groups of their own."""
    with EmbeddedCluster(tmp_path_factory.mktemp("console"), layout={"broker-a": 0}) as cluster:
        yield cluster
