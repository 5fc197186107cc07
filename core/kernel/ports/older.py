"""The port of services that have messages which retention has deleted from the store: an archive, a tiered storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class ServesOlderMessages(Protocol):
    """A service that answers pulls below the minimum offset of a queue.

    Every pull for a group asks it, of whatever protocol. A broker without such a service, and a pull at or above the
    minimum, pays nothing. If it raises, the error is counted for its plugin, and the group continues at the minimum.
    """

    def read_older(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> Sequence[bytes | memoryview] | None:
        """Return the first messages of a queue from a queue offset on. Loop thread; it must not block.

        A service that has to fetch them returns an empty sequence: the pull is held, if its client lets it. When they are
        there, the service calls ``api.outlet.held.notify_arriving(topic, queue_id, queue_offset + 1)``, and is asked again.

        Returns:
            Whole records as the log had them, each its own element, of consecutive queue offsets. They are checked. The
            filter of the pull is applied afterwards. None if the service does not have the first message.
        """
        ...
