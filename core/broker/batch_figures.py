"""What is counted per batch where something reads it: sizes and times of appends, and where groups pull next."""

from __future__ import annotations

from typing import Final

from flintmq.core.histogram import SECONDS, Histogram

MESSAGES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
SIZES: Final = (1024.0, 4096.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0)
"""RocketMQ's bounds of message sizes, in bytes."""


class BatchFigures:
    """Histograms of appends. Loop thread. Nothing is done for it per message."""

    def __init__(self) -> None:
        self.append_s = Histogram(SECONDS)
        """How long appends took, in seconds; each counts once."""
        self.durable_s = Histogram(SECONDS)
        """How long appends and the wait for their durability took, where senders wait for it."""
        self.messages = Histogram(MESSAGES)
        """Messages of an append."""
        self.sizes: dict[str, Histogram] = {}
        """By topic: the mean size of a message in each append, counted for every message of it."""
        self.pulled: dict[tuple[int, str, str], int] = {}
        """(queue, topic, group) → where the group's next pull goes on."""
        self._seen: dict[str, tuple[int, int]] = {}

    def appended(self, count: int, took_s: float) -> None:
        """Count an append of so many messages."""
        self.append_s.add(took_s)
        self.messages.add(count)

    def sized(self, topic: str, messages: int, size_bytes: int) -> None:
        """Count the messages of a topic that came since the last call.

        Args:
            topic: theirs.
            messages: how many were counted since :meth:`folded`, these among them.
            size_bytes: likewise, their records' bytes.
        """
        before_messages, before_bytes = self._seen.get(topic, (0, 0))
        self._seen[topic] = messages, size_bytes
        count = messages - before_messages
        if count > 0:
            sizes = self.sizes.get(topic)
            if sizes is None:
                sizes = self.sizes[topic] = Histogram(SIZES)
            sizes.add((size_bytes - before_bytes) / count, count)

    def folded(self) -> None:
        """Take note that counting begins at 0 again."""
        self._seen.clear()

    def forget_topic(self, topic: str) -> None:
        """Drop the figures of a topic that is deleted."""
        self.sizes.pop(topic, None)
        self.pulled = {key: at for key, at in self.pulled.items() if key[1] != topic}

    def forget_group(self, group: str) -> None:
        """Drop the figures of a group that is deleted."""
        self.pulled = {key: at for key, at in self.pulled.items() if key[2] != group}
