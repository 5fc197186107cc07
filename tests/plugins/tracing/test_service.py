"""The service keeps the rules of services, and tells what became of messages and spans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter", reason="the extra otel is not installed")

from flintmq.config.sections.models import BrokerConfig, StoreSection, TracingSection
from flintmq.core.broker.role import ASYNC_MASTER, MASTER_ID, SLAVE
from flintmq.core.broker.sink import MessageSink
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import FlushStatus, HandedOut, StoredMessages
from flintmq.core.waiters import DONE, FENCED
from flintmq.plugins.tracing.service import TracingService
from flintmq.plugins.tracing.spans import Span
from flintmq.plugins.tracing.tracer import MessageTracer
from flintmq.testing.service_kit import TimersByHand, check_service
from flintmq.testing.store import message, opened
from flintmq.tests.support.state import state_of

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def config(root: Path, **more: int) -> BrokerConfig:
    tracing = TracingSection(otlp_endpoint="http://127.0.0.1:9/v1/traces", **more)
    return BrokerConfig(store=StoreSection(path=str(root)), tracing=tracing)


def test_the_tracing_service_passes_the_conformance_checks_for_services(tmp_path: Path) -> None:
    """What is asked of plugins holds for the features of the broker; only their figures may be named as the broker's own."""
    kind = type("WithoutFigures", (TracingService,), {"metrics": None})
    with opened(tmp_path) as store:
        check_service(lambda timers: kind(state_of(config(tmp_path), store=store, timers=timers).api))


def test_messages_beyond_the_limit_of_unfinished_traces_are_counted_but_not_traced(tmp_path: Path) -> None:
    """A flush that hangs does not make the broker remember every message that waits for it."""
    with opened(tmp_path) as store:
        state = state_of(config(tmp_path, queue_max=64), store=store, timers=TimersByHand())
        service = TracingService(state.api)
        state.followers.add(service)
        sink = MessageSink(store, state.stats, lambda: None, state.followers)
        sink.append([message(uniq_key=str(n), traceparent=PARENT) for n in range(100)])
        assert service.runtime_info()["tracedMessages"] == "64"
        told = {(one.name, *one.labels.values()): one.value for one in service.metrics()}
        assert told["flintmq_traced_messages_total", "passed_over"] == 36
        assert told["flintmq_spans_total", "dropped"] > 0  # their spans have no room either
        store.dispatch()  # nobody hears of it: the service was not started


@pytest.mark.parametrize(("waiter", "error"), [(DONE, ""), (FENCED, "fenced")])
def test_the_span_of_a_stored_message_contains_an_error_if_the_message_may_be_lost(
    tmp_path: Path, waiter: object, error: str
) -> None:
    """A refused message has no spans, its producer has the error; one that may be lost has spans with the reason."""
    with opened(tmp_path) as store:
        state = state_of(config(tmp_path), store=store, timers=TimersByHand())
        service, spans = TracingService(state.api), list[Span]()
        tracer = MessageTracer(state.api, service.step, spans.append, 64)
        traced = message(uniq_key="a", traceparent=PARENT)
        (record,) = store.put([traced]).records
        refused = RefusedError(1, "too long", reason="message.too_long")
        tracer.on_stored(StoredMessages([traced, traced], [refused, record], 0.001, waiter, waiter))  # type: ignore[arg-type]
        assert [(one.operation, one.error) for one in spans] == [("append", ""), ("store", error)]
        assert waiter.status is (FlushStatus.FENCED if error else FlushStatus.FLUSHED)  # type: ignore[attr-defined]


