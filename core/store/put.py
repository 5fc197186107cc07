"""What an append became."""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.core.kernel.ports import AppendUnit, FlushWaiter
from flintmq.core.log.appender import Appended


class Put:
    """What one append became, and the promise that it is durable."""

    __slots__ = ("messages", "records", "results", "took_s", "waiter")

    def __init__(
        self,
        results: list[Appended],
        records: Sequence[AppendUnit],
        messages: int,
        waiter: FlushWaiter,
        took_s: float = 0.0,
    ) -> None:
        self.results = results
        """One entry for each message or batch that was handed over."""
        self.records = records
        """Everything that was stored, in the order of the log; the messages of a batch as a whole."""
        self.messages = messages
        """How many those are."""
        self.waiter = waiter
        self.took_s = took_s
        """How long the append took, without the wait for its durability."""
