"""Under which address a broker can be reached; without access control none but the loopback, unless the operator insists."""

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
    """Return the address that clients get when a server listens on every address: one of this machine's that is not the
    loopback."""
    if host not in EVERY_INTERFACE:
        return host
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    addresses = [str(entry[4][0]) for entry in found]
    return next((address for address in addresses if not address.startswith("127.")), "127.0.0.1")


async def broker_address(listen: ListenSection, host: str, port: int) -> BrokerAddress:
    """Return the address of a broker that listens on a host and port: clients get a name, records carry its address."""
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
    """Return the address of a host; None, with a warning, where its name is not known here (outside a container it may be)."""
    with contextlib.suppress(ValueError):
        pack_ip(name)
        return name  # as it stands: to ask the system would take a thread, and Python's tables of international names
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        log.warning(
            "broker.address_unknown",
            "the address of listen.advertised_host %(host)s is not known here: %(error)s; message ids hold another",
            host=name,
            error=error,
        )
        return None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


_SECURITY_LOG: Final = event_log("flintmq.security")

REMINDER_S: Final = 60.0
"""How often an open door is mentioned."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host; False where its addresses cannot be found out."""
    if host == "127.0.0.1":
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


def check_exposure(host: str, *, host_key: str, acl_key: str, has_acl: bool, insecure: bool) -> bool:
    """Refuse an address that other machines reach, unless requests must be signed or the operator insists.

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
    """Log one line about a port that is open to other machines."""
    _SECURITY_LOG.warning(
        "broker.exposed",
        "listening at %(host)s without access control: anyone who reaches it may do everything (listen.insecure)",
        host=host,
    )