def test_unfinished_spans_are_ended_when_the_broker_stops(tmp_path: Path) -> None:
    """Of a message that nobody has an answer for there is at least what was known of it."""
    with opened(tmp_path) as store:
        state, spans = state_of(config(tmp_path), store=store, timers=TimersByHand()), list[Span]()
        step = TracingService(state.api).step
        tracer = MessageTracer(state.api, step, spans.append, 64)
        traced = message(uniq_key="a", traceparent=PARENT, born_host=bytes(8))
        step.take(traced, None)
        (record,) = store.put([traced]).records
        waiter = Pending()
        tracer.on_stored(StoredMessages([traced], [record], 0.0, waiter, waiter))
        assert [one.operation for one in spans] == ["append"]
        tracer.close()
        assert [one.operation for one in spans] == ["append", "store"]
        tracer.on_arrived(None)  # type: ignore[arg-type]
        assert len(spans) == 2


@pytest.mark.parametrize("is_replicated", [False, True])
def test_the_dispatch_span_of_a_message_ends_after_its_flush_span_or_replication_span(
    tmp_path: Path, is_replicated: bool
) -> None:
    """The loop may dispatch before the flush service's thread comes to say that it is done: spans keep the order."""
    with opened(tmp_path) as store:
        loop = SimpleNamespace(call_soon_threadsafe=lambda call, *about: call(*about))
        state, spans = state_of(config(tmp_path), store=store, timers=TimersByHand(), loop=loop), list[Span]()
        tracer = MessageTracer(state.api, TracingService(state.api).step, spans.append, 64)
        traced = message(uniq_key="a", traceparent=PARENT)
        (record,) = store.put([traced]).records
        flushed = Pending()
        durable = Pending() if is_replicated else flushed
        tracer.on_stored(StoredMessages([traced], [record], 0.0, flushed, durable))
        store.watermarks.synchronous = True
        store.dispatch()
        tracer.on_arrived(None)  # type: ignore[arg-type]
        for promise in (flushed, durable):
            promise.complete()
    by_name = {one.operation: one for one in spans}
    last = by_name["replicate" if is_replicated else "flush"]
    assert by_name["append"].end_ns <= by_name["flush"].begin_ns <= by_name["flush"].end_ns <= last.end_ns
    assert last.end_ns <= by_name["dispatch"].end_ns
    assert len(spans) == len(by_name) == 4 + is_replicated


class Pending:
    """A promise that is kept when a test says so."""

    status = None

    def __init__(self) -> None:
        self._callbacks: list[Callable[[FlushStatus], object]] = []

    def add_done_callback(self, callback: Callable[[FlushStatus], object]) -> None:
        self._callbacks.append(callback)

    def complete(self) -> None:
        """Keep it."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(FlushStatus.FLUSHED)


def test_a_slave_records_spans_of_message_deliveries_before_and_after_its_promotion_to_master(tmp_path: Path) -> None:
    """A master knows where traced messages lie and looks at no other; a slave is told of none, and searches all of them."""
    with opened(tmp_path) as store:
        state, spans = state_of(config(tmp_path), store=store, timers=TimersByHand()), list[Span]()
        service = TracingService(state.api)
        tracer: Any = service._tracer
        tracer._put = spans.append
        service.start()

        def handed_out(queue_offset: int) -> list[str]:
            store.dispatch()
            found = store.reader.get_message("T", 0, queue_offset, 1, None)
            spans.clear()
            service.on_handed_out(HandedOut("T", "C", 0, found.slices, 0.0))
            return [one.operation for one in spans]

        def stored(key: str) -> None:
            traced = message(uniq_key=key, traceparent=PARENT)
            (record,) = store.put([traced]).records
            service.on_stored(StoredMessages([traced], [record], 0.0, DONE, DONE))

        stored("own")
        state.role.change(SLAVE, 1)
        spans.clear()
        store.dispatch()
        assert spans == [], "whether consumers will see it is decided by the new master"
        store.put([message(uniq_key="copied", traceparent=PARENT)])
        assert handed_out(1) == ["deliver"]
        state.role.change(ASYNC_MASTER, MASTER_ID)
        stored("new")
        spans.clear()
        store.dispatch()
        assert [one.operation for one in spans] == ["dispatch"]
        assert [handed_out(at) for at in range(3)] == [["deliver"]] * 3
        asyncio.run(service.stop())
