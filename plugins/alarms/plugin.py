"""Registers the services that watch the broker as a whole."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import RegisterService, hookimpl
from flintmq.plugins.alarms.store_alarms import StoreAlarms


class AlarmsPlugin:
    """Registers the watch over the store."""

    plugin_name = "alarms"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("store_alarms", StoreAlarms)
