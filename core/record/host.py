"""Addresses as records and message ids hold them: 4 or 16 bytes of IP and an int32 port.

See docs/internals/store-format.md, Commit log record and Identifiers.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from functools import lru_cache

V4_BYTES = 8
V6_BYTES = 20
PORT_MAX = 65_535


def pack_ip(ip: str) -> bytes:
    """``ip`` (v4 or v6, a zone is dropped) as 4 or 16 bytes. Raises ValueError."""
    try:
        return socket.inet_pton(socket.AF_INET, ip)
    except OSError:
        return ipaddress.ip_address(ip.partition("%")[0]).packed


@lru_cache(maxsize=4_096)
def pack_host(ip: str, port: int) -> bytes:
    """``ip`` (v4 or v6, a zone is dropped) and port as 8 or 20 bytes. Raises ValueError."""
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"a port is 0 to {PORT_MAX}, not {port}")
    return pack_ip(ip) + struct.pack(">i", port)


def unpack_host(packed: bytes | memoryview) -> tuple[str, int]:
    """The inverse of :func:`pack_host`."""
    raw = bytes(packed)
    return str(ipaddress.ip_address(raw[:-4])), int.from_bytes(raw[-4:], "big", signed=True)


def host_text(packed: bytes | memoryview) -> str:
    """``ip:port``; an IPv6 address in brackets."""
    ip, port = unpack_host(packed)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
