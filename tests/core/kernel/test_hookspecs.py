"""A dispatcher gets the bodies of what it is given from its context."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.errors import StoreError
from flintmq.core.kernel.hookspecs import DispatcherContext
from flintmq.core.record.dispatch_request import DispatchRequest
from flintmq.core.record.record_batch import RecordBatch
from flintmq.core.store import message_store
from flintmq.core.store.opened_store import OpenedStore
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, store_spec


class Collector:
    """Keeps bodies, as a dispatcher of a third party would."""

    def __init__(self, store: OpenedStore) -> None:
        self.context = DispatcherContext(store=store, folder=store.folder, settings=None, clock=ManualClock())
        self.bodies: list[tuple[int, bytes]] = []

    def dispatch(self, batch: RecordBatch) -> None:
        self.bodies += [(request.queue_id, body) for request, body in self.context.bodies(batch)]


def test_a_plugins_dispatcher_can_read_message_bodies_from_the_log(tmp_path: Path) -> None:
    """Just appended and after a restart alike; a record that is gone is told."""
    made: list[Collector] = []

    def dispatchers(opened: OpenedStore) -> list[object]:
        made.append(Collector(opened))
        return [opened.consume_queues, opened.index, made[-1]]

    store = message_store.open_store(store_spec(tmp_path), dispatchers)  # type: ignore[arg-type]
    try:
        store.put([message(queue_id=number, body=b"body %d" % number) for number in range(3)])
        store.put([message(queue_id=3)])
        store.dispatch()
        assert made[0].bodies == [(0, b"body 0"), (1, b"body 1"), (2, b"body 2"), (3, b"")]
        gone = DispatchRequest("T", 0, store.watermarks.wrote + 1_000_000, 100, 0, 0, 0, "", "", 0, 0, {})
        with pytest.raises(StoreError, match="the record of 100 bytes at position"):
            made[0].dispatch(RecordBatch.of_requests([gone]))
    finally:
        store.close()
