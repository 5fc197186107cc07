"""The producer of this process, made when it is first used."""

from __future__ import annotations

import atexit
import os
import threading

from django.conf import settings

from flintmq.client.sync import Message, Producer


class ProcessProducer:
    """One producer for all threads of a process. Thread-safe.

    Servers load an application and fork their workers then; a producer of the parent is of no use in them, so each process
    makes its own with its first message.
    """

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def get(self) -> Producer:
        """Return the producer of this process."""
        with self._lock:
            if self._producer is None:
                made = Producer("orders", settings.FLINTMQ_NAME_SERVERS)
                made.start()
                self._producer = made
            return self._producer

    def close(self) -> None:
        """Leave the group and close the connections; the next message makes another producer."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


producers = ProcessProducer()


def order_placed(order_id: int) -> None:
    """Tell others of an order. Call it when the order's transaction is committed."""
    producers.get().send(Message("Orders", str(order_id).encode(), keys=f"order-{order_id}"))
