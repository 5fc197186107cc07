"""The folder of the store, in which features of the broker keep their own files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.io.config_manager import JsonFile

if TYPE_CHECKING:
    from flintmq.core.broker.state import BrokerState
    from flintmq.core.io.disk import Disk


class FeatureFolder:
    """The folder of a store, in which features of the broker keep files.

    Features must not put files into the subfolders ``commitlog``, ``consumequeue`` and ``index``.
    """

    __slots__ = ("_state", "path")

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.path = Path(state.config.store.path)
        """Path of the store's folder. Files that RocketMQ does not have are in the subfolder ``flint``."""

    @property
    def disk(self) -> Disk:
        """Object through which a feature of the broker reads and writes files on the disk. In tests, the object can simulate
        errors of the disk."""
        return self._state.store.disk

    def json(self, name: str) -> JsonFile:
        """Return the JSON file ``config/<name>``, which is read and written through :attr:`disk`."""
        return JsonFile(self.path / "config" / name, self.disk)
