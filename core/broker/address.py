"""The address of a broker: what records carry, and what clients get, which may differ from what the broker registers under.

A broker may register two more facts. It may run with a name server on one machine and listen at every address of it: then a
client is answered the address at which it reached the name server. And for each further listener of the name server, which
has a name, it may register the address by which clients of that listener reach it, such as a port that a container runtime or
a router maps.

Both are sent in one extra field of the registration, which RocketMQ's own name server ignores::

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
"""``listen.advertised_host: client``, and the word for it in the registration."""
_ENTRY: Final = re.compile(r"([A-Za-z0-9_-]{1,64})=([^\s;,=]{1,255}:\d{1,5})")
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")
"""Of a host; with underscores, which containers have in theirs. An IPv4 address fits, too."""
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PORT_MAX: Final = 65_535
_ENTRIES_MAX: Final = 64


class Viewpoint(msgspec.Struct, frozen=True):
    """The listener and the address at which a client reached the name server."""

    listener: str = ""
    """The name of the listener; empty for the main one."""
    local_host: str = ""
    """The local address of the client's connection."""


HERE: Final = Viewpoint()
"""The viewpoint from which addresses are as they were registered."""


class Advertised(msgspec.Struct, frozen=True):
    """The addresses of a broker beyond the one it registers under."""

    by_listener: Mapping[str, str] = msgspec.field(default_factory=dict)
    """``host:port`` by the name of the name server's listener."""
    as_client: bool = False
    """Clients reach it at every address of its machine."""

    @classmethod
    def parse(cls, text: str) -> Advertised:
        """Read the field of a registration; entries that cannot be understood are left out."""
        words = text.split(",")[:_ENTRIES_MAX]
        found = {match[1]: match[2] for word in words if (match := _ENTRY.fullmatch(word.strip()))}
        return cls(found, CLIENT in words)

    @classmethod
    def of(cls, entries: Iterable[str], *, as_client: bool) -> Advertised:
        """Read entries of the settings: ``NAME=HOST:PORT`` each."""
        return cls(dict(entry.split("=", 1) for entry in entries), as_client)

    def __bool__(self) -> bool:
        return self.as_client or bool(self.by_listener)

    def to_text(self) -> str:
        """Return the field of the registration."""
        words = [CLIENT] if self.as_client else []
        return ",".join([*words, *(f"{name}={address}" for name, address in self.by_listener.items())])

    def address(self, registered: str, viewpoint: Viewpoint) -> str:
        """Return the address for a viewpoint, where ``registered`` is the address the broker registered under."""
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
    """How a broker is reached."""

    host_port: str
    """``host:port`` that it registers under, and that clients get unless :attr:`advertised` names another one."""
    packed: bytes
    """The address as records and message ids hold it."""
    listening_port: int
    """The port that it listens on."""
    advertised: Advertised = msgspec.field(default_factory=Advertised)
    """Other addresses that clients get, by the network that they come from."""

    @property
    def packed_hex(self) -> str:
        """Return :attr:`packed` as message ids hold it."""
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
        ip: the host's address, where it is a name.
        advertised: other addresses that clients get, by network.
        listening_port: the port that the broker listens on, where it is another one.
    """
    listening = port if listening_port is None else listening_port
    others = advertised if advertised is not None else Advertised()
    return BrokerAddress(host_port(host, port), pack_host(ip or host, port), listening, others)


def ha_port(replication: SupportsReplication | None, configured: int | None, address: BrokerAddress) -> int:
    """Return the port that slaves replicate from, or would if this broker were a master that has some.

    Args:
        replication: the service that listens for slaves, or would; None without one.
        configured: ``listen.ha_port``.
        address: the broker's.
    """
    listening = replication.ha_port if replication is not None else 0
    return listening or configured or address.listening_port + 1
