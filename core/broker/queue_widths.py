"""Records topics with queues that consumers do not read.

Such a topic has more write queues than read queues, or once had more read queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from flintmq.core.broker.topic_config import TopicConfig


class QueueWidths:
    """Keeps the largest number of queues that a topic has had, if its present number of read queues is smaller. Used only on
    the event loop's thread.

    Args:
        select: returns the current configuration of a topic, or None.
    """

    def __init__(self, select: Callable[[str], TopicConfig | None]) -> None:
        self._select = select
        self._widest: dict[str, int] = {}

    def __iter__(self) -> Iterator[tuple[TopicConfig, range]]:
        """Yield each topic that has queues which consumers do not read: the topic's configuration and the range of the ids of
        these queues.

        Consumers read only the queues whose ids are less than the topic's number of read queues (``readQueueNums``). A queue
        that they do not read may be empty.
        """
        for topic, widest in self._widest.items():
            config = self._select(topic)
            if config is not None:
                yield config, range(config.read_queue_nums, widest)

    def queue_ids(self, topic: str) -> range:
        """Return the ids of all queues in which a topic may have messages, including queues that the topic no longer has."""
        config = self._select(topic)
        queue_nums = max(config.read_queue_nums, config.write_queue_nums) if config is not None else 0
        return range(max(queue_nums, self._widest.get(topic, 0)))

    def note(self, topic: str, config: TopicConfig | None, before: TopicConfig | None) -> None:
        """Record that a topic was created, changed or deleted.

        Args:
            topic: name of the topic.
            config: the topic's new configuration; None if it was deleted.
            before: the topic's former configuration; None if it was created.
        """
        if config is None:
            self._widest.pop(topic, None)
        else:
            self._note(config, max(config.write_queue_nums, before.read_queue_nums if before is not None else 0))

    def note_queues(self, queues: Iterable[tuple[str, int]]) -> None:
        """Record the queues that a store contains, given as pairs of topic and queue id."""
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
