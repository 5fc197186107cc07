"""The console of one broker: a process that is started when the broker is ready, and ended with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.plugins.console.child import ConsoleChild, console_of

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi


class ConsoleService:
    """Has the console's process; nothing of the console runs in the broker's own. Loop thread.

    Args:
        api: the broker, whose configuration says where the console listens.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._child: ConsoleChild | None = None

    def start(self) -> None:
        """Do nothing: the console asks a broker that answers."""

    async def ready(self) -> None:
        """Start the console, which finds the broker by its name servers.

        Raises:
            ConsoleError: it did not start.
        """
        config = self._api.settings.current
        self._child = console_of(config, config.namesrv.addresses, Path(config.store.path))
        await self._child.start()

    def ready_words(self) -> Mapping[str, str]:
        """Return where the console listens."""
        return {"console": self._child.address} if self._child is not None else {}

    def health(self) -> str:
        """Return why the console does not serve."""
        return self._child.trouble if self._child is not None else ""

    async def withdraw(self) -> None:
        """End the console while the broker still answers."""
        await self.stop()

    async def stop(self) -> None:
        """End the console's process."""
        child, self._child = self._child, None
        if child is not None:
            await child.stop()
