"""The address of a broker: what clients get, and what records carry."""

from __future__ import annotations

from typing import Self

import msgspec

from flintmq.core.broker.advertised import Advertised, host_port
from flintmq.core.record.host import pack_host


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

    @classmethod
    def of(
        cls,
        host: str,
        port: int,
        ip: str | None = None,
        advertised: Advertised | None = None,
        *,
        listening_port: int | None = None,
    ) -> Self:
        """Return the address of a host, given by its name or address.

        Args:
            host: the host that clients get.
            port: the port that clients get.
            ip: the host's address, where it is a name.
            advertised: other addresses that clients get, by network.
            listening_port: the port that the broker listens on, where it is another one.
        """
        listening = port if listening_port is None else listening_port
        told = advertised if advertised is not None else Advertised()
        return cls(host_port(host, port), pack_host(ip or host, port), listening, told)
