"""How long requests took from their read to their answer (RocketMQ 5's ``rocketmq_rpc_latency``), by code and answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from flintmq.core.broker.batch_figures import NOTES_MAX
from flintmq.core.histogram import Histogram
from flintmq.remoting.wire.codes import RequestCode

_PULL: Final = int(RequestCode.PULL_MESSAGE)
BOUNDS_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
"""RocketMQ's."""
QUICK_S: Final = BOUNDS_MS[0] / 1000
"""Pulls that find messages so quickly, which is nearly all of them, are in the first bucket."""
KINDS_MAX: Final = 200
"""Clients choose codes: further kinds are counted under :data:`OTHER`."""
OTHER: Final = -1

Kind = tuple[int, int, bool, bool]
"""Request code, response code, whether the request was held, whether it was one-way."""


class RpcLatency:
    """Histograms in ms. Loop thread.

    Those who answer many requests at once count them at once: sends once in each append, by their common time.
    """

    def __init__(self) -> None:
        self._by_kind: dict[Kind, Histogram] = {}
        self._notes: list[tuple[int, int, float, int]] = []
        self.quick_pulls = 0
        """Pulls that found messages within :data:`QUICK_S`, without having been held: counted so, a pull costs 1 % less."""
        self.quick_pulls_s = 0.0
        """How long they took together."""

    def by_kind(self) -> dict[Kind, Histogram]:
        """Return what is counted so far."""
        if self.quick_pulls:
            self.add(_PULL, 0, self.quick_pulls_s / self.quick_pulls, self.quick_pulls)
            self.quick_pulls, self.quick_pulls_s = 0, 0.0
        for note in self._notes:
            self.add(*note)
        self._notes.clear()
        return self._by_kind

    def note(self, answers: Sequence[tuple[int, int, float, int]]) -> None:
        """Note answers, to be counted with others: each has the first four arguments of :meth:`add`."""
        self._notes += answers
        if len(self._notes) >= NOTES_MAX:
            self.by_kind()

    def add(
        self,
        code: int,
        response_code: int,
        took_s: float,
        count: int = 1,
        was_held: bool = False,
        is_oneway: bool = False,
    ) -> None:
        """Count answered requests that took the same time.

        Args:
            code: of the requests.
            response_code: of their answers.
            took_s: from the read to the answer.
            count: how many.
            was_held: whether they waited for a message (``is_long_polling``).
            is_oneway: whether nobody wanted the answer.
        """
        kind = code, response_code, was_held, is_oneway
        histogram = self._by_kind.get(kind)
        if histogram is None:
            if len(self._by_kind) >= KINDS_MAX:
                kind = OTHER, response_code, was_held, is_oneway
            histogram = self._by_kind.setdefault(kind, Histogram(BOUNDS_MS))
        took_ms = took_s * 1000  # as Histogram.add does, without its calls
        histogram.counts[bisect_left(BOUNDS_MS, took_ms)] += count
        histogram.total += took_ms * count
