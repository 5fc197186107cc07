"""Keeps servers from listening by accident where other machines reach: without access control an address must be on
the loopback."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import Final

from flintmq.config.errors import ConfigError

log = logging.getLogger("flintmq.security")

REMINDER_S: Final = 60.0
"""How often an open door is mentioned."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host; False where its addresses cannot be found out."""
    if host == "127.0.0.1":
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


def check_exposure(host: str, *, host_key: str, acl_key: str, has_acl: bool, insecure: bool) -> bool:
    """Refuses an address that other machines reach, unless requests must be signed or the operator insists.

    Args:
        host: the address to listen at.
        host_key: the setting it comes from.
        acl_key: the setting that would switch access control on.
        has_acl: whether it is on.
        insecure: ``listen.insecure``.

    Returns:
        True when the door is open and the operator insists: remind of it.

    Raises:
        ConfigError: the address is refused; says what to do.
    """
    if has_acl or is_loopback(host):
        return False
    if not insecure:
        raise ConfigError(
            f"'{host_key}' {host} can be reached from other machines, and anyone there could read, write and delete: "
            f"switch access control on ({acl_key}: true), listen at 127.0.0.1, or accept it with listen.insecure: true",
            key=host_key,
        )
    remind(host)
    return True


def remind(host: str) -> None:
    """One line about an open door."""
    log.warning(
        "listening at %s without access control: anyone who reaches it may do everything (listen.insecure)", host
    )
