"""Which brokers a read over the wire knows, when each of them answered last, and which of them are away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.spark.errors import BrokerAwayError
from flintmq.plugins.spark.options import ReadOptions


@attrs.define
class Contacts:
    """Remembers brokers as long as the query's planner lives. Not to be used by two threads at once.

    A broker that stops takes its topics out of the name server's routes: without this memory its queues would be as good as
    deleted. What a checkpoint knows goes in by :meth:`know`.
    """

    options: ReadOptions
    clock: Callable[[], float] = time.monotonic
    """Seconds, of which only differences count."""
    _topics: dict[str, set[str]] = attrs.field(factory=dict)
    """Topic to the names of the brokers that had it."""
    _contact_s: dict[str, float] = attrs.field(factory=dict)
    """Broker name to when it answered last; when it was first heard of, for one that has not answered yet."""
    _away: dict[str, str] = attrs.field(factory=dict)
    """Broker name to what was wrong at the last try."""

    @property
    def away(self) -> Mapping[str, str]:
        """Brokers that were away when they were asked last, and why."""
        return self._away

    @property
    def topics(self) -> list[str]:
        """Topics that a broker is known to have had."""
        return [topic for topic, names in self._topics.items() if names]

    def know(self, queues: Iterable[MessageQueue]) -> None:
        """Remember which brokers have which topics."""
        for queue in queues:
            self.know_brokers(queue.topic, (queue.broker_name,))

    def know_brokers(self, topic: str, broker_names: Iterable[str]) -> None:
        """Remember that brokers have a topic."""
        for name in broker_names:
            self._topics.setdefault(topic, set()).add(name)
            self._contact_s.setdefault(name, self.clock())

    def forget(self, topic: str, broker_names: Iterable[str]) -> None:
        """Forget that brokers have a topic: it was deleted there."""
        self._topics.get(topic, set()).difference_update(broker_names)

    def brokers_of(self, topic: str) -> frozenset[str]:
        """Return the brokers that are known to have a topic."""
        return frozenset(self._topics.get(topic, ()))

    def answered(self, broker_names: Iterable[str]) -> None:
        """Note that brokers have just answered."""
        now_s = self.clock()
        for name in broker_names:
            self._contact_s[name] = now_s
            self._away.pop(name, None)

    def silent(self, found: Mapping[str, str]) -> None:
        """Note that brokers do not answer, and why.

        Raises:
            BrokerAwayError: one has been away for longer than the option ``maxBrokerAway`` says; a warning with
                ``failOnDataLoss`` switched off.
        """
        for name, why in sorted(found.items()):
            self._contact_s.setdefault(name, self.clock())
            self._away[name] = why
        limit_ms = self.options.max_broker_away_ms or 0
        for name, age_ms in self.ages_ms().items():
            if name in found and age_ms >= limit_ms:
                waited = f" for {age_ms / 1000:.0f} s, longer than the option maxBrokerAway allows" if limit_ms else ""
                self.options.lost(
                    f"broker {name} is away{waited}, and its messages cannot be read: {found[name]}. Start it, or wait longer "
                    "with option maxBrokerAway",
                    BrokerAwayError,
                )

    def is_waited_for(self) -> bool:
        """Return whether a broker is away, and not for too long yet."""
        limit_ms, ages_ms = self.options.max_broker_away_ms or 0, self.ages_ms()
        return any(ages_ms[name] < limit_ms for name in self._away)

    def ages_ms(self) -> dict[str, int]:
        """Return how long ago each broker answered, in ms; for one that has not yet, how long it is known."""
        now_s = self.clock()
        return {name: int((now_s - at_s) * 1000) for name, at_s in sorted(self._contact_s.items())}
