"""What is wrong with the store and its dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flintmq.core.broker import alarms
from flintmq.core.errors import StoreFormatError

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import Alarm


class StoreAlarms:
    """Says when the store takes nothing, or dispatch stands still. Loop thread.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    def start(self) -> None:
        """Do nothing: the store knows its state at any time."""

    def stop(self) -> None:
        """Do nothing."""

    def alarms(self) -> Iterator[Alarm]:
        """Return what keeps the store from taking messages, or consumers from seeing them."""
        store = self._api.store
        if store.watermarks.fence_reason is not None:
            yield alarms.fenced(store.watermarks.fence_reason)
        error = store.reput.error
        if isinstance(error, StoreFormatError):
            yield alarms.damaged(str(error))
        elif error is not None:
            yield alarms.dispatch_stopped(str(error), store.reput.behind_bytes)
