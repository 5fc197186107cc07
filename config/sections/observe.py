"""Settings of what a broker shows of itself to those who run it."""

from __future__ import annotations

from typing import ClassVar

import attrs

from flintmq.config.fields import option
from flintmq.config.units import DAY_MS


@attrs.frozen(kw_only=True)
class MetricsSection:
    """``metrics:`` — figures for monitoring systems, and whether the broker lives and is ready, over HTTP."""

    FEATURE: ClassVar = "metrics"

    enable: bool = option(False)
    """Answers ``/metrics``, ``/healthz`` and ``/readyz``. Needs ``pip install '.[metrics]'``."""
    host: str = option("127.0.0.1", pattern=r"\S+", expects="a host name or address")
    """The address to listen at; ``0.0.0.0`` is every interface. Nobody is asked who they are: everyone who reaches it reads the
    names of topics and groups, and changes nothing."""
    port: int = option(0, minimum=0, maximum=65535)
    """The port to listen at; 0 takes a free one, which the READY line names."""
    otlp_endpoint: str | None = option(
        None, pattern=r"https?://[^\s/]+(/\S*)?", expects="a URL such as http://127.0.0.1:4318/v1/metrics"
    )
    """Pushes the figures to this collector of OpenTelemetry, by OTLP over HTTP; null pushes to none. Needs
    ``pip install '.[otel]'``, and not ``enable``."""
    otlp_interval_ms: int = option(60_000, minimum=100, maximum=DAY_MS)
    """How often the figures are pushed."""
    series_max: int = option(20_000, minimum=1_000, maximum=1_000_000)
    """Series that one answer has at most: a topic has about eight, a group and topic twelve. Those beyond are left out, and
    ``flintmq_left_out_series`` counts them (an alarm, too)."""

    @property
    def is_asked_for(self) -> bool:
        """Return whether figures are told at all."""
        return self.enable or self.otlp_endpoint is not None


@attrs.frozen(kw_only=True)
class TracingSection:
    """``tracing:`` — spans of OpenTelemetry for the way of messages through the broker."""

    FEATURE: ClassVar = "tracing"

    otlp_endpoint: str | None = option(
        None, pattern=r"https?://[^\s/]+(/\S*)?", expects="a URL such as http://127.0.0.1:4318/v1/traces"
    )
    """Pushes the spans of traced messages to this collector of OpenTelemetry, by OTLP over HTTP; null traces nothing. Needs
    ``pip install '.[otel]'``."""
    otlp_interval_ms: int = option(1_000, minimum=100, maximum=DAY_MS)
    """How often spans are pushed; where 512 wait, they are pushed at once."""
    sample_one_in: int = option(0, minimum=0, maximum=1_000_000_000)
    """Of so many messages without a ``traceparent`` one begins a trace, by chance, and is given the property; 0 traces those
    only whose producer's span is sampled."""
    queue_max: int = option(16_384, minimum=64, maximum=1_000_000)
    """Spans that wait to be pushed, and messages that are followed, at most; what is beyond is dropped and counted."""
