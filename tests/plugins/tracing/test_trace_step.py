"""Which messages are noted, and that neither clients nor chance can make the step keep much or refuse anything."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.config.sections.models import BrokerConfig, TracingSection
from flintmq.core.kernel.ports import Sent
from flintmq.core.limits import PROPERTIES_MAX_BYTES
from flintmq.plugins.tracing.trace_step import TraceStep
from flintmq.testing.intake_kit import IntakeSample, check_intake_step
from flintmq.testing.store import batch, message
from flintmq.tests.support.state import state_of

SENT = Sent(407)
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def step(sample_one_in: int = 0) -> TraceStep:
    return TraceStep(state_of(BrokerConfig(tracing=TracingSection(sample_one_in=sample_one_in))))


def parent(number: int) -> str:
    return f"00-{number + 1:032x}-00f067aa0ba902b7-01"


def test_the_tracing_step_passes_the_conformance_checks_for_steps_that_process_incoming_messages() -> None:
    """It keeps the rules of its port."""
    check_intake_step(step, [IntakeSample(message(traceparent=value)) for value in (PARENT, "none")])


def test_the_remembered_trace_context_of_a_delayed_message_is_forgotten_after_the_first_lookup() -> None:
    """A delay puts it elsewhere, with further properties; a second message with the same parent is another one."""
    made = step()
    first, second = message(uniq_key="a", traceparent=PARENT), message(uniq_key="b", traceparent=PARENT)
    assert not made.take(first, SENT)
    assert not made.take(second, SENT)
    first.topic, first.properties = "SCHEDULE_TOPIC_XXXX", {**first.properties, "REAL_TOPIC": "T"}
    for one in (first, second):
        noted = made.noted(one)
        assert noted is not None
        assert noted.context is not None
        assert noted.context.traceparent == PARENT
        assert made.noted(one) is None


def test_messages_that_the_broker_itself_writes_are_not_traced() -> None:
    """A committed transaction passes the steps again; nobody waits for an answer to it."""
    made, one = step(), message(traceparent=PARENT)
    made.take(one, None)
    assert made.noted(one) is None


def test_the_number_of_remembered_trace_contexts_is_limited() -> None:
    """Clients can send as many messages as they like that another step refuses."""
    made = step()
    for number in range(20_000):
        made.take(message(uniq_key="u" * 1_000, traceparent=parent(number)), SENT)
    assert len(made._noted) == 8_192
    assert max(len(text) for key in made._noted for text in key) <= 64
    batches = [batch([message(uniq_key=str(n), traceparent=parent(n))]) for n in range(1_000)]
    for one in batches:
        made.check_batch({}, one)
    assert len(made._batches) == 256


def test_a_batch_does_not_inherit_trace_contexts_of_a_refused_batch() -> None:
    """Python gives the identity of what is gone to what comes next."""
    made, one = step(), batch([message(uniq_key="a", traceparent=PARENT)])
    stored = one.stored_properties = [*one.stored_properties]
    made.check_batch({}, one)
    stored[:] = [b"UNIQ_KEY\x01b"]
    made.check_batch({}, one)
    assert made.noted_of_batch(one) == {}


@pytest.mark.parametrize("count", [1, 3])
def test_a_traceparent_in_the_shared_properties_of_a_batch_traces_every_message(count: int) -> None:
    """A client that has one span for its batch may say so once."""
    made = step()
    one = batch([message(uniq_key=f"k{n}", traceparent=PARENT) for n in range(count)])
    made.check_batch({"traceparent": PARENT}, one)
    assert sorted(made.noted_of_batch(one)) == [*range(count)]


def test_the_sampling_setting_limits_tracing_to_a_random_share_of_client_messages() -> None:
    """One in four of what clients send, of nothing that the cluster sends to itself, and nothing that would become too long."""
    made = step(4)
    messages: list[Any] = [message(uniq_key=str(n)) for n in range(2_000)]
    for one in messages:
        made.take(one, SENT)
    traced = [one for one in messages if "traceparent" in one.properties]
    assert 350 < len(traced) < 650
    for one in traced:
        noted = made.noted(one)
        assert noted is not None
        assert noted.is_first
        assert one.properties_bytes.endswith(b"\x02traceparent\x01" + one.properties["traceparent"].encode())
    every = step(1)
    for one in (message("RMQ_SYS_TRACE_TOPIC"), message(long="x" * (PROPERTIES_MAX_BYTES - 40))):
        before = one.properties_bytes
        every.take(one, SENT)
        assert one.properties_bytes == before
