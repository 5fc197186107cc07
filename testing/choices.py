"""Makes the random decisions of a simulation.

The decisions are computed from a seed and are recorded, so that a run of the simulation can be repeated. If a run fails,
:func:`shrink` searches for simpler decisions with which a run still fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence


class Choices:
    """Makes every decision of one run of a simulation. Not thread-safe.

    A decision is a number below a bound. The decision 0 is the ordinary decision: the callback that came first, no delay, no
    fault. A run whose decisions are all 0 is therefore the run of an ordinary event loop.

    Args:
        seed: seed of the random numbers from which every decision is made if ``recorded`` is None.
        recorded: the first decisions, from an earlier run; all later decisions are 0. If None, all decisions are random.
    """

    def __init__(self, seed: int = 0, recorded: Sequence[int] | None = None) -> None:
        self.seed = seed
        self.made: list[int] = []
        """Decisions that a run of a simulation has made, in order. These decisions are the trace of the run."""
        self._random = random.Random(seed)
        self._recorded = recorded

    def below(self, bound: int) -> int:
        """Make a decision of the simulation: return a number from 0 to ``bound`` - 1."""
        if bound <= 1:
            return 0
        if self._recorded is None:
            choice = self._random.randrange(bound)
        else:
            at = len(self.made)
            choice = min(self._recorded[at], bound - 1) if at < len(self._recorded) else 0
        self.made.append(choice)
        return choice

    def happens(self, percent: int) -> bool:
        """Decide whether an event of probability ``percent`` / 100 happens. The decision 0 means that the event does not
        happen."""
        return self.below(100) >= 100 - percent if percent > 0 else False


def shrink(fails: Callable[[Choices], bool], made: Sequence[int], *, tries: int = 500) -> list[int]:
    """Return simpler decisions with which a run of a simulation still fails. As many decisions as possible are 0, and unneeded
    decisions at the end are left out.

    Args:
        fails: a function that runs the simulation with the given decisions, and returns whether the run failed as before.
        made: the decisions of the run that failed.
        tries: the maximum number of calls of ``fails``.
    """
    best = list(made)

    def attempt(candidate: list[int]) -> bool:
        nonlocal best, tries
        while candidate and candidate[-1] == 0:
            candidate.pop()
        if tries <= 0 or candidate == best:
            return False
        tries -= 1
        if fails(Choices(recorded=candidate)):
            best = candidate
            return True
        return False

    # 1. Remove the simulation's decisions from the end of the list while a run without them still fails.
    length = len(best)
    while length > 1:
        length //= 2
        while len(best) > length and attempt(best[:-length]):
            pass
    # 2. Set blocks of the simulation's decisions to 0, or remove the blocks, and keep each change with which a run still fails.
    # Each pass tries block sizes from half of the decisions down to 1. Passes repeat until a pass changes no decision.
    before: list[int] = []
    while best != before and tries > 0:
        before = list(best)
        size = max(1, len(best) // 2)
        while size and tries > 0:
            at = 0
            while at < len(best):
                block, rest = best[at : at + size], best[at + size :]
                if any(block) and not attempt([*best[:at], *[0] * len(block), *rest]) and any(rest):
                    attempt([*best[:at], *rest])
                at += size
            size //= 2
    return best
