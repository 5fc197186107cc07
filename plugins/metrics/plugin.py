"""Registers the service that answers monitoring systems, where ``metrics.enable`` asks for it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from flintmq.config.errors import ConfigError
from flintmq.core.kernel.hookspecs import RegisterService, hookimpl

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import Service
    from flintmq.plugins.broker.broker import Broker


class MetricsPlugin:
    """Registers the service ``metrics``."""

    plugin_name = "metrics"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("metrics", make_service)

    @hookimpl
    def flintmq_broker_starting(self, broker: Broker) -> None:
        if broker.config.metrics.enable:
            from flintmq.plugins.metrics.service import MetricsService

            broker.state.service(MetricsService).watch(broker)


def make_service(api: BrokerApi) -> Service | None:
    """Return the service, or None where it is switched off.

    Raises:
        ConfigError: it is switched on, and the package that it needs is not installed.
    """
    if not api.config.metrics.enable:
        return None
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigError(
            "'metrics.enable' is true, and prometheus-client is not installed: pip install 'flintmq[metrics]', "
            "or set metrics.enable to false",
            key="metrics.enable",
        )
    from flintmq.plugins.metrics.service import MetricsService

    return MetricsService(api)
