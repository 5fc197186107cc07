"""Keeps the current failures of a client, and decides when each is logged: at once, then after growing pauses."""

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
    """Pause, in seconds, that will follow the next log line about the failure. During the pause, no further line about the
    failure is logged. Each log line after the first line doubles the pause, up to :data:`LONGEST_PAUSE_S`."""


class Troubles:
    """The current failures, keyed by subject: a topic or a broker. Used only on the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_subject: dict[str, _Trouble] = {}

    def __len__(self) -> int:
        return len(self._by_subject)

    def met(self, subject: str, reason: object, *, may_pass: bool = False) -> bool:
        """Record a failure, and return whether to log it now: at the first failure, then after growing pauses.

        Args:
            subject: the topic or broker that fails.
            reason: the error, or its text.
            may_pass: whether the failure is normal for a short time. If true, the first report of the failure is not logged.
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
        """Record that a topic or broker works, and return for how many seconds it had failed; None if it had not failed."""
        trouble = self._by_subject.pop(subject, None)
        return None if trouble is None else self._clock.monotonic_s() - trouble.since_s

    def reasons(self) -> dict[str, str]:
        """Return the reasons of the current failures, keyed by the topic or broker that fails."""
        return {subject: trouble.reason for subject, trouble in self._by_subject.items()}
