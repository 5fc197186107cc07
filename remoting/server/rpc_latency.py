"""How long requests took from their read to their answer (RocketMQ 5's ``rocketmq_rpc_latency``), by code and answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from flintmq.core.broker.batch_figures import NOTES_MAX
from flintmq.core.histogram import Histogram
from flintmq.remoting.wire.codes import PULLS, RequestCode

_PULL: Final = int(RequestCode.PULL_MESSAGE)
BOUNDS_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
"""RocketMQ's."""
QUICK_S: Final = BOUNDS_MS[0] / 1000
"""What takes no longer, as nearly everything does, is in the first bucket."""
KINDS_MAX: Final = 200
"""Clients choose codes: further kinds are counted under :data:`OTHER`."""
OTHER: Final = -1

Kind = tuple[int, int, bool, bool]
"""Request code, response code, whether the request was held, whether it was one-way."""


FoundPulls = Callable[[], tuple[int, float]]
"""Returns how many pulls have found messages since the broker's start, and for how many seconds these were read."""


class RpcLatency:
    """Histograms in ms. Loop thread.

    Sends that share an append and a connection are noted at once. Of pulls that find messages, the broker's statistics know the
    number: only those that were held or took longer than :data:`QUICK_S` are counted here, and all others are told in the first
    bucket, with the mean time of reading messages for their sum. RocketMQ, which counts whole ms, tells 0 for that.

    Args:
        found_pulls: asked now, and when the histograms are read.
    """

    def __init__(self, found_pulls: FoundPulls) -> None:
        self._by_kind: dict[Kind, Histogram] = {}
        self._notes: list[tuple[int, float, int]] = []
        self._found_pulls = found_pulls
        self._found, self._reading_s = found_pulls()
        self._found_counted = 0
        """Pulls that found messages and are counted by :meth:`add`."""

    def by_kind(self) -> dict[Kind, Histogram]:
        """Return what is counted so far."""
        self._fold()
        found, reading_s = self._found_pulls()
        quick = found - self._found - self._found_counted
        if quick > 0:
            mean_s = min((reading_s - self._reading_s) / (found - self._found), QUICK_S)
            self.add(_PULL, 0, mean_s, quick)
        self._found, self._reading_s, self._found_counted = found, reading_s, 0
        return self._by_kind

    def note(self, code: int, took_s: float, count: int) -> None:
        """Note answered requests that succeeded, to be counted with others: code and histograms are in the processor's caches
        then. The arguments are as in :meth:`add`."""
        self._notes.append((code, took_s, count))
        if len(self._notes) >= NOTES_MAX:
            self._fold()

    def _fold(self) -> None:
        quick: dict[int, tuple[int, float]] = {}
        for code, took_s, count in self._notes:
            if took_s <= QUICK_S:
                counted, counted_s = quick.get(code, (0, 0.0))
                quick[code] = counted + count, counted_s + took_s * count
            else:
                self.add(code, 0, took_s, count)
        for code, (counted, counted_s) in quick.items():
            self.add(code, 0, counted_s / counted, counted)
        self._notes.clear()

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
        if code in PULLS and response_code == 0:
            self._found_counted += count
        kind = code, response_code, was_held, is_oneway
        histogram = self._by_kind.get(kind)
        if histogram is None:
            if len(self._by_kind) >= KINDS_MAX:
                kind = OTHER, response_code, was_held, is_oneway
            histogram = self._by_kind.setdefault(kind, Histogram(BOUNDS_MS))
        took_ms = took_s * 1000  # as Histogram.add does, without its calls
        histogram.counts[bisect_left(BOUNDS_MS, took_ms)] += count
        histogram.total += took_ms * count
