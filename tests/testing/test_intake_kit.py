"""The intake kit passes the built-in steps, and names the rule that a wrong step breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import Sent
from flintmq.core.record.properties import properties_to_string
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.plugins.delay.plugin import DelayStep
from flintmq.plugins.retry.plugin import RetryStep
from flintmq.plugins.timer.plugin import TimerStep
from flintmq.plugins.timer.timer_message import TimerRedirect
from flintmq.plugins.transactions.plugin import TransactionStep
from flintmq.testing.failure import KitFailure
from flintmq.testing.intake_kit import IntakeSample, check_intake_step
from flintmq.testing.store import message
from flintmq.tests.support.state import state_of

Take = Callable[["Hold", MessageExtBrokerInner, Sent | None], object]


class Hold:
    """A step that keeps every rule."""

    property_names = frozenset({"HOLD"})
    topic_prefixes: tuple[str, ...] = ()

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Redirect what asks for it, and refuse what asks to be held for ever."""
        if message.properties["HOLD"] == "ever":
            raise RefusedError(13, "held for ever", reason="hold.ever")
        message.properties = {**message.properties, "REAL_TOPIC": message.topic}
        message.properties_bytes = properties_to_string(message.properties).encode()
        message.topic = "HOLD_TOPIC"
        return True

    def would_take(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message is held."""
        if properties["HOLD"] == "ever":
            raise RefusedError(13, "held for ever", reason="hold.ever")
        return True

    def check_batch(self, shared: Mapping[str, str], batch: object) -> None:
        """Refuse batches."""
        raise RefusedError(13, "no batch is held", reason="hold.batch")


DEAD = msgspec.structs.replace(message("%RETRY%g", DELAY="3", TAGS="a"), reconsume_times=16)
SAMPLES = [IntakeSample(message("T", HOLD="1")), IntakeSample(message("T", HOLD="ever"))]


def test_a_correct_processing_step_for_incoming_messages_passes_the_test_kit() -> None:
    """The kit returns the result for each sample, and does not change the samples."""
    held, refused = check_intake_step(Hold, SAMPLES)
    assert (held.message.topic, held.ends_chain, held.refusal) == ("HOLD_TOPIC", True, None)
    assert refused.refusal is not None
    assert refused.refusal.reason == "hold.ever"
    assert SAMPLES[0].message == message("T", HOLD="1")


def _changes_one_form(_step: Hold, one: MessageExtBrokerInner, _sent: Sent | None) -> bool:
    one.properties = {**one.properties, "REAL_TOPIC": "T"}
    return True


def _has_no_topic(_step: Hold, one: MessageExtBrokerInner, _sent: Sent | None) -> bool:
    one.topic = ""
    return True


def _needs_what_was_sent(_step: Hold, _one: MessageExtBrokerInner, sent: Sent | None) -> bool:
    assert sent is not None
    return True


def _raises(error: Exception) -> Callable[..., Any]:
    def fail(*_arguments: object) -> Any:
        raise error

    return fail


async def _waits(*_arguments: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        ({"property_names": {"HOLD"}}, "property_names is a frozenset"),
        ({"topic_prefixes": "T"}, "topic_prefixes is a tuple"),
        ({"property_names": frozenset({1, "HOLD"})}, "names and prefixes are text"),
        ({"property_names": frozenset({"OTHER"})}, "a sample concerns the step"),
        ({"take": lambda *_: None}, "take is a plain method that returns True or False"),
        ({"take": _waits}, "take is a plain method that returns True or False"),
        ({"take": _raises(KeyError("x"))}, "take raised KeyError, not RefusedError"),
        ({"take": _raises(RefusedError(1, "no", reason=""))}, "a refusal has a stable reason"),
        ({"take": _changes_one_form}, "a change of properties is one of properties_bytes, too"),
        ({"take": _has_no_topic}, "a message has a topic"),
        ({"take": _needs_what_was_sent}, "take raised AssertionError"),
        ({"would_take": lambda *_: False}, "would_take is True for the properties of a message that take takes"),
        ({"would_take": lambda *_: 1}, "would_take is a plain method that returns True or False"),
        ({"would_take": lambda _, found: found.pop("HOLD") and True}, "would_take changes nothing"),
        ({"would_take": _raises(KeyError("x"))}, "would_take raised KeyError, not RefusedError"),
        (
            {"would_take": _raises(RefusedError(1, "no", reason="hold.no"))},
            "what would_take refuses is refused by take",
        ),
        ({"check_batch": lambda *_: True}, "check_batch returns nothing"),
        ({"check_batch": lambda _, shared, _batch: shared.clear()}, "check_batch changes no property"),
        ({"check_batch": _raises(KeyError("x"))}, "check_batch raised KeyError, not RefusedError"),
    ],
)
def test_the_test_kit_reports_the_rule_that_a_processing_step_for_incoming_messages_breaks(
    broken: Mapping[str, object], rule: str
) -> None:
    """An author reads what to mend, not a trace out of a broker."""
    made: Any = type("Broken", (Hold,), dict(broken))
    with pytest.raises(KitFailure, match=rule):
        check_intake_step(made, SAMPLES)


def _timer() -> TimerStep:
    state = state_of()
    redirect = TimerRedirect(state.clock, lambda: (3_600_000, "key"), lambda _due_ms: True)
    return TimerStep(redirect, lambda: state.config)


@pytest.mark.parametrize(
    ("make", "samples", "topics"),
    [
        (
            lambda: DelayStep(state_of().api),
            [message(DELAY="3", TAGS="a"), message(DELAY="0"), message(DELAY="no")],
            ["SCHEDULE_TOPIC_XXXX", "T", None],
        ),
        (
            _timer,
            [message(TIMER_DELAY_SEC="60"), message(TIMER_DELAY_SEC="7200"), message(TIMER_DELAY_MS="0")],
            ["rmq_sys_wheel_timer", None, "T"],
        ),
        (
            lambda: TransactionStep(state_of().api),
            [message(TRAN_MSG="true", PGROUP="g"), message(TRAN_MSG="false")],
            ["RMQ_SYS_TRANS_HALF_TOPIC", "T"],
        ),
        (lambda: RetryStep(state_of().api), [message("%RETRY%g"), DEAD], ["%RETRY%g", "%DLQ%g"]),
    ],
    ids=["delay", "timer", "transactions", "retry"],
)
def test_the_built_in_processing_steps_for_incoming_messages_pass_the_test_kit(
    make: Callable[[], Any], samples: list[MessageExtBrokerInner], topics: list[str | None]
) -> None:
    """The features of the broker must keep the rules that plugins have to keep; None stands for a refusal."""
    found = check_intake_step(make, [IntakeSample(one) for one in samples])
    assert [one.message.topic if one.refusal is None else None for one in found] == topics
