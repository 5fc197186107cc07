"""Calls the intake steps of a broker, with which plugins change, redirect or refuse messages before they are stored.

See :class:`flintmq.core.kernel.ports.IntakeStep`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flintmq.core.kernel.ports.intake import ChecksAhead, ChecksBatches, IntakeStep, Sent
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.record import MessageExtBrokerInner


class IntakeSteps:
    """Passes each message to the intake steps that process messages with its topic or properties. Used only on the event loop's
    thread.

    An intake step changes, redirects or refuses messages before they are stored. Steps are called in the order in which they
    were added, and are added while a broker is assembled.

    Args:
        steps: the steps, in the order of their registration.
    """

    def __init__(self, steps: Iterable[IntakeStep] = ()) -> None:
        self._steps: tuple[tuple[IntakeStep, frozenset[str], tuple[str, ...]], ...] = ()
        self._ahead: tuple[ChecksAhead, ...] = ()
        self._batches: tuple[ChecksBatches, ...] = ()
        self.property_names: frozenset[str] = frozenset()
        """Names of properties. A message with any of these properties must be passed to :meth:`take`, because a step may
        change, redirect or refuse it."""
        self.topic_prefixes: tuple[str, ...] = ()
        """Prefixes of topics. A message to a topic with any of these prefixes must be passed to :meth:`take`, because a step
        may change, redirect or refuse it."""
        self.first_characters: frozenset[str] = frozenset()
        """First characters of the topic prefixes in :attr:`topic_prefixes`."""
        self.concerns_all = False
        """Whether every message must be passed to :meth:`take`, because at least one step may change, redirect or refuse any
        message."""
        for step in steps:
            self.add(step)

    def add(self, step: IntakeStep) -> None:
        """Add an intake step, which is called after the steps that were added before."""
        self._steps += ((step, step.property_names, step.topic_prefixes),)
        self._ahead += (step,) if isinstance(step, ChecksAhead) else ()
        self._batches += (step,) if isinstance(step, ChecksBatches) else ()
        self.property_names |= step.property_names
        self.topic_prefixes += step.topic_prefixes
        self.first_characters |= {prefix[:1] for prefix in step.topic_prefixes if prefix}
        self.concerns_all = self.concerns_all or "" in step.topic_prefixes

    def take(self, message: MessageExtBrokerInner, sent: Sent | None = None) -> bool:
        """Call ``take`` of the intake steps for a message until a call returns True; return whether a call returned True.

        Only the steps that process messages with the message's topic or properties are called.

        Args:
            message: the complete message. Steps may change it.
            sent: further fields of the send request; None if the broker itself stores the message in its real topic, for
                example a committed transaction.

        Raises:
            RefusedError: a step refuses the message.
        """
        topic = message.topic
        for step, names, prefixes in self._steps:
            if (not names.isdisjoint(message.properties) or topic.startswith(prefixes)) and step.take(message, sent):
                return True
            topic = message.topic
        return False

    def check_ahead(self, properties: Mapping[str, str]) -> None:
        """Raise an error if an intake step would refuse a message whose delivery another step delays.

        The sender thus gets the refusal now. Without this check, the message would be refused at its delivery.

        Raises:
            RefusedError: a step never accepts a message with these properties.
        """
        any(step.would_take(properties) for step in self._ahead)

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Raise an error if an intake step refuses a batch.

        Args:
            shared: properties that all messages of the batch have.
            batch: the messages of the batch.

        Raises:
            RefusedError: a step refuses the batch.
        """
        for step in self._batches:
            step.check_batch(shared, batch)
