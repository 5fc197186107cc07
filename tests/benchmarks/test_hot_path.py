"""The benchmark of the stages is only worth something while it runs, and while it measures what the broker does."""

from __future__ import annotations

import asyncio

import pytest

from .hot_path import SEND, measure, table


def test_it_measures_every_stage() -> None:
    found = asyncio.run(measure(calls=3))
    assert set(found) == {*SEND, "whole", "batch intake", "whole batch", "get", "whole pull"}
    assert all(value >= 0 for value in found.values())
    assert found["whole"] > 0


@pytest.mark.slow
def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints it (run with -s). The stages are parts of the whole: far more than it, and something is measured twice."""
    found = asyncio.run(measure(calls=400))
    with capsys.disabled():
        print(f"\n{table(found)}")
    assert sum(found[name] for name in SEND) < 1.5 * found["whole"]
    assert found["get"] < found["whole pull"]
