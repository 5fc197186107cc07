"""The interfaces of intake steps, which may change, redirect or refuse a message before it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from flintmq.core.record.batch import MessageBatch
    from flintmq.core.record.record import MessageExtBrokerInner


class Sent(msgspec.Struct, frozen=True):
    """The fields of a send request that intake steps use besides the message."""

    version: int
    """Version of the sender, as the ordinal of RocketMQ's ``MQVersion``."""
    max_reconsume_times: int | None = None
    """Maximum number of redeliveries that a consumer allows for a message that it sends back; None if the request names no
    maximum."""


@runtime_checkable
class IntakeStep(Protocol):
    """An intake step, which redirects, changes or refuses certain messages before they are stored. Used only on the event
    loop's thread.

    A step names the properties and topics of the messages that it processes; it is not called for other messages. Steps are
    called in the order of their registration. The first step whose ``take`` returns True ends the chain.
    """

    @property
    def property_names(self) -> frozenset[str]:
        """Names of properties; the intake step is called for a message that has one of these properties.

        The broker reads the names once.
        """
        ...

    @property
    def topic_prefixes(self) -> tuple[str, ...]:
        """Prefixes of topic names; the intake step is called for a message to a topic with one of these prefixes.

        The broker reads the prefixes once. With an empty prefix, the step is called for every message, which makes all sends
        slower.
        """
        ...

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Change the message, redirect it to another topic, or leave it unchanged.

        A step that changes properties must change both ``properties`` and ``properties_bytes`` of the message.

        Args:
            message: the complete message, within the limits of the broker; the step may change it.
            sent: other fields of the send request; None for a message that the broker itself stores in its real topic (a
                committed transaction, a message that a consumer sent back).

        Returns:
            True if no later step is to be called for the message.

        Raises:
            RefusedError: the message is not acceptable; the sender is answered with the error's code and remark.
        """
        ...


@runtime_checkable
class ChecksAhead(Protocol):
    """An intake step that can check a message before another step delays it.

    Without this check, the step would refuse the message only after the delay, when no sender waits for an answer.
    """

    def would_take(self, properties: Mapping[str, str]) -> bool:
        """Return whether the intake step's ``take`` would redirect a message with the given properties.

        Raises:
            RefusedError: ``take`` would refuse such a message.
        """
        ...


@runtime_checkable
class ChecksBatches(Protocol):
    """An intake step that refuses batches. A batch is stored in one piece, so a step cannot redirect its messages."""

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Check a batch of messages before it is stored.

        Args:
            shared: the properties that all messages of the batch have in common.
            batch: the messages; their stored properties contain the shared properties.

        Raises:
            RefusedError: the batch is not acceptable; nothing of it is stored.
        """
        ...
