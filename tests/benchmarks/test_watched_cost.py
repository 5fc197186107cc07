"""The benchmark of being watched is only worth something while it runs, and while its figures can be true."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from . import watched_cost
from .watched_cost import measure


def test_it_measures_a_broker_that_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_cost, "WARM_S", 0.2)
    found = asyncio.run(measure(topics=4, groups=2, per_s=1_000, seconds=0.5, rounds=2))
    assert found["load, percent of a core"] > 0
    assert -100 < found["watched, percent of a core more"] < 100
