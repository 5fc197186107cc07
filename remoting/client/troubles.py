"""What does not work now, and how often that is told: at once, and then with growing pauses."""

from __future__ import annotations

from typing import Final

import attrs

from flintmq.core.errors import FlintError
from flintmq.core.io.clock import Clock
from flintmq.remoting.client.callbacks import told

FIRST_PAUSE_S: Final = 30.0
LONGEST_PAUSE_S: Final = 3_600.0


@attrs.define
class _Trouble:
    reason: str
    since_s: float
    tell_at_s: float
    pause_s: float = 2 * FIRST_PAUSE_S
    """Until it is told again, the time after next."""


class Troubles:
    """What does not work now, by subject: a topic, or a broker. Loop thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_subject: dict[str, _Trouble] = {}

    def __len__(self) -> int:
        return len(self._by_subject)

    def met(self, subject: str, reason: object, *, may_pass: bool = False) -> bool:
        """Note that something does not work, and return whether to log it: the first time, and after growing pauses.

        Args:
            subject: what does not work.
            reason: why.
            may_pass: it is usual for a moment: it is logged the second time.
        """
        now_s = self._clock.monotonic_s()
        text = told(reason) if isinstance(reason, Exception) and not isinstance(reason, FlintError) else str(reason)
        trouble = self._by_subject.get(subject)
        if trouble is None:
            self._by_subject[subject] = _Trouble(text, now_s, now_s if may_pass else now_s + FIRST_PAUSE_S)
            return not may_pass
        trouble.reason = text
        if now_s < trouble.tell_at_s:
            return False
        trouble.tell_at_s = now_s + trouble.pause_s
        trouble.pause_s = min(2 * trouble.pause_s, LONGEST_PAUSE_S)
        return True

    def over(self, subject: str) -> float | None:
        """Note that something works, and return for how many seconds it did not; None where it did."""
        trouble = self._by_subject.pop(subject, None)
        return None if trouble is None else self._clock.monotonic_s() - trouble.since_s

    def reasons(self) -> dict[str, str]:
        """Return why each subject that does not work does not."""
        return {subject: trouble.reason for subject, trouble in self._by_subject.items()}
