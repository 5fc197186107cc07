"""Pushes spans to an OpenTelemetry collector by OTLP over HTTP, in a separate thread outside the event loop."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from opentelemetry import context as otel
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.span import TraceState
from opentelemetry.trace.status import Status, StatusCode

from flintmq.core.io.clock import SYSTEM_CLOCK
from flintmq.core.io.threads import daemon_thread
from flintmq.core.log_events import event_log
from flintmq.plugins.tracing.spans import TYPES
from flintmq.plugins.tracing.trace_context import RANDOM, SAMPLED, TraceContext

if TYPE_CHECKING:
    from flintmq.plugins.tracing.spans import Span

log = event_log("flintmq.broker")
_exporters_log = logging.getLogger(OTLPSpanExporter.__module__)

TIMEOUT_S: Final = 10.0
"""Time limit in seconds for one push of spans, including the exporter's retries."""
STOP_S: Final = 3.0
"""Maximum time in seconds that a stop of the broker waits for the push of the remaining spans."""
_REMIND_S: Final = 60.0
_PUSH_MAX: Final = 512
"""Maximum number of spans in one push. As soon as this number of spans waits, the spans are pushed, although the push interval
has not ended."""
_THREAD: Final = "flintmq-spans"
_SCOPE: Final = InstrumentationScope("flintmq")


class SpanPusher:
    """Queues spans, and pushes them from :meth:`start` to :meth:`stop`. The loop's thread, which adds the spans, never waits.

    Args:
        endpoint: URL of the collector, ``http://HOST:4318/v1/traces``.
        interval_s: time between two pushes.
        queue_max: maximum number of waiting spans; further spans are dropped.
        broker_name: name of the broker, sent as ``service.instance.id``.
    """

    def __init__(self, endpoint: str, interval_s: float, queue_max: int, broker_name: str) -> None:
        self._endpoint = endpoint
        self._interval_s = interval_s
        self._queue_max = queue_max
        self._resource = Resource({"service.name": "flintmq", "service.instance.id": broker_name})
        self._exporter = OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_S)
        self._waiting: deque[Span] = deque()
        self._wake = threading.Event()
        self._is_stopping = False
        self._is_closed = False
        self._thread = daemon_thread(self._run, _THREAD)
        self._trouble = ""
        self._tell_dropped_s = 0.0
        """Monotonic time, in seconds, from which on the next dropped span causes a warning."""
        self.pushed = 0
        """Number of spans that the collector accepted."""
        self.lost = 0
        """Number of spans that were not pushed: the push failed, or the spans still waited when the pusher stopped."""
        self.dropped = 0
        """Number of spans that were dropped because the queue was full or the pusher was stopping."""

    def start(self) -> None:
        """Start the thread that pushes spans."""
        _exporters_log.addFilter(_is_of_others)
        self._thread.start()

    def put(self, span: Span) -> None:
        """Queue a span to be pushed, or drop it if the queue is full. Called only on the event loop's thread."""
        waiting = self._waiting
        if len(waiting) >= self._queue_max or self._is_stopping:
            self.dropped += 1
            if not self._is_stopping and SYSTEM_CLOCK.monotonic_s() >= self._tell_dropped_s:
                self._tell_dropped_s = SYSTEM_CLOCK.monotonic_s() + _REMIND_S
                log.warning(
                    "tracing.dropped",
                    "spans are dropped: %(waiting)d wait already (tracing.queue_max)",
                    waiting=len(waiting),
                )
            return
        waiting.append(span)
        if len(waiting) == min(_PUSH_MAX, self._queue_max):
            self._wake.set()

    def stop(self) -> None:
        """Push the remaining spans, and stop the thread that pushes spans. Blocks for at most :data:`STOP_S`. Idempotent."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            # After a failed push, the exporter is closed, because another push would probably fail and delay the broker's stop.
            if self._trouble:
                self._close()
            self._thread.join(STOP_S)
        self._close()
        self.lost += len(self._waiting)
        self._waiting.clear()

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown()

    def _run(self) -> None:
        # Without suppress_instrumentation, a program that traces its HTTP requests would record spans of each push.
        otel.attach(otel.set_value("suppress_instrumentation", True))
        while not self._is_stopping:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            self._push_all()
        self._push_all()

    def _push_all(self) -> None:
        """Push the waiting spans until all are pushed or a push fails."""
        while self._waiting and not self._is_closed:
            some = [self._waiting.popleft() for _ in range(min(_PUSH_MAX, len(self._waiting)))]
            try:
                result = self._exporter.export([self._readable(span) for span in some])
                trouble = "" if result is SpanExportResult.SUCCESS else "the collector did not take them"
            except Exception as error:
                # A failed push must not end the thread, because the next push may succeed.
                trouble = f"{type(error).__name__}: {error}"
            self._note(len(some), trouble)
            if trouble:
                return

    def _note(self, count: int, trouble: str) -> None:
        self.lost += count if trouble else 0
        self.pushed += 0 if trouble else count
        if trouble and not self._trouble and not self._is_closed:
            log.warning(
                "tracing.not_pushed",
                "spans cannot be pushed to %(endpoint)s: %(error)s",
                endpoint=self._endpoint,
                error=trouble,
            )
        elif self._trouble and not trouble:
            log.info("tracing.pushed_again", "spans are pushed to %(endpoint)s again", endpoint=self._endpoint)
        self._trouble = trouble

    def _readable(self, span: Span) -> ReadableSpan:
        parent = _context(span.context, span.parent_id, is_remote=span.parent_id == span.context.parent_id)
        return ReadableSpan(
            f"{span.operation} {span.message['messaging.destination.name']}",
            _context(span.context, span.span_id, is_remote=False),
            parent if span.parent_id else None,
            self._resource,
            span.attributes,
            kind=SpanKind.SERVER if span.operation in TYPES else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.begin_ns,
            end_time=span.end_ns,
            instrumentation_scope=_SCOPE,
        )


def _is_of_others(record: logging.LogRecord) -> bool:
    """Return False for a log record of the OpenTelemetry exporter from the thread that pushes FlintMQ's spans; otherwise True.

    The function is a log filter. It drops the records of the pushing thread, because FlintMQ itself logs failed pushes.
    """
    return record.threadName != _THREAD


def _context(context: TraceContext, span_id: int, *, is_remote: bool) -> SpanContext:
    state = TraceState.from_header([context.state]) if context.state else None
    return SpanContext(context.trace_id, span_id, is_remote, TraceFlags(context.flags & (SAMPLED | RANDOM)), state)
