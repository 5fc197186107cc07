"""How many cases a test tries: a sample by default, all of them with ``--slow``."""

from __future__ import annotations

from hypothesis import settings

ALL_EXAMPLES = 100
"""What the profiles ``whole`` and ``explore`` let Hypothesis try where a test does not say how many."""
SAMPLE_EXAMPLES = 20
"""What the profile ``sample`` lets it try."""


def examples(count: int) -> int:
    """Return how many examples Hypothesis tries: ``count`` with ``--slow``, a fifth of them and at least five without."""
    return max(5, count * settings().max_examples // ALL_EXAMPLES)
