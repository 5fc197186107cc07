"""Records which brokers a Spark read knows, when each broker last answered, and which brokers do not answer now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.spark.errors import BrokerAwayError
from flintmq.plugins.spark.options import ReadOptions


@attrs.define
class Contacts:
    """The brokers that the planner of a Spark query knows. Not thread-safe.

    When a broker stops, the name server removes the broker from the routes of its topics. Without this record the broker's
    queues would look deleted. :meth:`know` adds the brokers of the queues in a checkpoint.
    """

    options: ReadOptions
    clock: Callable[[], float] = time.monotonic
    """Function that returns the time in seconds. Only differences between two times are used."""
    _topics: dict[str, set[str]] = attrs.field(factory=dict)
    """Names of the brokers that had a topic, keyed by topic."""
    _contact_s: dict[str, float] = attrs.field(factory=dict)
    """Time in seconds of each broker's last answer, keyed by broker name. For a broker that never answered, the value is the
    time at which its name became known."""
    _away: dict[str, str] = attrs.field(factory=dict)
    """Error text of the last attempt to reach a broker that does not answer, keyed by broker name."""

    @property
    def away(self) -> Mapping[str, str]:
        """Error texts of the brokers that did not answer at the last attempt, keyed by broker name."""
        return self._away

    @property
    def topics(self) -> list[str]:
        """Topics that at least one broker is known to have."""
        return [topic for topic, names in self._topics.items() if names]

    def know(self, queues: Iterable[MessageQueue]) -> None:
        """Record which broker has which topics."""
        for queue in queues:
            self.know_brokers(queue.topic, (queue.broker_name,))

    def know_brokers(self, topic: str, broker_names: Iterable[str]) -> None:
        """Record that the brokers with the given names have a topic."""
        for name in broker_names:
            self._topics.setdefault(topic, set()).add(name)
            self._contact_s.setdefault(name, self.clock())

    def forget(self, topic: str, broker_names: Iterable[str]) -> None:
        """Record that some brokers no longer have a topic, because the topic was deleted."""
        self._topics.get(topic, set()).difference_update(broker_names)

    def brokers_of(self, topic: str) -> frozenset[str]:
        """Return the names of the brokers that are known to have a topic."""
        return frozenset(self._topics.get(topic, ()))

    def answered(self, broker_names: Iterable[str]) -> None:
        """Record that some brokers have just answered a request."""
        now_s = self.clock()
        for name in broker_names:
            self._contact_s[name] = now_s
            self._away.pop(name, None)

    def silent(self, found: Mapping[str, str]) -> None:
        """Record that some brokers do not answer requests, with an error text for each broker.

        Raises:
            BrokerAwayError: a broker has been away for longer than the option ``maxBrokerAway``. With ``failOnDataLoss`` off, a
                warning is logged instead.
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
        """Return whether any broker does not answer now, but answered less than ``maxBrokerAway`` (an option) ago. The query
        waits for such a broker."""
        limit_ms, ages_ms = self.options.max_broker_away_ms or 0, self.ages_ms()
        return any(ages_ms[name] < limit_ms for name in self._away)

    def ages_ms(self) -> dict[str, int]:
        """Return the time in ms since the last answer of each broker, keyed by broker name. For a broker that never answered,
        the time begins when the broker was added to this record."""
        now_s = self.clock()
        return {name: int((now_s - at_s) * 1000) for name, at_s in sorted(self._contact_s.items())}
