"""Figures of a cluster and its groups over the last minutes, in bounded memory."""

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
"""Number of seconds for which the figures of a cluster and its groups are kept."""
EVERY_S: Final = 2.0
"""Minimum number of seconds between two samples of a cluster's figures."""
GROUPS_MAX: Final = 32
"""Maximum number of groups whose figures are kept. Beyond this number, a viewed group replaces the group that nobody has viewed
for the longest time."""


@attrs.frozen
class Sample:
    """Figures of a cluster or a group at one time. A figure is None if it is unknown."""

    at_s: float
    put_per_s: float | None
    get_per_s: float | None
    lag: int | None
    put_latency_99_ms: float | None = None


class History:
    """The samples of a cluster's and its groups' figures over the last ten minutes. For the loop thread only."""

    def __init__(self) -> None:
        self._cluster = _samples()
        self._groups: OrderedDict[str, deque[Sample]] = OrderedDict()

    def watch(self, group: str) -> None:
        """Record the figures of a group from now on."""
        self._groups.setdefault(group, _samples())
        self._groups.move_to_end(group)
        while len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)

    def note(self, now_s: float, brokers: Iterable[BrokerMemory], speakers: Iterable[BrokerMemory]) -> None:
        """Add a sample of figures from the brokers' last answers, unless the last sample is too new.

        Args:
            now_s: the current time.
            brokers: all brokers.
            speakers: the brokers whose answers about groups are used.
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
        """Return the samples of the whole cluster, oldest first."""
        return tuple(self._cluster)

    def group(self, name: str) -> tuple[Sample, ...]:
        """Return the samples of a group, oldest first. In a cluster with many groups, a group is sampled only after it was
        first viewed."""
        return tuple(self._groups.get(name, ()))


def _samples() -> deque[Sample]:
    return deque(maxlen=int(SPAN_S / EVERY_S) + 1)


def _keep(samples: deque[Sample], new: Sample) -> None:
    samples.append(new)
    while new.at_s - samples[0].at_s > SPAN_S:
        samples.popleft()
