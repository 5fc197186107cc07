"""Notifies the service manager of this process, such as systemd, when it is ready and when it stops."""

from __future__ import annotations

import os
import socket
from typing import Final, Self

import attrs

from flintmq.programs.cli.exits import warn

VARIABLE: Final = "NOTIFY_SOCKET"


@attrs.frozen
class ServiceManager:
    """Sends notifications to a service manager with the protocol of sd_notify(3): datagrams with lines ``NAME=value``.

    ``address`` is the path of a socket, or an abstract name that begins with ``@``; empty without a service manager.
    """

    address: str

    @classmethod
    def of_environment(cls) -> Self:
        """Return the service manager that the environment names. The variable is removed from the environment, because child
        processes are not the service manager's services."""
        return cls(os.environ.pop(VARIABLE, ""))

    def tell(self, *lines: str) -> None:
        """Send lines such as ``READY=1`` to the service manager. A failure only causes a warning."""
        if not self.address:
            return
        where = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.settimeout(1.0)
                sending.sendto("\n".join(" ".join(line.split()) for line in lines).encode(), where)
        except OSError as error:
            warn(f"{VARIABLE} {self.address}: the service manager was not told {lines[0]}: {error.strerror or error}")
