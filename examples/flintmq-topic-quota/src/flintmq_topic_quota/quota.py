"""A quota of bytes for each topic.

An intake step counts the bytes of messages before they are stored, and a service resets the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from flintmq.core.broker.api import PeriodicTimers
from flintmq.core.kernel.ports import WARNING, Alarm, Sent
from flintmq.protocol import MessageBatch, MessageExtBrokerInner, RefusedError, ResponseCode

USED: Final = "topicQuotaUsedBytes"
"""Name of the figure in the answer to request 28 (``GET_BROKER_RUNTIME_INFO``) that has the number of used bytes of all
quotas."""


class Quota:
    """The numbers of bytes that were sent to each topic in the current period. Used only on the event loop's thread.

    Args:
        max_bytes: number of bytes that may be sent to a topic in a period.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes: Counter[str] = Counter()

    def take(self, topic: str, size_bytes: int) -> None:
        """Count bytes sent to a topic. If the bytes exceed the topic's quota, raise ``RefusedError`` and do not count them."""
        wanted = self.used_bytes[topic] + size_bytes
        if wanted > self.max_bytes:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the topic {topic} has used its quota of bytes for the period",
                reason="topic_quota.used",
                measured=f"{wanted} bytes",
                key="topic_quota.max_bytes",
            )
        self.used_bytes[topic] = wanted

    def ended(self) -> list[str]:
        """Return the topics whose quota is used up in this period, in the order of their names."""
        return sorted(topic for topic, used in self.used_bytes.items() if used >= self.max_bytes)


class QuotaStep:
    """Counts the bytes of messages before the messages are stored. Used only on the event loop's thread.

    The class implements :class:`flintmq.core.kernel.ports.IntakeStep`, with which plugins change or refuse messages.

    Args:
        quota: the counts of bytes, and the quota.
        topics_prefix: prefix of the names of the topics whose bytes are counted.
    """

    def __init__(self, quota: Quota, topics_prefix: str) -> None:
        self._quota = quota
        self.property_names: frozenset[str] = frozenset()
        self.topic_prefixes = (topics_prefix,)

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Count the bytes of a message's body. Return False, so that the intake steps of other plugins also get the message.

        Raises ``RefusedError`` if the topic's quota is exceeded.
        """
        if sent is not None:
            self._quota.take(message.topic, len(message.body))
        return False

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Count the bodies of a batch to a topic with a quota. Raises ``RefusedError`` if the quota is exceeded."""
        if batch.topic.startswith(self.topic_prefixes):
            self._quota.take(batch.topic, sum(map(len, batch.bodies)))


class QuotaService:
    """The service (:class:`flintmq.core.kernel.ports.Service`) that resets the quota. Used only on the event loop's thread.

    Args:
        quota: the counts of bytes to reset.
        period_s: length of a period in seconds.
        timers: the broker's timers.
    """

    def __init__(self, quota: Quota, period_s: int, timers: PeriodicTimers) -> None:
        self._quota = quota
        self._period_s = period_s
        self._timers = timers

    def start(self) -> None:
        """Start the timer that resets the counts at the end of each period."""
        self._timers.every(self._period_s, self._quota.used_bytes.clear, "topic quota")

    def stop(self) -> None:
        """Do nothing at the stop of the service: the broker itself stops the timer that resets the counts."""

    def runtime_info(self) -> Mapping[str, str]:
        """Return the number of bytes that were sent in this period to all topics with a quota."""
        return {USED: str(self._quota.used_bytes.total())}

    def health(self) -> str:
        """Return a text with the topics whose quota is used up; empty if no quota is used up."""
        ended = self._quota.ended()
        return f"the quota is used up: {', '.join(ended)}" if ended else ""

    def alarms(self) -> Iterator[Alarm]:
        """Yield an alarm for each topic whose quota is used up."""
        limit = self._quota.max_bytes
        for topic in self._quota.ended():
            text = f"the topic {topic} has sent its bytes of the period: raise topic_quota.max_bytes, or wait"
            used = self._quota.used_bytes[topic]
            yield Alarm("topic_quota.used", WARNING, topic, text, used, "bytes", limit, "topic_quota.max_bytes")
