"""What every client a user makes has in common: an instance of connections, its own or shared, and an ``async with``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from flintmq.remoting.client.instance import ClientInstance


class InstanceUser:
    """Holds a :class:`ClientInstance`. Loop thread only.

    Args:
        name_servers: ``host:port;host:port`` or a sequence; not looked at when a ``client`` is handed over.
        client: an instance shared with others; it is not closed with this user.
        instance_options: for a :class:`ClientInstance` of its own.
    """

    def __init__(
        self, name_servers: str | Sequence[str], client: ClientInstance | None, instance_options: Mapping[str, Any]
    ) -> None:
        self.client = client or ClientInstance(name_servers, **instance_options)
        self._owns_client = client is None

    async def start(self) -> None:
        """Called when an ``async with`` begins; nothing needs it here."""

    async def close(self) -> None:
        """Close the connections, unless they are shared. Idempotent."""
        if self._owns_client:
            await self.client.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
