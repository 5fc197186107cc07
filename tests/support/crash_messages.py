"""Messages for the scripts of the crash lab: their sizes, queues and keys come from a seed."""

from __future__ import annotations

import random
from typing import Any, Final

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.log.commit_log import Appendable
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from flintmq.testing.store import batch, message

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_TOPICS: Final = (("A", 0), ("A", 1), ("B", 0))
_PATTERN: Final = bytes(range(1, 252))


class CrashMessages:
    """Makes what one script puts; the same seed makes the same messages."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._sequence = 0

    def small(self) -> list[Appendable]:
        """Return one small message."""
        topic, queue_id = self._rng.choice(_TOPICS)
        return [self._message(topic, queue_id, self._size())]

    def large(self) -> list[Appendable]:
        """Return one that fills most of a file."""
        return [self._message("B", 0, self._rng.choice((4_000, 5_500, 7_800)))]

    def batch(self) -> list[Appendable]:
        """Return a batch as the wire brings it, or as a list of messages that differ in more, and one message behind it."""
        topic, queue_id = self._rng.choice(_TOPICS)
        members = [self._message(topic, queue_id, self._size() // 2) for _ in range(self._rng.randrange(2, 6))]
        return [batch(members) if self._sequence % 2 else members, self._message("A", 0, 20)]

    def delayed(self) -> list[Appendable]:
        """Return one that waits for its delay level."""
        level = self._rng.randrange(1, 4)
        return [self._message(SCHEDULE_TOPIC, level - 1, 40, DELAY=str(level), REAL_TOPIC="A", REAL_QID="0")]

    def half(self) -> list[Appendable]:
        """Return a half message."""
        return [self._message(HALF_TOPIC, 0, 60, REAL_TOPIC="A", REAL_QID="1")]

    def committed(self, half: DispatchRequest) -> list[Appendable]:
        """Return the message that a commit makes of a half message."""
        place = half.commit_log_offset_bytes
        options = {"sys_flag": TRANSACTION_COMMIT, "prepared_transaction_offset_bytes": place}
        return [self._message("A", 1, 60, **options)]

    def unqueued(self) -> list[Appendable]:
        """Return one that no queue sees."""
        return [self._message("A", 0, 30, sys_flag=TRANSACTION_PREPARED)]

    def _message(self, topic: str, queue_id: int, size: int, **more: Any) -> MessageExtBrokerInner:
        self._sequence += 1
        number = self._sequence
        body = (_PATTERN * (size // len(_PATTERN) + 2))[number % 251 :][:size]
        keys = " ".join(f"K{number}.{at}" for at in range(number % 3))
        tags = ("", "red", "blue")[number % 3]
        return message(topic, queue_id, body, tags=tags, keys=keys, uniq_key=f"U{number}", **more)

    def _size(self) -> int:
        return self._rng.choice((0, 10, 30, 90, 200, 420, 700))
