"""The ports between replication, the name servers' view of it, and the broker."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class SupportsReplication(Protocol):
    """A service that sends the log to slaves, or copies the log of a master. Loop thread."""

    @property
    def ha_port(self) -> int:
        """The port that slaves replicate from, or would if this broker were the master. Valid once the service has started."""
        ...

    @property
    def is_following(self) -> bool:
        """Whether this broker is a slave whose master can be reached."""
        ...


@runtime_checkable
class MasterDirectory(Protocol):
    """A service that registers with name servers, and knows from them where the master of this slave is. Loop thread."""

    @property
    def master_address(self) -> str:
        """The ``host:port`` at which clients reach the master; empty while no name server knows it."""
        ...

    @property
    def master_ha_address(self) -> str:
        """The ``host:port`` that slaves replicate from; empty while no name server knows it."""
        ...

    async def register_all(self) -> None:
        """Register with every name server now, and learn where the master is. A name server that fails is tried again later."""
        ...

    async def settle(self) -> None:
        """Wait until the registrations that are under way have ended, so that none with an older table comes after this."""
        ...
