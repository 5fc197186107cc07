"""The service ``tracing``: follows traced messages and pushes their spans, from the broker's start to its stop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from flintmq.core.kernel.ports import Measurement
from flintmq.plugins.tracing.otlp import SpanPusher
from flintmq.plugins.tracing.trace_step import TraceStep
from flintmq.plugins.tracing.tracer import MessageTracer

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_OVERDUE_S: Final = 1.0
_SPANS: Final = (
    "Spans that the collector accepted, that were lost in a failed push, or dropped because the queue was full."
)


class TracingService:
    """The service ``tracing``, which connects the parts of tracing to the broker. Used only on the event loop's thread.

    :class:`TraceStep` chooses the messages to trace before they are stored, :class:`MessageTracer` creates their spans, and
    :class:`SpanPusher` sends the spans to a collector.

    Args:
        api: the broker, in whose settings ``tracing.otlp_endpoint`` must be set.
    """

    def __init__(self, api: BrokerApi) -> None:
        settings = api.settings.current.tracing
        assert settings.otlp_endpoint is not None
        self._api = api
        self._pusher = SpanPusher(
            settings.otlp_endpoint,
            settings.otlp_interval_ms / 1000,
            settings.queue_max,
            api.settings.current.broker.name,
        )
        self.step = TraceStep(api)
        """The intake step, which chooses the messages to trace before they are stored, and keeps their trace contexts."""
        self._tracer = MessageTracer(api, self.step, self._pusher.put, settings.queue_max)
        # The methods ``on_…`` implement :class:`flintmq.core.kernel.ports.FollowsMessages`.
        self.on_stored = self._tracer.on_stored
        self.on_answered = self._tracer.on_answered
        self.on_handed_out = self._tracer.on_handed_out

    def start(self) -> None:
        """Subscribe to the broker's events, and start the thread that pushes spans."""
        self._api.log.arrived.subscribe(self._tracer.on_arrived)
        self._api.role.changed.subscribe(self._tracer.role_changed)
        self._api.work.every(_OVERDUE_S, self._end_overdue, "spans of answered messages")
        self._pusher.start()

    async def stop(self) -> None:
        """Finish the spans of traced messages under way, and wait a limited time until the remaining spans are pushed."""
        self._tracer.close()
        await self._api.work.background(self._pusher.stop)

    def runtime_info(self) -> Mapping[str, str]:
        """Return the numbers of traced messages, untraced messages and spans that GET_BROKER_RUNTIME_INFO (request code 28)
        shows."""
        pusher = self._pusher
        return {
            "tracedMessages": str(self._tracer.followed),
            "untracedForWantOfRoom": str(self._tracer.passed_over),
            "traceparentIgnored": str(self.step.malformed),
            "spansPushed": str(pusher.pushed),
            "spansLost": str(pusher.lost),
            "spansDropped": str(pusher.dropped),
        }

    def metrics(self) -> Iterator[Measurement]:
        """Return counts of spans and of traced messages, by result, for ``/metrics``."""
        pusher = self._pusher
        for result, count in (("taken", pusher.pushed), ("lost", pusher.lost), ("dropped", pusher.dropped)):
            yield Measurement("flintmq_spans_total", count, {"result": result}, "counter", _SPANS)
        followed, passed_over = self._tracer.followed, self._tracer.passed_over
        for result, count in (("traced", followed), ("passed_over", passed_over), ("malformed", self.step.malformed)):
            meaning = "Stored messages to trace, by result: traced, passed over because too many were under way, or not traced"
            meaning += " because their traceparent was malformed."
            yield Measurement("flintmq_traced_messages_total", count, {"result": result}, "counter", meaning)

    def _end_overdue(self) -> None:
        self._tracer.end_overdue(time.time_ns() - int(_OVERDUE_S * 1e9))
