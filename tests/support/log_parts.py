"""What features are given of a store, made of a store alone."""

from __future__ import annotations

import attrs

from flintmq.core.broker.log_view import LogView
from flintmq.core.store.message_store import MessageStore


@attrs.frozen
class _Owner:
    store: MessageStore

    def dispatch(self) -> None:
        self.store.dispatch()

    dispatch_soon = dispatch


def view_of(store: MessageStore) -> LogView:
    """A store to be read."""
    return LogView(_Owner(store))
