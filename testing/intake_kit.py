"""Checks that an intake step follows the rules of its interface, :class:`~flintmq.core.kernel.ports.intake.IntakeStep`. Intake
steps change, redirect or refuse messages before they are stored.

From a test of your plugin::

    from flintmq.testing.intake_kit import IntakeSample, check_intake_step
    from flintmq.testing.store import message

    def test_the_step_passes_the_intake_kit():
        check_intake_step(lambda: MyStep(settings), [IntakeSample(message("T", HOLD="1"))])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import msgspec

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.plugin_shapes import drop
from flintmq.core.kernel.ports.intake import ChecksAhead, ChecksBatches, IntakeStep, Sent
from flintmq.core.record.properties import string_to_properties
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.testing.failure import KitFailure, expect
from flintmq.testing.store import batch

_SENT: Final = Sent(version=407)


@attrs.frozen
class IntakeSample:
    """A sample message for the test of an intake step, as a client sends the message. Intake steps change, redirect or refuse
    messages. The sample has a property or a topic for which the step is called."""

    message: MessageExtBrokerInner
    sent: Sent | None = _SENT


@attrs.frozen
class Taken:
    """A sample message after the call of an intake step, which may have changed, redirected or refused the message."""

    message: MessageExtBrokerInner
    """Copy of the sample message that was passed to the tested intake step, after the call. An intake step may change, redirect
    or refuse a message before it is stored. The step changes only the copy, so that the sample message stays unchanged."""
    ends_chain: bool
    """Result of the intake step's method ``take``: True if the broker then calls no further intake step for the message, False
    if the broker calls the next intake step. If the step refused the message, ``take`` has no result, and this value is
    False."""
    refusal: RefusedError | None = None


def check_intake_step(make: Callable[[], IntakeStep], samples: Sequence[IntakeSample]) -> list[Taken]:
    """Run every check of an intake step, which changes, redirects or refuses messages before they are stored. Each sample
    message is passed to a new step.

    Args:
        make: returns a new step.
        samples: messages for which the step is called. For some messages, ``take`` returns True or refuses the message; the
            step does not change the remaining messages.

    Returns:
        The results for the samples, in their order, for the caller's assertions.

    Raises:
        KitFailure: names the broken rule.
    """
    _check_concerns(make(), samples)
    results = []
    for sample in samples:
        step = make()
        concerns = (step.property_names, step.topic_prefixes)
        taken = _take(step, sample)
        expect(concerns == (step.property_names, step.topic_prefixes), "what a step is concerned with does not change")
        _check_changes(sample.message, taken)
        _take(make(), attrs.evolve(sample, sent=None))
        ahead, batches = make(), make()
        if isinstance(ahead, ChecksAhead):
            _check_ahead(ahead, sample, taken)
        if isinstance(batches, ChecksBatches):
            _check_batch(batches, sample)
        results.append(taken)
    return results


def _check_concerns(step: IntakeStep, samples: Sequence[IntakeSample]) -> None:
    names, prefixes = step.property_names, step.topic_prefixes
    expect(isinstance(names, frozenset), "property_names is a frozenset", names)
    expect(isinstance(prefixes, tuple), "topic_prefixes is a tuple", prefixes)
    expect(all(isinstance(text, str) for text in (*names, *prefixes)), "names and prefixes are text", (names, prefixes))
    for sample in samples:
        concerned = not names.isdisjoint(sample.message.properties) or sample.message.topic.startswith(prefixes)
        expect(concerned, "a sample concerns the step, which is asked about no other message", sample.message)


def _take(step: IntakeStep, sample: IntakeSample) -> Taken:
    message = _copy(sample.message)
    try:
        ends_chain: object = step.take(message, sample.sent)
    except Exception as error:
        return Taken(message, ends_chain=False, refusal=_refusal("take", error))
    drop(ends_chain)
    expect(isinstance(ends_chain, bool), "take is a plain method that returns True or False", ends_chain)
    return Taken(message, ends_chain is True)


def _refusal(method: str, error: Exception) -> RefusedError:
    """Return the error that a method of an intake step raised to refuse a message. Raises ``KitFailure`` for any other
    error."""
    if not isinstance(error, RefusedError):
        raise KitFailure(f"{method} raised {type(error).__name__}, not RefusedError: {error}") from error
    expect(bool(error.reason), "a refusal has a stable reason", error.remark)
    return error


def _check_changes(before: MessageExtBrokerInner, taken: Taken) -> None:
    after = taken.message
    if taken.refusal is not None:
        return
    expect(isinstance(after.topic, str) and after.topic != "", "a message has a topic", after.topic)
    expect(isinstance(after.queue_id, int) and after.queue_id >= 0, "a message has a queue", after.queue_id)
    expect(isinstance(after.properties_bytes, bytes), "the stored properties are bytes", after.properties_bytes)
    stored = string_to_properties(after.properties_bytes.decode("utf-8", "surrogatepass"))
    for name in {*before.properties, *after.properties}:
        value = after.properties.get(name)
        if value != before.properties.get(name):
            seen = (name, value, stored.get(name))
            expect(stored.get(name) == value, "a change of properties is one of properties_bytes, too", seen)


def _check_ahead(step: ChecksAhead, sample: IntakeSample, taken: Taken) -> None:
    properties = dict(sample.message.properties)
    try:
        would_take: object = step.would_take(properties)
    except Exception as error:
        refusal = _refusal("would_take", error)
        expect(taken.refusal is not None, "what would_take refuses is refused by take", refusal.remark)
        return
    drop(would_take)
    expect(isinstance(would_take, bool), "would_take is a plain method that returns True or False", would_take)
    expect(properties == sample.message.properties, "would_take changes nothing", properties)
    expect(
        would_take is True or not taken.ends_chain, "would_take is True for the properties of a message that take takes"
    )


def _check_batch(step: ChecksBatches, sample: IntakeSample) -> None:
    members = [_copy(sample.message), _copy(sample.message)]
    given, untouched, shared = batch(members), batch(members), dict(sample.message.properties)
    try:
        returned: object = step.check_batch(shared, given)  # type: ignore[func-returns-value]
    except Exception as error:
        _refusal("check_batch", error)
        returned = None
    drop(returned)
    expect(returned is None, "check_batch returns nothing: it refuses by RefusedError", returned)
    expect(shared == sample.message.properties, "check_batch changes no property", shared)
    same = (given.topic, given.queue_id, list(given.bodies)) == (untouched.topic, untouched.queue_id, untouched.bodies)
    expect(same, "check_batch does not change the batch", given.topic)


def _copy(message: MessageExtBrokerInner) -> MessageExtBrokerInner:
    return msgspec.structs.replace(message, properties=dict(message.properties))
