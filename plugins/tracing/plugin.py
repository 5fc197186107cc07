"""Registers the service ``tracing`` and the intake step ``tracing``, which records messages before they are stored.

Both work only if ``tracing.otlp_endpoint`` is set.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final

from flintmq.config.errors import ConfigError
from flintmq.core.kernel.hookspecs import RegisterIntakeStep, RegisterService, hookimpl

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import IntakeStep, Service

OTLP: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
KEY: Final = "tracing.otlp_endpoint"


class TracingPlugin:
    """Registers the service ``tracing``, and an intake step that records messages to trace. The step is the first of all intake
    steps, which the broker runs before it stores a message."""

    plugin_name = "tracing"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("tracing", lambda context: make_service(context.api))

    @hookimpl(tryfirst=True)
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("tracing", lambda context: make_step(context.api))


def make_service(api: BrokerApi) -> Service | None:
    """Return the service ``tracing``, or None if tracing is switched off.

    Raises:
        ConfigError: tracing is switched on, but the package that it needs is not installed.
    """
    if api.settings.current.tracing.otlp_endpoint is None:
        return None
    try:
        is_installed = importlib.util.find_spec(OTLP) is not None
    except ModuleNotFoundError:
        is_installed = False
    if not is_installed:
        text = (
            f"'{KEY}' is set, and OpenTelemetry's exporter is not installed: pip install '.[otel]' in FlintMQ's folder"
        )
        raise ConfigError(f"{text}, or remove '{KEY}'", key=KEY)
    from flintmq.plugins.tracing.service import TracingService

    return TracingService(api)


def make_step(api: BrokerApi) -> IntakeStep | None:
    """Return the intake step ``tracing``, which records messages to trace before they are stored; None if tracing is switched
    off."""
    if api.settings.current.tracing.otlp_endpoint is None:
        return None
    from flintmq.plugins.tracing.service import TracingService

    return api.part(TracingService).step
