"""What the last minutes were like: figures of the cluster and of its groups, in bounded memory. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

import attrs

from flintmq.programs.cluster_view import figures
from flintmq.programs.cluster_view.group_state import remembered_state
from flintmq.programs.cluster_view.memory import BrokerMemory
from flintmq.programs.cluster_view.names import kind_of_group

SPAN_S: Final = 600.0
"""How far back figures are kept."""
EVERY_S: Final = 2.0
"""They are noted no more often."""
GROUPS_MAX: Final = 32
"""Groups whose figures are kept: any while there is room, and the one that was looked at longest ago makes room."""


@attrs.frozen
class Sample:
    """Figures of one moment; None where one is not known."""

    at_s: float
    put_per_s: float | None
    get_per_s: float | None
    lag: int | None
    put_latency_99_ms: float | None = None


class History:
    """Keeps samples of the last ten minutes. Loop thread only."""

    def __init__(self) -> None:
        self._cluster = _samples()
        self._groups: OrderedDict[str, deque[Sample]] = OrderedDict()

    def watch(self, group: str) -> None:
        """Keep a group's figures from now on."""
        self._groups.setdefault(group, _samples())
        self._groups.move_to_end(group)
        while len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)

    def note(self, now_s: float, brokers: Iterable[BrokerMemory], speakers: Iterable[BrokerMemory]) -> None:
        """Take what the brokers told last; nothing where that was just done.

        Args:
            now_s: which time it is.
            brokers: all of them.
            speakers: those of them that tell of groups.
        """
        if self._cluster and now_s - self._cluster[-1].at_s < EVERY_S:
            return
        answering = [broker for broker in brokers if broker.answers and broker.info]
        telling = [broker for broker in speakers if broker.answers and broker.info]
        told = [(broker, figures.main_figures(broker.info)) for broker in answering]
        latencies = [figures.put_latency_99_ms(broker.info) for broker in answering]
        groups = {group for broker in telling for group in broker.groups if kind_of_group(group) == "user"}
        lags = [state.lag for group in groups if (state := remembered_state(group, telling)).lag is not None]
        cluster = Sample(
            now_s,
            sum(each["put_per_s"] for broker, each in told if broker.is_master) if told else None,
            sum(each["get_per_s"] for _, each in told) if told else None,
            sum(lags) if telling else None,
            max((one for one in latencies if one is not None), default=None),
        )
        _keep(self._cluster, cluster)
        for name in sorted(groups)[: GROUPS_MAX - len(self._groups)] if len(self._groups) < GROUPS_MAX else ():
            self._groups.setdefault(name, _samples())
        for name, samples in self._groups.items():
            state = remembered_state(name, telling)
            _keep(samples, Sample(now_s, None, state.get_per_s, state.lag))

    def cluster(self) -> tuple[Sample, ...]:
        """Return the samples of all brokers together, oldest first."""
        return tuple(self._cluster)

    def group(self, name: str) -> tuple[Sample, ...]:
        """Return the samples of a group, oldest first; of one of many groups those since somebody looked at it."""
        return tuple(self._groups.get(name, ()))


def _samples() -> deque[Sample]:
    return deque(maxlen=int(SPAN_S / EVERY_S) + 1)


def _keep(samples: deque[Sample], new: Sample) -> None:
    samples.append(new)
    while new.at_s - samples[0].at_s > SPAN_S:
        samples.popleft()
