"""The service ``console``: starts the console's process when the broker is ready, and ends the console's process with the
broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.plugins.console.child import ConsoleChild, console_of

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi


class ConsoleService:
    """Starts and ends the console's process. No part of the console runs in the broker's process. Used only on the event loop's
    thread.

    Args:
        api: the broker, whose configuration contains the console's address.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._child: ConsoleChild | None = None

    def start(self) -> None:
        """Do nothing. The console starts in :meth:`ready`, because it sends requests to the broker."""

    async def ready(self) -> None:
        """Start the console, which finds the broker through the name servers.

        Raises:
            ConsoleError: the console did not start.
        """
        config = self._api.settings.current
        self._child = console_of(config, config.namesrv.addresses, Path(config.store.path))
        await self._child.start()

    def ready_words(self) -> Mapping[str, str]:
        """Return a mapping with the console's address, as ``host:port``, under the key ``console``. The mapping is empty if the
        console is not running."""
        return {"console": self._child.address} if self._child is not None else {}

    def health(self) -> str:
        """Return the reason why the console does not serve; an empty text if the console serves."""
        return self._child.trouble if self._child is not None else ""

    async def withdraw(self) -> None:
        """End the console while the broker still answers."""
        await self.stop()

    async def stop(self) -> None:
        """End the console's process."""
        child, self._child = self._child, None
        if child is not None:
            await child.stop()
