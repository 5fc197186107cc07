"""What is counted per batch where something reads it: sizes and times of appends, and where groups pull next."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from flintmq.core.histogram import SECONDS, Histogram

MESSAGES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
SIZES: Final = (1024.0, 4096.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0)
"""RocketMQ's bounds of message sizes, in bytes."""


NOTES_MAX: Final = 500
"""Notes that are counted at once at the latest, which takes a fraction of a millisecond."""


class BatchFigures:
    """Histograms of appends. Loop thread. Nothing is done for it per message, and per append a note is taken."""

    def __init__(self) -> None:
        self._notes: list[tuple[int, float, str, int]] = []
        self.append_s = Histogram(SECONDS)
        """How long appends took, in seconds; each counts once."""
        self.durable_s = Histogram(SECONDS)
        """How long appends and the wait for their durability took, where senders wait for it."""
        self.messages = Histogram(MESSAGES)
        """Messages of an append."""
        self.sizes: dict[str, Histogram] = {}
        """By topic: the mean size of a message in each append, counted for every message of it."""
        self.pulled: dict[str, dict[tuple[int, str], int]] = {}
        """Topic → (queue, group) → where the group's next pull goes on, of what is folded."""

    def note(self, count: int, took_s: float, topic: str, size_bytes: int) -> None:
        """Note an append, to be counted with others: code and figures are in the processor's caches then.

        Args:
            count: its messages.
            took_s: how long it took.
            topic: of all of its messages; empty where there are several, whose sizes are counted by :meth:`sized`.
            size_bytes: its records' bytes.
        """
        self._notes.append((count, took_s, topic, size_bytes))
        if len(self._notes) >= NOTES_MAX:
            self.fold()

    def fold(self) -> None:
        """Count what is noted; before the histograms are read."""
        times, messages = self.append_s.counts, self.messages.counts  # as Histogram.add does, without its calls
        for count, took_s, topic, size_bytes in self._notes:
            times[bisect_left(SECONDS, took_s)] += 1
            messages[bisect_left(MESSAGES, count)] += 1
            if topic:
                self.sized(topic, count, size_bytes)
        self.append_s.total += sum([note[1] for note in self._notes])
        self.messages.total += sum([note[0] for note in self._notes])
        self._notes.clear()

    def sized(self, topic: str, count: int, size_bytes: int) -> None:
        """Count the messages of a topic in an append, whose records have so many bytes together."""
        sizes = self.sizes.get(topic)
        if sizes is None:
            sizes = self.sizes[topic] = Histogram(SIZES)
        sizes.counts[bisect_left(SIZES, size_bytes / count)] += count
        sizes.total += size_bytes

    def forget_topic(self, topic: str) -> None:
        """Drop the figures of a topic that is deleted."""
        self.sizes.pop(topic, None)
        self.pulled.pop(topic, None)

    def forget_group(self, group: str, topics: Iterable[str]) -> None:
        """Drop the figures of a group that is deleted, in all topics that it had some in."""
        for topic in topics:
            left = {key: at for key, at in self.pulled.pop(topic, {}).items() if key[1] != group}
            if left:
                self.pulled[topic] = left
