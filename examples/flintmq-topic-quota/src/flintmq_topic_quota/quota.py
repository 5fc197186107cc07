"""A quota of bytes: what an intake step counts, and a service begins again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from flintmq.core.broker.api import PeriodicTimers
from flintmq.core.kernel.ports import WARNING, Alarm, Sent
from flintmq.protocol import MessageBatch, MessageExtBrokerInner, RefusedError, ResponseCode

USED: Final = "topicQuotaUsedBytes"
"""The figure of request 28."""


class Quota:
    """How many bytes each topic has sent in the present period. Loop thread.

    Args:
        max_bytes: what a topic may send.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes: Counter[str] = Counter()

    def take(self, topic: str, size_bytes: int) -> None:
        """Count bytes of a topic. Raises ``RefusedError`` where these are too many; then none are counted."""
        wanted = self.used_bytes[topic] + size_bytes
        if wanted > self.max_bytes:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the topic {topic} has sent its bytes of the period",
                reason="topic_quota.used",
                measured=f"{wanted} bytes",
                key="topic_quota.max_bytes",
            )
        self.used_bytes[topic] = wanted

    def ended(self) -> list[str]:
        """Return the topics that have nothing left in this period, in the order of their names."""
        return sorted(topic for topic, used in self.used_bytes.items() if used >= self.max_bytes)


class QuotaStep:
    """The intake step (:class:`flintmq.core.kernel.ports.IntakeStep`). Loop thread.

    Args:
        quota: what it counts in.
        topics_prefix: beginning of the topics that it is concerned with.
    """

    def __init__(self, quota: Quota, topics_prefix: str) -> None:
        self._quota = quota
        self.property_names: frozenset[str] = frozenset()
        self.topic_prefixes = (topics_prefix,)

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Count the body of a message; let later steps look at it. Raises ``RefusedError``."""
        if sent is not None:
            self._quota.take(message.topic, len(message.body))
        return False

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Count the bodies of a batch to such a topic. Raises ``RefusedError``."""
        if batch.topic.startswith(self.topic_prefixes):
            self._quota.take(batch.topic, sum(map(len, batch.bodies)))


class QuotaService:
    """The service (:class:`flintmq.core.kernel.ports.Service`). Loop thread.

    Args:
        quota: what it begins again.
        period_s: how often.
        timers: the broker's.
    """

    def __init__(self, quota: Quota, period_s: int, timers: PeriodicTimers) -> None:
        self._quota = quota
        self._period_s = period_s
        self._timers = timers

    def start(self) -> None:
        """Begin a new period each time one has passed."""
        self._timers.every(self._period_s, self._quota.used_bytes.clear, "topic quota")

    def stop(self) -> None:
        """Do nothing: the timers have ended."""

    def runtime_info(self) -> Mapping[str, str]:
        """Return how many bytes all topics have used together."""
        return {USED: str(self._quota.used_bytes.total())}

    def health(self) -> str:
        """Return which topics have nothing left; an empty text where all have."""
        ended = self._quota.ended()
        return f"the quota is used up: {', '.join(ended)}" if ended else ""

    def alarms(self) -> Iterator[Alarm]:
        """Yield an alarm for each topic that has nothing left."""
        limit = self._quota.max_bytes
        for topic in self._quota.ended():
            text = f"the topic {topic} has sent its bytes of the period: raise topic_quota.max_bytes, or wait"
            used = self._quota.used_bytes[topic]
            yield Alarm("topic_quota.used", WARNING, topic, text, used, "bytes", limit, "topic_quota.max_bytes")
