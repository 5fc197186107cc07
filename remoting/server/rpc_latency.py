"""Histograms of the time from a request's read to its answer, by code and answer (RocketMQ 5's ``rocketmq_rpc_latency``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from flintmq.core.broker.batch_figures import NOTES_MAX
from flintmq.core.histogram import Histogram
from flintmq.remoting.wire.codes import PULLS, RequestCode

_PULL: Final = int(RequestCode.PULL_MESSAGE)
BOUNDS_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
"""Upper bounds of the latency histograms' buckets in ms, the same as RocketMQ's."""
QUICK_S: Final = BOUNDS_MS[0] / 1000
"""Upper bound in seconds of the first bucket of the latency histograms. Nearly all requests are in this bucket."""
KINDS_MAX: Final = 200
"""Maximum number of latency histograms. The number is limited, because a client could send requests with thousands of different
codes. At the limit, requests that would need a new histogram are counted under :data:`OTHER`."""
OTHER: Final = -1
"""Request code under which all further kinds of requests are counted after :data:`KINDS_MAX` latency histograms were made."""

Kind = tuple[int, int, bool, bool]
"""Key of a latency histogram: request code, response code, whether the request was held, and whether it was one-way."""


FoundPulls = Callable[[], tuple[int, float]]
"""Function that returns the number of pulls that have found messages since the broker's start, and the seconds in which the
broker read these messages."""


class RpcLatency:
    """Histograms of the latency of requests, in ms. Used only on the event loop's thread.

    Send requests that arrived over one connection and were stored with one append are recorded in one call.

    A pull request that finds messages is recorded individually only if it was held or took longer than :data:`QUICK_S`. All
    other pull requests that find messages belong to the first bucket and are only counted, by the broker's statistics. When the
    histograms are read, the count of these quick pull requests is added to the first bucket. The sum of their latencies is
    estimated as their count times the mean time of reading messages. In RocketMQ this sum is 0, because RocketMQ counts whole
    ms.

    Args:
        found_pulls: returns the number of pull requests that found messages, and the seconds in which these messages were read.
            The function is called when this object is created, and when the histograms are read.
    """

    def __init__(self, found_pulls: FoundPulls) -> None:
        self._by_kind: dict[Kind, Histogram] = {}
        self._notes: list[tuple[int, float, int]] = []
        self._found_pulls = found_pulls
        self._found, self._reading_s = found_pulls()
        self._found_counted = 0
        """Number of pulls that found messages and were counted by :meth:`add` since the histograms were last read."""

    def by_kind(self) -> dict[Kind, Histogram]:
        """Return the latency histograms of the requests up to now. The key contains the request code, the response code, and
        whether the request was held or one-way."""
        self._fold()
        found, reading_s = self._found_pulls()
        quick = found - self._found - self._found_counted
        if quick > 0:
            mean_s = min((reading_s - self._reading_s) / (found - self._found), QUICK_S)
            self.add(_PULL, 0, mean_s, quick)
        self._found, self._reading_s, self._found_counted = found, reading_s, 0
        return self._by_kind

    def note(self, code: int, took_s: float, count: int) -> None:
        """Keep the latency of successful requests, to count it later together with the latencies of other requests.

        The arguments are those of :meth:`add`.

        Counting many latencies together is faster, because the code and the histograms then stay in the CPU's caches.
        """
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
            code: request code.
            response_code: code of the answers.
            took_s: seconds from the read to the answer.
            count: number of requests.
            was_held: whether the requests waited for a message (``is_long_polling``).
            is_oneway: whether the requests were one-way, without an answer.
        """
        if code in PULLS and response_code == 0:
            self._found_counted += count
        kind = code, response_code, was_held, is_oneway
        histogram = self._by_kind.get(kind)
        if histogram is None:
            if len(self._by_kind) >= KINDS_MAX:
                kind = OTHER, response_code, was_held, is_oneway
            histogram = self._by_kind.setdefault(kind, Histogram(BOUNDS_MS))
        # The code of Histogram.add() is repeated here, which saves a call for each request.
        took_ms = took_s * 1000
        histogram.counts[bisect_left(BOUNDS_MS, took_ms)] += count
        histogram.total += took_ms * count
