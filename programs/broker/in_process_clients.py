"""Connections for clients in the broker's process: pairs of sockets, and the answers of a name server about this broker.

A pair of sockets needs no port and no address. Otherwise these connections work like network connections: they use the same
frames, limits, access rules and held pulls. The broker can send requests to the clients, and a stop of the broker sends the
pending answers before it closes the connections.
"""

from __future__ import annotations

import socket
from itertools import count
from typing import TYPE_CHECKING, Final

from flintmq.core.errors import RemotingConnectError
from flintmq.core.kernel.ports.processor import Request, declared_by
from flintmq.core.log_events import event_log
from flintmq.core.record.host import unpack_host
from flintmq.core.route.kv_config import KVConfigManager
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.remoting.processors.namesrv import NamesrvConfigProcessor, NamesrvRouteProcessor, NamesrvSettings
from flintmq.remoting.server.descriptors import is_below_ceiling
from flintmq.remoting.server.pool import Pool
from flintmq.remoting.server.request_gate import ServerHooks
from flintmq.remoting.server.server import RemotingServer

if TYPE_CHECKING:
    from flintmq.core.broker.state import BrokerState

log = event_log("flintmq.broker")

_CAPACITY: Final = 10_000
_PORTS: Final = 65_536


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, within the limit of descriptors for connections.

    Raises:
        RemotingConnectError: no descriptor is left.
    """
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise RemotingConnectError(
            f"no socket pair could be created for a connection within this process: {error}"
        ) from error
    if not is_below_ceiling(max(ours.fileno(), theirs.fileno())):
        ours.close()
        theirs.close()
        raise RemotingConnectError("no descriptor is free for a connection (ulimit -n)")
    ours.setblocking(False)
    return ours, theirs


class InProcessClients:
    """The broker's side of the connections from its own process. For the loop thread only.

    Args:
        state: the broker.
        server: answers requests to the broker.
    """

    def __init__(self, state: BrokerState, server: RemotingServer) -> None:
        self._state = state
        self._server = server
        self._host = unpack_host(state.store_host)[0]
        self._numbers = count(1)
        self._is_stale = True
        """Whether topics or the broker's role have changed since the routes for clients in the process were last updated."""
        self._routes = RouteInfoManager(state.clock)
        self._names = self._name_server()
        state.topics.changed.subscribe(self._topics_changed)
        state.role.changed.subscribe(self._topics_changed)

    def join(self, sock: socket.socket, *, asks_for_routes: bool) -> None:
        """Serve a connection from the broker's own process. The port in the client's address is a running number, because a
        pair of sockets has no ports."""
        server = self._names if asks_for_routes else self._server
        server.join(sock, (self._host, next(self._numbers) % _PORTS))

    async def close(self) -> None:
        """Close the connections to the in-process name server; the broker's server closes its own connections."""
        await self._names.close()

    def _name_server(self) -> RemotingServer:
        """Return a server that answers like a name server with only this broker. The server requires no signatures."""
        config, kv, pool = self._state.config, KVConfigManager(), Pool("in_process_routes", _CAPACITY)
        listen = config.listen
        server = RemotingServer(
            self._state.clock,
            max_frame_bytes=listen.max_frame_bytes,
            max_connections=listen.max_connections,
            max_connections_per_address=listen.max_connections_per_address,
            max_buffered_bytes=listen.max_buffered_bytes,
            idle_timeout_ms=listen.idle_timeout_ms,
            backlog=listen.backlog,
            authenticators=(),
            on_closed=lambda channel: None,
            on_failed=lambda request, error: _failed(request, error),
            on_authenticator_failed=lambda authenticator, request, error: None,
        )
        for processor in (
            NamesrvRouteProcessor(self._routes, kv),
            NamesrvConfigProcessor(kv, NamesrvSettings(config.nameserver)),
        ):
            server.table.add_processor(processor, declared_by(type(processor)), lambda name: pool, "in-process routes")
        server.hook(ServerHooks(before=(self._refresh,)), lambda hook, request, error: _failed(request, error))
        return server

    def _topics_changed(self) -> None:
        self._is_stale = True

    def _refresh(self, request: Request) -> None:
        """Update the routes with the topics of the broker, if the topics have changed."""
        if not self._is_stale:
            return
        self._is_stale = False
        state, broker = self._state, self._state.config.broker
        version = state.topics.data_version
        self._routes.register(
            cluster=broker.cluster,
            broker_name=broker.name,
            broker_id=state.role.broker_id,
            broker_address=state.advertised_address,
            ha_server_address="",
            channel=request.channel,
            data_version=version,
            topics=None,
        )
        names = set()
        for name, config in state.topics.registered(broker.permission):
            self._routes.topics.put(broker.name, config)
            names.add(name)
        self._routes.topics.keep_only(broker.name, names)


def _failed(request: Request, error: BaseException) -> None:
    log.error(
        "request.failed_in_process",
        "request %(code)d of a client in this process failed",
        code=request.code,
        exc_info=error,
    )
