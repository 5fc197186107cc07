"""The addresses of a broker: in records, in its registration, and in the routes that clients get.

The route gives clients another address than the one under which the broker registers, in two cases:

* The broker listens at every address of the machine of its name server. A client then gets the address at which it reached the
  name server.
* The broker has an address for each named listener of the name server, such as a port that a container runtime or a router
  maps. Clients of that listener get this address.

An additional field of the registration contains the addresses for these two cases. RocketMQ's name server ignores the field::

    flintAdvertised = client,outside=mq.example.com:20911
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from flintmq.core.record.host import pack_host

if TYPE_CHECKING:
    from flintmq.core.kernel.ports.replication import SupportsReplication

CLIENT: Final = "client"
"""Value of ``listen.advertised_host`` for a broker that clients reach at every address of its machine. The broker's
registration contains this value, too."""
_ENTRY: Final = re.compile(r"([A-Za-z0-9_-]{1,64})=([^\s;,=]{1,255}:\d{1,5})")
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")
"""Pattern of a host's name or IPv4 address. Underscores are allowed because names of containers contain underscores."""
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PORT_MAX: Final = 65_535
_ENTRIES_MAX: Final = 64


class Viewpoint(msgspec.Struct, frozen=True):
    """The listener and the address at which a client reached the name server."""

    listener: str = ""
    """Name of the name server's listener; empty for the main listener."""
    local_host: str = ""
    """Address of the name server to which the client is connected."""


HERE: Final = Viewpoint()
"""Listener and address of the name server for a client about which neither is known: the main listener, and an unknown address.
For each broker, this client gets the address under which the broker registered."""


class Advertised(msgspec.Struct, frozen=True):
    """The addresses of a broker besides its registered address."""

    by_listener: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Addresses of the broker as ``host:port``, keyed by the name of the name server's listener whose clients get the
    address."""
    as_client: bool = False
    """Whether clients reach the broker at every address of its machine."""

    @classmethod
    def parse(cls, text: str) -> Advertised:
        """Return the broker's further addresses, decoded from a field of the broker's registration. Entries with errors are
        ignored."""
        words = text.split(",")[:_ENTRIES_MAX]
        found = {match[1]: match[2] for word in words if (match := _ENTRY.fullmatch(word.strip()))}
        return cls(found, CLIENT in words)

    @classmethod
    def of(cls, entries: Iterable[str], *, as_client: bool) -> Advertised:
        """Return the broker's further addresses, read from settings of the form ``NAME=HOST:PORT``."""
        return cls(dict(entry.split("=", 1) for entry in entries), as_client)

    def __bool__(self) -> bool:
        return self.as_client or bool(self.by_listener)

    def to_text(self) -> str:
        """Return the broker's further addresses as text for a field of the broker's registration."""
        words = [CLIENT] if self.as_client else []
        return ",".join([*words, *(f"{name}={address}" for name, address in self.by_listener.items())])

    def address(self, registered: str, viewpoint: Viewpoint) -> str:
        """Return the broker's address for a client.

        Args:
            registered: ``host:port`` under which the broker registered.
            viewpoint: listener and address at which the client reached the name server.
        """
        named = self.by_listener.get(viewpoint.listener)
        if named is not None:
            return named
        if not self.as_client or not viewpoint.local_host:
            return registered
        return host_port(viewpoint.local_host, registered.rpartition(":")[2])


def host_port(host: str, port: int | str) -> str:
    """Return ``host:port``, with an IPv6 address in brackets and a mapped IPv4 address as an IPv4 address."""
    host = host.partition("%")[0].removeprefix("::ffff:") if "." in host else host.partition("%")[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(text: str) -> bool:
    """Return whether text is ``host:port`` of a name, an IPv4 address, or an IPv6 address with or without brackets."""
    host, _, port = text.rpartition(":")
    if not (_PORT.fullmatch(port) and 0 < int(port) <= _PORT_MAX):
        return False
    if _NAME.fullmatch(host):
        return True
    try:
        ipaddress.IPv6Address(host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host)
    except ValueError:
        return False
    return True


class BrokerAddress(msgspec.Struct, frozen=True):
    """The addresses and the listening port of a broker."""

    host_port: str
    """Address as ``host:port`` under which the broker registers. A client gets this address unless :attr:`advertised` has
    another address for the client."""
    packed: bytes
    """Address of the broker in the binary form that records and message ids contain."""
    listening_port: int
    """Port on which the broker listens."""
    advertised: Advertised = msgspec.field(default_factory=Advertised)
    """Other addresses of the broker for clients, according to the network from which the clients connect."""

    @property
    def packed_hex(self) -> str:
        """Return the broker's address :attr:`packed` in hexadecimal digits, as message ids contain it."""
        return self.packed.hex().upper()


def address_of(
    host: str,
    port: int,
    ip: str | None = None,
    advertised: Advertised | None = None,
    *,
    listening_port: int | None = None,
) -> BrokerAddress:
    """Return the address of a broker on a host, given by its name or address.

    Args:
        host: the host that clients get.
        port: the port that clients get.
        ip: the host's IP address, if ``host`` is a name.
        advertised: addresses that some clients get instead of this address.
        listening_port: the port on which the broker listens; None if it is ``port``.
    """
    listening = port if listening_port is None else listening_port
    others = advertised if advertised is not None else Advertised()
    return BrokerAddress(host_port(host, port), pack_host(ip or host, port), listening, others)


def ha_port(replication: SupportsReplication | None, configured: int | None, address: BrokerAddress) -> int:
    """Return the port on which slaves replicate from a broker.

    For a broker without slaves, return the port that slaves would use.

    Args:
        replication: the service of replication; None if the broker has none.
        configured: the setting ``listen.ha_port``.
        address: the broker's address.
    """
    listening = replication.ha_port if replication is not None else 0
    return listening or configured or address.listening_port + 1
