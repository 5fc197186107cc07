"""The interface of services that keep messages after retention has deleted them from the store, such as an archive or a tiered
storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class ServesOlderMessages(Protocol):
    """A service that returns messages below the minimum offset of a queue, for pulls.

    Pulls of consumer groups call the service, whichever protocol the client uses. Brokers without such a service, and pulls at
    or above the minimum, lose no speed. If the service raises, the error is counted for its plugin, and the group continues at
    the minimum.
    """

    def read_older(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> Sequence[bytes | memoryview] | None:
        """Return the first messages of a queue from a queue offset on. Called on the loop's thread; the method must not block.

        A service that has to fetch the messages returns an empty sequence. The pull is then held, if its client allows that.
        When the service has the messages, it calls ``api.outlet.held.notify_arriving(topic, queue_id, queue_offset + 1)``. The
        broker then calls this method again.

        Returns:
            Whole records in the form of the log, one in each element, with consecutive queue offsets. None if the service does
            not have the first message. The broker checks the records, and then applies the filter of the pull.
        """
        ...
