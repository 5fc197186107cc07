"""How many cases a test tries: a sample by default, all of them with ``--slow``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

ALL_EXAMPLES = 100
"""What the profiles ``whole`` and ``explore`` let Hypothesis try where a test does not say how many."""
SAMPLE_EXAMPLES = 10
"""What the profile ``sample`` lets it try."""


def examples(count: int) -> int:
    """Return how many examples Hypothesis tries: ``count`` with ``--slow``, a tenth of them and at least five without."""
    return max(5, count * settings().max_examples // ALL_EXAMPLES)


def first(kept: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Return a test's parameters: each case as it is where it is one of ``kept``, and marked slow where it is not.

    Args:
        kept: the cases that run by default; of tuples, their first members.
        cases: all of them, which run with ``--slow``.

    Raises:
        ValueError: one that is kept does not exist.
    """
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    missing = [one for one in kept if all(one != row[0] for row in rows)]
    if missing:
        raise ValueError(f"no case is {missing[0]!r}")
    return [pytest.param(*row, marks=() if row[0] in kept else pytest.mark.slow) for row in rows]
