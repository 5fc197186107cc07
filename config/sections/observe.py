"""Settings of what a broker shows of itself to those who run it."""

from __future__ import annotations

import attrs

from flintmq.config.fields import option


@attrs.frozen(kw_only=True)
class MetricsSection:
    """``metrics:`` — figures for monitoring systems, and whether the broker lives and is ready, over HTTP."""

    enable: bool = option(False)
    """Answers ``/metrics``, ``/healthz`` and ``/readyz``. Needs ``pip install 'flintmq[metrics]'``."""
    host: str = option("127.0.0.1", pattern=r"\S+", expects="a host name or address")
    """The address to listen at; ``0.0.0.0`` is every interface. Nobody is asked who they are: everyone who reaches it reads the
    names of topics and groups, and changes nothing."""
    port: int = option(0, minimum=0, maximum=65535)
    """The port to listen at; 0 takes a free one, which the READY line names."""
    series_max: int = option(20_000, minimum=1_000, maximum=1_000_000)
    """Series that one answer has at most: a topic has about eight, a group and topic twelve. Those beyond are left out, and
    ``flintmq_left_out_series`` counts them (an alarm, too)."""
