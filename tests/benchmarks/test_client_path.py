"""The benchmark of the client's stages is only worth something while it runs, and while each stage does its work."""

from __future__ import annotations

from .client_path import MANY, PULL, measure, stages


def test_the_client_benchmark_measures_every_stage() -> None:
    """A stage that raises, or costs nothing, measures nothing."""
    found = measure(repeats=1)
    assert set(found) == set(stages())
    assert all(cost_us > 0 for cost_us in found.values())


def test_the_stages_of_the_client_benchmark_lose_no_messages() -> None:
    """A stage that loses messages would be measured too fast."""
    works = {name: work for name, (work, _) in stages().items()}
    assert len(works["gathered: results"]()) == MANY  # type: ignore[arg-type]
    messages = works["consume: messages of an answer"]()
    assert len(messages) == PULL  # type: ignore[arg-type]
