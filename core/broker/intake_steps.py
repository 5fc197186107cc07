"""The chain of intake steps of a broker (see :class:`flintmq.core.kernel.ports.IntakeStep`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flintmq.core.kernel.ports.intake import ChecksAhead, ChecksBatches, IntakeStep, Sent
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.record import MessageExtBrokerInner


class IntakeSteps:
    """Hands messages to the steps that they concern, in order. Filled while a broker is assembled. Loop thread.

    Args:
        steps: in the order of their registration.
    """

    def __init__(self, steps: Iterable[IntakeStep] = ()) -> None:
        self._steps: tuple[tuple[IntakeStep, frozenset[str], tuple[str, ...]], ...] = ()
        self._ahead: tuple[ChecksAhead, ...] = ()
        self._batches: tuple[ChecksBatches, ...] = ()
        self.property_names: frozenset[str] = frozenset()
        """A message that has one of these properties must be handed to :meth:`take`."""
        self.topic_prefixes: tuple[str, ...] = ()
        """A message to a topic with such a beginning must be handed to :meth:`take`."""
        self.first_characters: frozenset[str] = frozenset()
        """First characters of these beginnings."""
        self.concerns_all = False
        """Whether a step is concerned with every message."""
        for step in steps:
            self.add(step)

    def add(self, step: IntakeStep) -> None:
        """Put a step behind those that are there."""
        self._steps += ((step, step.property_names, step.topic_prefixes),)
        self._ahead += (step,) if isinstance(step, ChecksAhead) else ()
        self._batches += (step,) if isinstance(step, ChecksBatches) else ()
        self.property_names |= step.property_names
        self.topic_prefixes += step.topic_prefixes
        self.first_characters |= {prefix[:1] for prefix in step.topic_prefixes if prefix}
        self.concerns_all = self.concerns_all or "" in step.topic_prefixes

    def take(self, message: MessageExtBrokerInner, sent: Sent | None = None) -> bool:
        """Ask each step that the message concerns; return whether one has taken it.

        Args:
            message: complete; it may be changed.
            sent: what the send said besides; None for a message that the broker puts at the topic it was meant for.

        Raises:
            RefusedError: a step refuses it.
        """
        topic = message.topic
        for step, names, prefixes in self._steps:
            if (not names.isdisjoint(message.properties) or topic.startswith(prefixes)) and step.take(message, sent):
                return True
            topic = message.topic
        return False

    def check_ahead(self, properties: Mapping[str, str]) -> None:
        """Refuse what a step would refuse once the message may go to its topic.

        Raises:
            RefusedError: a message with these properties could never be accepted.
        """
        any(step.would_take(properties) for step in self._ahead)

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Refuse a batch that a step does not accept.

        Args:
            shared: the properties that all messages of the batch have.

        Raises:
            RefusedError: as a step has it.
        """
        for step in self._batches:
            step.check_batch(shared, batch)
