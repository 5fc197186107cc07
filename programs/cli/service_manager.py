"""Tells the service manager that started this process, systemd for one, when it serves and when it stops."""

from __future__ import annotations

import os
import socket
from typing import Final, Self

import attrs

from flintmq.programs.cli.exits import warn

VARIABLE: Final = "NOTIFY_SOCKET"


@attrs.frozen
class ServiceManager:
    """Where a service manager listens: the protocol of sd_notify(3), a datagram of lines ``NAME=value``.

    ``address`` is a path, or a name that begins with ``@``; empty where nobody wants to know.
    """

    address: str

    @classmethod
    def of_environment(cls) -> Self:
        """Return the one that the environment names, and take the name away: what is started from here is not its service."""
        return cls(os.environ.pop(VARIABLE, ""))

    def tell(self, *lines: str) -> None:
        """Send lines such as ``READY=1``. What cannot be sent costs a warning: a broker that serves goes on serving."""
        if not self.address:
            return
        where = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.settimeout(1.0)
                sending.sendto("\n".join(" ".join(line.split()) for line in lines).encode(), where)
        except OSError as error:
            warn(f"{VARIABLE} {self.address}: the service manager was not told {lines[0]}: {error.strerror or error}")
