"""The chain of intake steps: who is asked, in which order, and what it costs those that concern nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from flintmq.core.broker.intake_steps import IntakeSteps
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import Sent
from flintmq.core.record.record import MessageExtBrokerInner


class Step:
    """Notes what it was asked, and moves messages to a topic of its own."""

    def __init__(self, *names: str, prefixes: tuple[str, ...] = (), to: str = "", takes: bool = True) -> None:
        self.property_names = frozenset(names)
        self.topic_prefixes = prefixes
        self.asked: list[tuple[str, Sent | None]] = []
        self._to, self._takes = to, takes

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        self.asked.append((message.topic, sent))
        message.topic = self._to or message.topic
        return self._takes


class Strict(Step):
    """Refuses whatever it is asked about ahead, and every batch."""

    def would_take(self, properties: Mapping[str, str]) -> bool:
        raise RefusedError(13, "never", reason="test.never")

    def check_batch(self, shared: Mapping[str, str], batch: object) -> None:
        if "A" in shared:
            raise RefusedError(13, "no batch", reason="test.batch")


def message(topic: str = "T", **properties: str) -> MessageExtBrokerInner:
    return MessageExtBrokerInner(topic, 0, b"", properties, b"", 0, bytes(8), bytes(8))


def test_plugin_steps_process_an_incoming_message_in_order_until_one_step_accepts_the_message() -> None:
    """Two features that both redirect one message would lose where it was meant to go."""
    first, second, third = Step("A", to="WAITS"), Step("A", "B"), Step(prefixes=("%R%",))
    steps = IntakeSteps([first, second, third])
    sent = Sent(407, 3)
    one = message(A="1")
    assert steps.take(one, sent)
    assert (one.topic, first.asked, second.asked, third.asked) == ("WAITS", [("T", sent)], [], [])
    assert steps.take(message(B="1"))
    assert second.asked == [("T", None)]
    assert steps.take(message("%R%g"))
    assert third.asked == [("%R%g", None)]
    assert not steps.take(message(C="1"))
    assert steps.property_names == {"A", "B"}
    assert steps.topic_prefixes == ("%R%",)


def test_a_plugin_step_that_declines_a_message_can_still_change_the_message_for_the_next_step() -> None:
    """A dead letter lies in another topic than it was sent to: later steps judge it by the new one."""
    moves, last = Step(prefixes=("%R%",), to="%D%g", takes=False), Step(prefixes=("%D%",))
    assert IntakeSteps([moves, last]).take(message("%R%g"))
    assert last.asked == [("%D%g", None)]


def test_a_plugin_step_registered_for_the_empty_topic_prefix_gets_every_incoming_message() -> None:
    """A quota or an encryption looks at all of them."""
    every = Step(prefixes=("",), takes=False)
    assert not IntakeSteps([every]).take(message())
    assert every.asked == [("T", None)]


def test_a_plugin_can_refuse_to_store_a_batch_or_a_half_message() -> None:
    """A half message is acknowledged before the step that refuses it in the end would be asked."""
    steps: Any = IntakeSteps([Step("A"), Strict("A")])
    with pytest.raises(RefusedError, match="never"):
        steps.check_ahead({})
    with pytest.raises(RefusedError, match="no batch"):
        steps.check_batch({"A": "1"}, None)
    steps.check_batch({}, None)
