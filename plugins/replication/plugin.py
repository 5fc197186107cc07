"""Registers replication, which a broker that neither has slaves nor is one does not import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.core.kernel.hookspecs import RegisterService, hookimpl

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import Service


class ReplicationPlugin:
    """Registers the service that sends the log to slaves, or copies the log of a master (``broker.role``, ``ha.enable``)."""

    plugin_name = "replication"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("replication", _make)


def _make(api: BrokerApi) -> Service | None:
    if api.config.broker.is_slave:
        from flintmq.plugins.replication.slave import SlaveReplication

        return SlaveReplication(api)
    if api.config.replicates:
        from flintmq.plugins.replication.master import MasterReplication

        return MasterReplication(api)
    return None
