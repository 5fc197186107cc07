"""Registers the service ``replication``. A broker that has no slaves and is not a slave imports no other module of this
package."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flintmq.config.errors import ConfigError
from flintmq.core.broker.role import ASYNC_MASTER, SYNC_MASTER
from flintmq.core.kernel.hookspecs import RegisterService, hookimpl

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.broker.role import Role
    from flintmq.core.kernel.ports import Service


class ReplicationPlugin:
    """Registers the service that sends the log to slaves, or copies a master's log, according to the role and ``ha.enable``."""

    plugin_name = "replication"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("replication", lambda context: _make(context.api))


def _make(api: BrokerApi) -> Service | None:
    """Return the service ``replication``; None for a master with ``ha.enable: false``, which does not replicate until a
    restart."""
    if api.role.kind == ASYNC_MASTER and not api.settings.current.ha.enable:
        api.role.changed.subscribe(partial(_check, api.role))
        return None
    from flintmq.plugins.replication.service import ReplicationService

    return ReplicationService(api)


def _check(role: Role) -> None:
    """Raise ConfigError if the role becomes sync master on a broker without replication."""
    if role.kind == SYNC_MASTER:
        raise ConfigError(
            "the role sync_master needs replication, but this broker started without it: restart the broker with 'ha.enable: "
            "true'",
            key="ha.enable",
        )
