"""Limits the file descriptors that connections may use, and binds listening sockets.

Some descriptors are reserved for the store's files. The kernel gives a new descriptor the lowest free number. The ceiling is
the process's limit of descriptors minus the number of reserved descriptors. A connection is not accepted if its descriptor
would be at or above the ceiling. Numbers at and above the ceiling therefore stay free for files, even if another server of the
process, or a program that embeds a broker, uses numbers below the ceiling. The open descriptors are not counted. A limit that
is changed while the process runs (prlimit(1)) takes effect at once.

A connection that is not accepted waits in the queue of the listening socket (``listen.backlog``) until a descriptor is free.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable
from typing import Final

from flintmq.core.broker.address import host_port
from flintmq.core.errors import RemotingError
from flintmq.core.running_loop import running_loop

RESERVED_MAX: Final = 128
"""Maximum number of the process's descriptors that are reserved for other uses than connections.

About twenty of the reserved descriptors are open all the time: logs, lock, epoll, the newest files of the log, replication, and
clients of name servers. Each thread opens one or two files for a moment.
"""
_RESERVED_SHARE: Final = 4
"""Divisor of the process's limit of descriptors. If the quotient is smaller than :data:`RESERVED_MAX`, the quotient is the
number of reserved descriptors."""


def connections_ceiling(limit: int) -> int:
    """Return the lowest file descriptor that is reserved, in a process that may open `limit` descriptors. Connections must have
    lower descriptors."""
    return limit - min(RESERVED_MAX, limit // _RESERVED_SHARE)


def limit_of_descriptors() -> int:
    """Return the number of file descriptors that the process may open now, which is the soft limit of RLIMIT_NOFILE.

    The number is 2**30 if the process has no limit.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def has_room(listening: int) -> bool:
    """Return whether a file descriptor is free for one more connection.

    The check costs three system calls, about a microsecond.

    Args:
        listening: descriptor of the listening socket, which is duplicated for a moment to find the lowest free number.
    """
    try:
        lowest_free = os.dup(listening)
    except OSError:
        return False
    os.close(lowest_free)
    return is_below_ceiling(lowest_free)


def is_below_ceiling(descriptor: int) -> bool:
    """Return whether a connection may have a file descriptor.

    The descriptors above a limit are reserved for the store's files.
    """
    return descriptor < connections_ceiling(limit_of_descriptors())


def raise_limit() -> None:
    """Raise the process's soft limit of file descriptors to the hard limit.

    Only a process that runs nothing but FlintMQ calls this function. A program in which a broker is embedded keeps its limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


_VIP_ATTEMPTS: Final = 20
"""Maximum number of free ports that are tried until a port is found whose VIP port (the port number minus 2) is free, too."""


def bind(host: str, port: int, keys: str = "listen.host, listen.port") -> socket.socket:
    """Return a socket that is bound to an address and does not listen yet. Peers that connect before the socket listens are
    refused, not queued.

    Args:
        host: a name or an address of this machine.
        port: the port; 0 for any free port.
        keys: the settings of the host and port, for the error.

    Raises:
        RemotingError: the port is in use, or the address is not this machine's.
    """
    place = host_port(host, port)
    bind_in_loop: Callable[[str, int], socket.socket] | None = getattr(running_loop(), "bind", None)
    try:
        # Only the event loop of a simulation has bind(), which returns a socket of the simulated network.
        if bind_in_loop is not None:
            return bind_in_loop(host, port)
        # An ASCII name is passed as bytes: for a str, Python would load its tables of international names.
        named = host.encode() if host.isascii() else host
        family, kind, protocol, _, address = socket.getaddrinfo(named, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise RemotingError(f"cannot listen on {place}: {error.strerror or error} ({keys})") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise RemotingError(f"cannot listen on {place}: {error.strerror or error} ({keys})") from error
    return sock


def bind_with_vip(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return two bound sockets, one for a port and one for its VIP port.

    The VIP port is two below the port, and RocketMQ's servers answer on it, too. See docs/internals/protocol.md, Ports.

    Raises:
        RemotingError: one of the ports is in use, or the address does not belong to this machine.
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
