"""How many of the process's descriptors connections may take: a reserve stays for the store and for all else that opens files.

The kernel gives a new descriptor the lowest free number. So it is enough that no connection is accepted whose number would be
at or above a ceiling, the process's limit less the reserve: no matter what holds the numbers below it (this server, another one
in this process, or the program that a broker is embedded in), those above the ceiling stay free for files. Nothing is counted,
and a limit that is changed while the process runs (prlimit(1)) counts at once.

A connection that is not accepted waits in the queue of the listening socket (``listen.backlog``) until there is room.

The listening sockets are bound here, too.
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
"""Descriptors that connections leave to others: some twenty are open all the time (logs, lock, epoll, the log's newest files,
replication, clients of name servers), and each thread opens one or two files for a moment."""
_RESERVED_SHARE: Final = 4
"""Of a small limit a quarter is reserved."""


def connections_ceiling(limit: int) -> int:
    """Return the first descriptor that no connection may have, for a process that may have so many."""
    return limit - min(RESERVED_MAX, limit // _RESERVED_SHARE)


def limit_of_descriptors() -> int:
    """Return how many descriptors the process may have now (RLIMIT_NOFILE's soft limit); a very large number where it
    is unlimited."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def has_room(listening: int) -> bool:
    """Return whether one more connection may be accepted. Costs three system calls, about a microsecond.

    Args:
        listening: descriptor of the listening socket, duplicated for a moment to see which number is free.
    """
    try:
        lowest_free = os.dup(listening)
    except OSError:
        return False
    os.close(lowest_free)
    return is_below_ceiling(lowest_free)


def is_below_ceiling(descriptor: int) -> bool:
    """Return whether a connection may have this descriptor."""
    return descriptor < connections_ceiling(limit_of_descriptors())


def raise_limit() -> None:
    """Raise the soft limit of descriptors to the hard one.

    For a process that runs nothing but FlintMQ. A program that a broker is embedded in keeps its limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


_VIP_ATTEMPTS: Final = 20
"""With a free port asked for: how often another one is tried whose neighbour is free too."""


def bind(host: str, port: int, keys: str = "listen.host, listen.port") -> socket.socket:
    """Return a socket bound to an address, not listening yet: a peer that comes too early is refused, not kept waiting.

    Args:
        host: a name or an address of this machine.
        port: 0 takes a free one.
        keys: the settings that the two come from, for the error.

    Raises:
        RemotingError: the port is in use, or the address is not this machine's.
    """
    place = host_port(host, port)
    bind_in_loop: Callable[[str, int], socket.socket] | None = getattr(running_loop(), "bind", None)
    try:
        if bind_in_loop is not None:  # the network of a simulation
            return bind_in_loop(host, port)
        # As bytes where that says the same: of a text Python asks its tables of international names, which it reads for it.
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
