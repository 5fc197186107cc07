"""Registers the service ``metrics``, which serves and pushes metrics if the configuration switches it on."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final

from flintmq.config.errors import ConfigError
from flintmq.core.kernel.hookspecs import RegisterService, hookimpl

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import Service


OTLP: Final = "opentelemetry.exporter.otlp.proto.http.metric_exporter"


class MetricsPlugin:
    """The plugin for metrics. It registers the service that serves a broker's metrics over HTTP and pushes them with
    OpenTelemetry. If the configuration switches metrics off, the plugin registers no service."""

    plugin_name = "metrics"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("metrics", lambda context: make_service(context.api))


def make_service(api: BrokerApi) -> Service | None:
    """Return the service ``metrics``, or None if metrics are switched off.

    Raises:
        ConfigError: metrics are switched on, but a package that they need is not installed.
    """
    settings = api.settings.current.metrics
    if not settings.is_asked_for:
        return None
    needed = (
        (settings.enable, "metrics.enable", "prometheus_client", "prometheus-client", "metrics"),
        (settings.otlp_endpoint is not None, "metrics.otlp_endpoint", OTLP, "OpenTelemetry's exporter", "otel"),
    )
    for is_asked, key, package, name, extra in needed:
        if is_asked and not _is_installed(package):
            raise ConfigError(
                f"'{key}' is set, and {name} is not installed: pip install '.[{extra}]' in FlintMQ's folder, or remove the "
                "key",
                key=key,
            )
    from flintmq.plugins.metrics.service import MetricsService

    return MetricsService(api)


def _is_installed(package: str) -> bool:
    """Return whether a package is installed. The check imports the package's parent packages, but not the package."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
