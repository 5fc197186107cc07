"""``tools/bench_commits.py`` compares like with like: rounds in pairs, and only the stages that both sides have."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


def test_ratios_between_commits_compare_only_measurements_of_the_same_round() -> None:
    """A machine that is slow for one round is slow for both sides of it."""
    tool = importlib.import_module("bench_commits")
    before = [{"send": 2.0, "old": 1.0}, {"send": 4.0, "old": 1.0}, {"send": 3.0, "old": 1.0}]
    after = [{"send": 2.2, "new": 1.0}, {"send": 4.0, "new": 1.0}, {"send": 3.6, "new": 1.0}]
    row = tool.compared(before, after)["send"]
    assert {name: row[name] for name in ("before", "after", "least", "median")} == {
        "before": 2.0, "after": 2.2, "least": 1.1, "median": 1.1,
    }  # fmt: skip
    assert row["low"] < row["mean"] == 1.097 < row["high"]


def test_the_order_of_the_compared_commits_changes_with_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two runs finds the caches warm."""
    tool = importlib.import_module("bench_commits")
    asked: list[str] = []
    monkeypatch.setattr(tool, "hot_path", lambda root: asked.append(str(root)) or {"send": float(len(asked))})
    before, after = tool.measure(Path("a"), Path("b"), 2)
    assert asked == ["a", "b", "b", "a"]
    assert (before, after) == ([{"send": 1.0}, {"send": 4.0}], [{"send": 2.0}, {"send": 3.0}])
