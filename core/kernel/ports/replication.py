"""The interfaces of the services that replicate the log and that find the master through name servers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class SupportsReplication(Protocol):
    """A service that sends the log to slaves, or copies the log of a master. Used only on the event loop's thread."""

    @property
    def ha_port(self) -> int:
        """The TCP port to which slaves connect while this broker is the master.

        Valid, also on a slave, after the service's start.
        """
        ...

    @property
    def is_following(self) -> bool:
        """Whether this broker is a slave whose master can be reached."""
        ...


@runtime_checkable
class MasterDirectory(Protocol):
    """A service that registers the broker with name servers, and gets the address of a slave's master from them.

    Used only on the event loop's thread.
    """

    @property
    def master_address(self) -> str:
        """The ``host:port`` at which clients reach the master; empty while no name server knows the master."""
        ...

    @property
    def master_ha_address(self) -> str:
        """The ``host:port`` of the master that slaves replicate from; empty while no name server knows the master."""
        ...

    async def register_all(self) -> None:
        """Register the broker with every name server now, and learn the master's address.

        Name servers that fail are tried later.
        """
        ...

    async def settle(self) -> None:
        """Wait until the registrations with name servers that are under way have ended. Called after a topic was deleted.

        A registration sends the broker's table of topics to a name server. If a registration began before the topic was
        deleted, it may send a table that still contains the topic.
        """
        ...
