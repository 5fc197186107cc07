"""Settings of metrics and tracing."""

from __future__ import annotations

from typing import ClassVar

import attrs

from flintmq.config.fields import option
from flintmq.config.units import DAY_MS


@attrs.frozen(kw_only=True)
class MetricsSection:
    """``metrics:`` — metrics for monitoring systems, and health and readiness checks over HTTP."""

    FEATURE: ClassVar = "metrics"

    enable: bool = option(False)
    """Serves the metrics (``/metrics``) and checks of health (``/healthz``, ``/readyz``) over HTTP. Needs ``pip install
    '.[metrics]'``."""
    host: str = option("127.0.0.1", pattern=r"\S+", expects="a host name or address")
    """Address at which the broker serves the metrics; ``0.0.0.0`` means all network interfaces. The metrics have no access
    control: everyone who can connect can read the names of topics and groups, but cannot change anything."""
    port: int = option(0, minimum=0, maximum=65535)
    """Port at which the metrics are served; 0 for any free port. The line ``READY`` that the broker prints at its start
    contains the port."""
    otlp_endpoint: str | None = option(
        None, pattern=r"https?://[^\s/]+(/\S*)?", expects="a URL such as http://127.0.0.1:4318/v1/metrics"
    )
    """URL of an OpenTelemetry collector to which the metrics are pushed by OTLP over HTTP; null pushes none. Needs ``pip
    install '.[otel]'``, but not ``metrics.enable``."""
    otlp_interval_ms: int = option(60_000, minimum=100, maximum=DAY_MS)
    """Interval between two pushes of the metrics."""
    series_max: int = option(20_000, minimum=1_000, maximum=1_000_000)
    """Largest number of series in one answer or push. A topic has about eight series, and a pair of group and topic has twelve.
    Further series are left out; an alarm and ``flintmq_left_out_series`` report their number."""

    @property
    def is_asked_for(self) -> bool:
        """Return whether metrics are served or pushed."""
        return self.enable or self.otlp_endpoint is not None


@attrs.frozen(kw_only=True)
class TracingSection:
    """``tracing:`` — OpenTelemetry spans for the steps in which the broker receives, stores and delivers a message."""

    FEATURE: ClassVar = "tracing"

    otlp_endpoint: str | None = option(
        None, pattern=r"https?://[^\s/]+(/\S*)?", expects="a URL such as http://127.0.0.1:4318/v1/traces"
    )
    """URL of an OpenTelemetry collector to which the spans of traced messages are pushed by OTLP over HTTP; null switches
    tracing off. Needs ``pip install '.[otel]'``."""
    otlp_interval_ms: int = option(1_000, minimum=100, maximum=DAY_MS)
    """Interval between two pushes of spans. Spans are pushed earlier if 512 of them wait."""
    sample_one_in: int = option(0, minimum=0, maximum=1_000_000_000)
    """Average number of messages without a ``traceparent`` among which one message starts a trace. The message is chosen at
    random. With 0, only messages that their producer sampled are traced."""
    queue_max: int = option(16_384, minimum=64, maximum=1_000_000)
    """Largest number of spans that wait to be pushed, and largest number of messages that are traced at the same time. Further
    spans and messages are dropped and counted."""
