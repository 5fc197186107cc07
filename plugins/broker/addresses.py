"""Finds out under which address a broker can be reached."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.address import BrokerAddress
from flintmq.core.broker.advertised import CLIENT, Advertised
from flintmq.core.record.host import pack_ip

if TYPE_CHECKING:
    from flintmq.config.sections.server import ListenSection

log = logging.getLogger("flintmq.broker")

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
    return BrokerAddress.of(
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
            "the address of listen.advertised_host %s is not known here: %s; message ids hold another", name, error
        )
        return None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])
