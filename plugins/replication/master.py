"""The service of a master: its port for slaves, and the promises that a sync master waits for."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from flintmq.config.errors import ConfigError
from flintmq.plugins.broker.exposure import is_loopback
from flintmq.plugins.broker.secure_links import TLS_RELOAD_S, server_tls
from flintmq.plugins.replication.group_transfer import GroupTransferService
from flintmq.plugins.replication.link_settings import link_settings, wants_tls
from flintmq.plugins.replication.master_service import HaMasterService
from flintmq.plugins.replication.store_log import StoreLog
from flintmq.remoting.server.bind import bind

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.remoting.server.tls import ServerTls

_EXPIRE_S: Final = 0.1


class MasterReplication:
    """Sends the log to slaves. Loop thread.

    It begins an epoch of the log when it is made, before anything is appended that slaves may get.

    Args:
        api: the broker.

    Raises:
        ConfigError: the secret is missing.
    """

    is_following: Final = False

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        config, store = api.config, api.store
        self._settings = link_settings(config)
        self._socket: socket.socket | None = None
        store.become_master()
        self.gate: GroupTransferService | None = None
        """The promises of slaves; None where an acknowledgement does not wait for them."""
        if config.broker.role == "sync_master":
            self.gate = GroupTransferService(
                store.watermarks,
                api.clock,
                timeout_ms=config.ha.slave_timeout_ms,
                fallbehind_max_bytes=config.ha.slave_fallbehind_max_bytes,
            )
            store.writer.wait_for_slaves(self.gate)
        self.master = HaMasterService(
            StoreLog(store, config.broker.name, api.address.host_port),
            self._settings,
            api.clock,
            gate=self.gate,
            max_slaves=config.ha.max_slaves,
            on_progress=api.dispatch,
        )

    @property
    def ha_port(self) -> int:
        """The port for slaves; 0 before the start."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    def start(self) -> None:
        """Take the port for slaves, and listen there once the broker is ready.

        Raises:
            ConfigError: other machines reach the port, and nothing protects it.
            RemotingError: the port is in use.
        """
        config = self._api.config
        listen = config.listen
        host = config.ha.host or listen.host
        if self._settings.secret is None and not is_loopback(host) and not listen.insecure:
            raise ConfigError(
                f"'ha.host' {host} can be reached from other machines, and with ha.compat: rocketmq anyone there could read "
                "the whole log: choose 127.0.0.1, or accept it with listen.insecure: true",
                key="ha.host",
            )
        port = listen.ha_port
        if port is None:
            port = self._api.address.listening_port + 1 if listen.port else 0
        self._socket = bind(host, port)

    async def ready(self) -> None:
        """Listen for slaves. Raises ``ConfigError`` where encryption is asked for without a certificate."""
        assert self._socket is not None
        api, store = self._api, self._api.store
        await self.master.start(self._socket, self._tls())
        store.appended.subscribe(self.master.wake)
        store.progressed.subscribe(self.master.wake_from_thread)
        if self.gate is not None:
            api.timers.pace(_EXPIRE_S, self.gate.expire, "promises of slaves")

    def _tls(self) -> ServerTls | None:
        if not wants_tls(self._api.config):
            return None
        tls = server_tls(self._api.config)
        if tls is None:
            raise ConfigError("'ha.tls' needs 'listen.tls.certificate'", key="ha.tls")
        self._api.timers.every(TLS_RELOAD_S, tls.reload, "certificate of replication")
        return tls

    async def withdraw(self) -> None:
        """End every promise, and close the connections to slaves."""
        if self.gate is not None:
            self.gate.close()
        await self.master.stop()

    def stop(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def runtime_info(self) -> dict[str, str]:
        """Return figures for request 28."""
        return self.master.runtime_info()
