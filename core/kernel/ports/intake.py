"""The port of intake steps: what may redirect or refuse a message before it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from flintmq.core.record.batch import MessageBatch
    from flintmq.core.record.record import MessageExtBrokerInner


class Sent(msgspec.Struct, frozen=True):
    """What a send says beside its message."""

    version: int
    """The sender's version, as the ordinal of RocketMQ's ``MQVersion``."""
    max_reconsume_times: int | None = None
    """The number of redeliveries that a consumer allows for a message it sends to its retry topic; None if it names none."""


@runtime_checkable
class IntakeStep(Protocol):
    """Looks at messages that it is concerned with before they are stored. Loop thread.

    A step says by which properties or topics it is concerned; other messages pass without a call. Steps are asked in the order
    of their registration. The first that takes a message ends the chain.
    """

    @property
    def property_names(self) -> frozenset[str]:
        """Names of properties. A message that has one of them is handed to the step. Read once."""
        ...

    @property
    def topic_prefixes(self) -> tuple[str, ...]:
        """Beginnings of topics. A message that is sent to such a topic is handed to the step, whatever its properties.

        The empty text concerns the step with every message, which costs all sends some of their speed. Read once."""
        ...

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Change the message, redirect it to another topic, or leave it alone.

        A step that changes properties changes ``properties`` and ``properties_bytes``.

        Args:
            message: complete and within the limits of the broker; it may be changed.
            sent: what the send said besides; None for a message that the broker itself puts at the topic it was meant for
                (a committed transaction, a message that a consumer sent back).

        Returns:
            Whether the message is where it must be, so that no later step is asked.

        Raises:
            RefusedError: the message is not acceptable; the sender is answered with the error's code and remark.
        """
        ...


@runtime_checkable
class ChecksAhead(Protocol):
    """An intake step that can tell before a message waits for something else whether it would be refused later."""

    def would_take(self, properties: Mapping[str, str]) -> bool:
        """Return whether ``take`` would redirect a message with these properties.

        Raises:
            RefusedError: it could never be accepted.
        """
        ...


@runtime_checkable
class ChecksBatches(Protocol):
    """An intake step that refuses batches. A batch is stored in one piece, so a step cannot redirect its messages."""

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Look at a batch before it is stored.

        Args:
            shared: the properties that all messages of the batch have.
            batch: the messages; their stored properties contain the shared ones.

        Raises:
            RefusedError: the batch is not acceptable; nothing of it is stored.
        """
        ...
