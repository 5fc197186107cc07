"""A consumer's policy for messages that cannot be read: whether the listener gets them, and when a message is skipped.

See docs/client.md, Messages that cannot be read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from flintmq.core.errors import RefusedError
from flintmq.remoting.client.consumer_settings import ConsumerSettings
from flintmq.remoting.client.instance import log
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.process_queue import ProcessQueue
from flintmq.remoting.wire.codes import ResponseCode

RECONSUME_MAX: Final = 16
"""Default number of redeliveries after which a message becomes a dead letter."""

_NAMELESS: Final = "a message without an id"


class UnreadableMessages:
    """A consumer's policy for messages that cannot be read: withhold, deliver, or skip them.

    Used only on the event loop's thread.

    Args:
        settings: the consumer's settings.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self._withholds = settings.unreadable == "retry"
        limit = settings.max_reconsume_times
        self._tries_max = RECONSUME_MAX if limit is None else limit

    def units(self, messages: Sequence[MessageExt], size: int) -> list[Sequence[MessageExt]]:
        """Split messages of one queue into parts of at most ``size``, in order.

        Each message that is withheld from the listener forms a part by itself.
        """
        if size == 1 or not self._withholds or not any(message.body_error for message in messages):
            return [messages[at : at + size] for at in range(0, len(messages), size)]
        units: list[Sequence[MessageExt]] = []
        for is_withheld, alike in itertools.groupby(messages, self.is_withheld):
            part, part_size = tuple(alike), 1 if is_withheld else size
            units += [part[at : at + part_size] for at in range(0, len(part), part_size)]
        return units

    def is_withheld(self, message: MessageExt) -> bool:
        """Return whether a message is unreadable and the settings keep such messages from the listener."""
        return bool(message.body_error) and self._withholds

    def log_withheld(self, held: ProcessQueue, message: MessageExt) -> None:
        """Log that an unreadable message is withheld from the listener, and why."""
        log.warning(
            "client.unreadable",
            "%(message)s at offset %(queue_offset)d of %(queue)s cannot be read and is not given to the listener: "
            "%(reason)s",
            message=message.msg_id or _NAMELESS,
            queue_offset=message.queue_offset,
            queue=held.queue,
            reason=message.body_error,
        )

    def is_passed_over(self, held: ProcessQueue, message: MessageExt, failure: Exception) -> bool:
        """Skip an unreadable message if its broker cannot read it and refused to take it back. Return whether it was skipped.

        If the message were not skipped, the consumer could never commit a later offset of the queue. The message is skipped
        only after the maximum number of attempts, because a broker may find the message later.
        """
        is_lost = isinstance(failure, RefusedError) and failure.code == ResponseCode.SYSTEM_ERROR
        if not message.body_error or not is_lost or message.reconsume_times < self._tries_max:
            return False
        log.error(
            "client.passed_over",
            "%(message)s at offset %(queue_offset)d of %(queue)s cannot be read nor sent back, and is skipped: "
            "%(error)s",
            message=message.msg_id or _NAMELESS,
            queue_offset=message.queue_offset,
            queue=held.queue,
            error=failure,
        )
        held.done((message,))
        return True
