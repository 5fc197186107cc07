"""Where features keep files: the folder of the store, through the broker's disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.io.config_manager import JsonFile

if TYPE_CHECKING:
    from flintmq.core.broker.state import BrokerState
    from flintmq.core.io.disk import Disk


class FeatureFolder:
    """The folder of a store. Nothing foreign may lie in ``commitlog``, ``consumequeue`` and ``index``."""

    __slots__ = ("_state", "path")

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.path = Path(state.config.store.path)
        """The folder. What only FlintMQ knows lies in ``flint``."""

    @property
    def disk(self) -> Disk:
        """What files are read and written through. Tests give one that fails."""
        return self._state.store.disk

    def json(self, name: str) -> JsonFile:
        """Return the table ``config/<name>``, which is written through :attr:`disk`."""
        return JsonFile(self.path / "config" / name, self.disk)
