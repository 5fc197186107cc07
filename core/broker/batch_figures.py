"""Keeps histograms of appends, and the queue offset from which each group pulls next in each queue. A broker keeps these values
only if a feature reads them, such as the metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from flintmq.core.histogram import SECONDS, Histogram

MESSAGES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
SIZES: Final = (1024.0, 4096.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0)
"""Bounds of the buckets of RocketMQ's histogram of message sizes, in bytes."""


NOTES_MAX: Final = 500
"""Maximum number of appends that are recorded before all of them are added to the histograms of appends. Adding this number of
appends takes a fraction of a millisecond."""


class BatchFigures:
    """Histograms of appends to the log, and the queue offsets at which the next pulls of consumer groups begin. Used only on
    the event loop's thread.

    For speed, an append is at first only recorded in a list. Later, many recorded appends are added to the histograms together.
    """

    def __init__(self) -> None:
        self._notes: list[tuple[int, float, str, int]] = []
        self.append_s = Histogram(SECONDS)
        """Durations of appends in seconds; each append counts once."""
        self.durable_s = Histogram(SECONDS)
        """Durations of appends in seconds, including the wait for durability. Only appends whose senders wait for durability
        count."""
        self.messages = Histogram(MESSAGES)
        """Numbers of messages per append."""
        self.sizes: dict[str, Histogram] = {}
        """Sizes of messages in bytes, keyed by topic. Each message counts with the mean size of the messages in its append."""
        self.pulled: dict[str, dict[tuple[int, str], int]] = {}
        """Queue offsets of groups' next pulls, keyed by topic, then by queue id and group."""

    def note(self, count: int, took_s: float, topic: str, size_bytes: int) -> None:
        """Record an append. Recorded appends are added to the histograms together, which is faster than adding each append by
        itself.

        Args:
            count: number of messages in the append.
            took_s: duration of the append, in seconds.
            topic: topic of all messages. The text is empty if the messages have several topics; :meth:`sized` then counts the
                sizes.
            size_bytes: size of the appended records.
        """
        self._notes.append((count, took_s, topic, size_bytes))
        if len(self._notes) >= NOTES_MAX:
            self.fold()

    def fold(self) -> None:
        """Add the recorded appends to the histograms. Call this method before the histograms are read."""
        # The loop repeats the code of Histogram.add, because a call of Histogram.add for each append would take longer.
        times, messages = self.append_s.counts, self.messages.counts
        for count, took_s, topic, size_bytes in self._notes:
            times[bisect_left(SECONDS, took_s)] += 1
            messages[bisect_left(MESSAGES, count)] += 1
            if topic:
                self.sized(topic, count, size_bytes)
        self.append_s.total += sum([note[1] for note in self._notes])
        self.messages.total += sum([note[0] for note in self._notes])
        self._notes.clear()

    def sized(self, topic: str, count: int, size_bytes: int) -> None:
        """Count the messages of a topic in an append; ``size_bytes`` is the total size of their records."""
        sizes = self.sizes.get(topic)
        if sizes is None:
            sizes = self.sizes[topic] = Histogram(SIZES)
        sizes.counts[bisect_left(SIZES, size_bytes / count)] += count
        sizes.total += size_bytes

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic's histogram and the recorded offsets of pulls from the topic."""
        self.sizes.pop(topic, None)
        self.pulled.pop(topic, None)

    def forget_group(self, group: str, topics: Iterable[str]) -> None:
        """Remove the recorded offsets of a deleted group's pulls. ``topics`` are the topics from which the group pulled."""
        for topic in topics:
            left = {key: at for key, at in self.pulled.pop(topic, {}).items() if key[1] != group}
            if left:
                self.pulled[topic] = left
