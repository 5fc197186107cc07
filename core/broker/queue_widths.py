"""Which topics have queues that nobody reads: they had more read queues once, or have more write queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from flintmq.core.broker.topic_config import TopicConfig


class QueueWidths:
    """How many queues topics had, where fewer are read now. Loop thread.

    Args:
        select: returns a topic's configuration as it is now, or None.
    """

    def __init__(self, select: Callable[[str], TopicConfig | None]) -> None:
        self._select = select
        self._widest: dict[str, int] = {}

    def __iter__(self) -> Iterator[tuple[TopicConfig, range]]:
        """Iterate over the topics with such queues, and which those are; some may hold nothing."""
        for topic, widest in self._widest.items():
            config = self._select(topic)
            if config is not None:
                yield config, range(config.read_queue_nums, widest)

    def queue_ids(self, topic: str) -> range:
        """Return the queues in which a topic may have messages: those that it has, and those that it had."""
        config = self._select(topic)
        queue_nums = max(config.read_queue_nums, config.write_queue_nums) if config is not None else 0
        return range(max(queue_nums, self._widest.get(topic, 0)))

    def note(self, topic: str, config: TopicConfig | None, before: TopicConfig | None) -> None:
        """Take note of a topic that was made or changed, or deleted (None); ``before`` is what it was."""
        if config is None:
            self._widest.pop(topic, None)
        else:
            self._note(config, max(config.write_queue_nums, before.read_queue_nums if before is not None else 0))

    def note_queues(self, queues: Iterable[tuple[str, int]]) -> None:
        """Take note of the queues that a store holds, by topic and queue id."""
        for topic, queue_id in queues:
            config = self._select(topic)
            if config is not None and queue_id >= config.read_queue_nums:
                self._note(config, queue_id + 1)

    def _note(self, config: TopicConfig, had: int) -> None:
        topic = config.topic_name
        widest = max(had, self._widest.get(topic, 0))
        if widest > config.read_queue_nums:
            self._widest[topic] = widest
        else:
            self._widest.pop(topic, None)
