"""Registers the services that raise alarms about the store, the consumer groups and the process."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import RegisterService, hookimpl
from flintmq.plugins.alarms.group_alarms import GroupAlarms
from flintmq.plugins.alarms.process_alarms import ProcessAlarms
from flintmq.plugins.alarms.store_alarms import StoreAlarms


class AlarmsPlugin:
    """Registers the services ``store_alarms``, ``group_alarms`` and ``process_alarms``."""

    plugin_name = "alarms"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("store_alarms", lambda context: StoreAlarms(context.api))
        register("group_alarms", lambda context: GroupAlarms(context.api))
        register("process_alarms", lambda context: ProcessAlarms(context.api))
