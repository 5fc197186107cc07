"""Finds the address under which clients reach a broker, and refuses to listen to other machines without access control."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from flintmq.config.errors import ConfigError
from flintmq.core.broker.address import CLIENT, Advertised, BrokerAddress, address_of
from flintmq.core.log_events import event_log
from flintmq.core.record.host import pack_ip

if TYPE_CHECKING:
    from flintmq.config.sections.server import ListenSection

log = event_log("flintmq.broker")

EVERY_INTERFACE: Final = ("0.0.0.0", "::")


def reachable_host(host: str) -> str:
    """Return the address under which clients reach a server that listens at a host.

    If the host means every interface (``0.0.0.0`` or ``::``), return an IPv4 address of this machine. Return the loopback
    address only if the machine has no other address. Every other host is returned unchanged.
    """
    if host not in EVERY_INTERFACE:
        return host
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    addresses = [str(entry[4][0]) for entry in found]
    return next((address for address in addresses if not address.startswith("127.")), "127.0.0.1")


async def broker_address(listen: ListenSection, host: str, port: int) -> BrokerAddress:
    """Return the address of a broker that listens on a host and port.

    Clients get the advertised host, which may be a name. The records in the log contain the IP address of the advertised host.
    """
    told = listen.advertised_host
    as_client = told == CLIENT and host in EVERY_INTERFACE
    if told is None or told == CLIENT:
        told = reachable_host(host)
    return address_of(
        told,
        listen.advertised_port or port,
        await _ip_of(told) or reachable_host(host),
        Advertised.of(listen.advertised, as_client=as_client),
        listening_port=port,
    )


async def _ip_of(name: str) -> str | None:
    """Return the IP address of a host. If this machine cannot resolve the host's name, log a warning and return None.

    For example, a name may be known only outside a container.
    """
    with contextlib.suppress(ValueError):
        pack_ip(name)
        # An IP address needs no resolver. Resolving starts a thread and loads Python's tables of international names.
        return name
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        log.warning(
            "broker.address_unknown",
            "listen.advertised_host %(host)s cannot be resolved here: %(error)s; message ids contain another address",
            host=name,
            error=error,
        )
        return None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


_SECURITY_LOG: Final = event_log("flintmq.security")

REMINDER_S: Final = 60.0
"""Seconds between two warnings that other machines can reach a port without access control."""


def is_loopback(host: str) -> bool:
    """Return whether all addresses of a host are loopback addresses; False if the host's name cannot be resolved."""
    if host == "127.0.0.1":
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


def check_exposure(host: str, *, host_key: str, acl_key: str, has_acl: bool, insecure: bool) -> bool:
    """Check that a server does not listen to other machines without access control, unless ``listen.insecure`` allows it.

    Args:
        host: the address to listen at.
        host_key: the setting that the address comes from.
        acl_key: the setting that switches access control on.
        has_acl: whether access control is on.
        insecure: the value of ``listen.insecure``.

    Returns:
        True if other machines reach the server without access control, which ``insecure`` allows. In this case a warning is
        logged, and the caller repeats the warning every :data:`REMINDER_S` seconds.

    Raises:
        ConfigError: other machines reach the address, and neither ``has_acl`` nor ``insecure`` is set.
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
    """Log one warning that other machines reach a port without access control."""
    _SECURITY_LOG.warning(
        "broker.exposed",
        "listening at %(host)s without access control: anyone who reaches it may do everything (listen.insecure)",
        host=host,
    )
