"""Binds the sockets that servers listen on."""

from __future__ import annotations

import socket
from typing import Final

from flintmq.core.errors import RemotingError

_VIP_ATTEMPTS: Final = 20
"""With a free port asked for: how often another one is tried whose neighbour is free too."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address, not listening yet: a peer that comes too early is refused, not kept waiting.

    Args:
        port: 0 takes a free one.

    Raises:
        RemotingError: the port is in use, or the address is not this machine's.
    """
    try:
        # As bytes where that says the same: of a text Python asks its tables of international names, which it reads for it.
        named = host.encode() if host.isascii() else host
        family, kind, protocol, _, address = socket.getaddrinfo(named, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise RemotingError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise RemotingError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return sock


def bind_with_vip(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return two sockets, bound to a port and to the one two below it, where RocketMQ answers too.

    See docs/internals/protocol.md, Ports.

    Raises:
        RemotingError: as :func:`bind`.
    """
    for attempt in range(_VIP_ATTEMPTS):
        main = bind(host, port)
        try:
            return main, bind(host, main.getsockname()[1] - 2)
        except RemotingError:
            main.close()
            if port or attempt == _VIP_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")
