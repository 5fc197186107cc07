"""Serves the console over HTTP on the running event loop. Signals are handled by the process, not by the HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import uvicorn

from flintmq.config.errors import ConfigError
from flintmq.config.sections.console import ConsoleSection
from flintmq.core.broker.address import host_port
from flintmq.core.errors import FlintError, RemotingConnectError
from flintmq.core.log_events import event_log
from flintmq.programs.console.app import Console, make_app
from flintmq.programs.console.connection import Connection

log = event_log("flintmq.console")

STOP_TIMEOUT_S: Final = 3


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers unchanged: the process handles signals and stops the server."""
        yield


class ConsoleServer:
    """A running console, from ``__aenter__`` to ``__aexit__``. For the loop thread only.

    Args:
        name_servers: ``host:port;host:port`` of the cluster.
        settings: the address to listen at, and the certificate.
        audit_file: the file for the log of changes; None to keep it in memory.
        history_file: the file for the last day's figures; None to keep them in memory.
        ssl_context: for encrypted connections to the cluster.

    Raises (at ``__aenter__``):
        ConfigError: the certificate cannot be used.
        RemotingConnectError: the address is in use, or is not an address of this
            machine.
    """

    def __init__(
        self,
        name_servers: str,
        settings: ConsoleSection,
        *,
        audit_file: Path | None = None,
        history_file: Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._name_servers = name_servers
        self._audit_file = audit_file
        self._history_file = history_file
        self._ssl_context = ssl_context
        self._stack = contextlib.AsyncExitStack()
        self.address = ""
        """``host:port`` at which the console listens; empty until it listens."""

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self._console = console = Console(
                self._name_servers,
                audit_file=self._audit_file,
                history_file=self._history_file,
                ssl_context=self._ssl_context,
            )
            stack.push_async_callback(console.close)
            bound = stack.enter_context(_bound(self._settings.host, self._settings.port))
            console.start()
            config = uvicorn.Config(
                make_app(console, self._settings.host_names),
                log_config=None,
                log_level="error",
                access_log=False,
                lifespan="off",
                ws="none",
                http=Connection,
                server_header=False,
                date_header=True,
                proxy_headers=False,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=STOP_TIMEOUT_S,
                ssl_certfile=self._settings.certificate,
                ssl_keyfile=self._settings.key,
            )
            try:
                config.load()
            except (OSError, ssl.SSLError) as error:
                text = f"the certificate cannot be used: {self._settings.certificate}: {error}"
                raise ConfigError(f"{text} (console.certificate, console.key)", "console.certificate") from error
            server = _Server(config)
            serving = asyncio.create_task(server.serve(sockets=[bound]), name="console")
            stack.push_async_callback(_end, server, serving)
            self.address = host_port(*bound.getsockname()[:2])
            self._stack = stack.pop_all()
        return self

    async def warn_if_exposed(self) -> None:
        """Log warnings if users of other machines can read or change data. Call this method only if the console's address is
        not loopback."""
        if self._settings.certificate is None:
            log.warning(
                "console.plain",
                "the console at %(address)s is not encrypted: others may read logins and pages on the way",
                address=self.address,
            )
        try:
            asks_nothing = await self._console.clusters.anonymous().is_taken()
        except FlintError:
            # The cluster does not answer yet. Each page will check again whether the cluster has access control.
            return
        if asks_nothing:
            log.warning(
                "console.open",
                "the console at %(address)s is open: the cluster has no access control, so anyone who reaches it may "
                "do everything",
                address=self.address,
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()


async def _end(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    server.should_exit = True
    await serving


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the console's address. Raises RemotingConnectError if that is not possible."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise RemotingConnectError(
            f"the console cannot listen at {host}:{port}: {error.strerror or error} (console.host, console.port)"
        ) from error
