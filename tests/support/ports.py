"""Ports for servers that other programs must find where they are told to be."""

from __future__ import annotations

import random
import socket

_CHANCE = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Return ports below those the system hands to clients.

    Each is free with the two ports below it (VIP) and the one above it (replication). They do not follow from the seed of a
    test run: its processes have the same one, and would hand out the same ports before anybody listens there.
    """
    found: list[int] = []
    while len(found) < count:
        port = _CHANCE.randrange(12_000, 30_000, 8)
        if port not in found and all(_is_free(near) for near in range(port - 2, port + 2)):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
