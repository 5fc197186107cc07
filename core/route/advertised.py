"""By which address a client reaches a broker: not every client reaches the one that the broker registers under.

A broker may say two things more. That it runs with a name server on one machine and listens at every address of it: then a
client is told the address at which it reached the name server. And, for further listeners of the name server, each with a
name: at what address the clients of that listener reach the broker, which is what stands before a port that a container
runtime or a router maps.

Both travel in one extra field of the registration, which RocketMQ's own name server ignores::

    flintAdvertised = client,outside=mq.example.com:20911
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

CLIENT: Final = "client"
"""``listen.advertised_host: client``, and the word for it in the registration."""
_ENTRY: Final = re.compile(r"([A-Za-z0-9_-]{1,64})=([^\s;,=]{1,255}:\d{1,5})")
_ENTRIES_MAX: Final = 64


@attrs.frozen
class Viewpoint:
    """Where at the name server a client asks."""

    listener: str = ""
    """The listener's name; the main one has none."""
    local_host: str = ""
    """The address that the client's connection came to."""


HERE: Final = Viewpoint()
"""For who wants addresses as they were registered."""


@attrs.frozen
class Advertised:
    """What a broker says of its address beyond the one it registers under."""

    by_listener: Mapping[str, str] = attrs.field(factory=dict)
    """``host:port`` by the name of the name server's listener."""
    as_client: bool = False
    """Clients reach it at every address of its machine."""

    @classmethod
    def parse(cls, text: str) -> Advertised:
        """What a registration says; what cannot be understood is left out."""
        words = text.split(",")[:_ENTRIES_MAX]
        found = {match[1]: match[2] for word in words if (match := _ENTRY.fullmatch(word.strip()))}
        return cls(found, CLIENT in words)

    @classmethod
    def of(cls, entries: Iterable[str], *, as_client: bool) -> Advertised:
        """From the settings: ``NAME=HOST:PORT`` each."""
        return cls(dict(entry.split("=", 1) for entry in entries), as_client)

    def __bool__(self) -> bool:
        return self.as_client or bool(self.by_listener)

    def to_text(self) -> str:
        """The field of the registration."""
        words = [CLIENT] if self.as_client else []
        return ",".join([*words, *(f"{name}={address}" for name, address in self.by_listener.items())])

    def address(self, registered: str, viewpoint: Viewpoint) -> str:
        """What a client is told who asks from there, ``registered`` being what the broker registered under."""
        named = self.by_listener.get(viewpoint.listener)
        if named is not None:
            return named
        if not self.as_client or not viewpoint.local_host:
            return registered
        return host_port(viewpoint.local_host, registered.rpartition(":")[2])


def host_port(host: str, port: int | str) -> str:
    """``host:port``, an IPv6 address in brackets; one that is an IPv4 address in disguise is shown as that."""
    host = host.partition("%")[0].removeprefix("::ffff:") if "." in host else host.partition("%")[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
