"""The message producer of this process, which is created when it is first used."""

from __future__ import annotations

import atexit
import os
import threading

from django.conf import settings

from flintmq.client.sync import Message, Producer


class ProcessProducer:
    """One producer for all threads of a process. Thread-safe.

    Servers load an application and then fork their workers, which cannot use the parent's producer. So each process creates
    a producer with its first message.
    """

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def get(self) -> Producer:
        """Return the message producer of this process; the first call starts the producer."""
        with self._lock:
            if self._producer is None:
                made = Producer("orders", settings.FLINTMQ_NAME_SERVERS)
                made.start()
                self._producer = made
            return self._producer

    def close(self) -> None:
        """Leave the producer group and close the connections; the next call of :meth:`get` starts another producer."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


producers = ProcessProducer()


def order_placed(order_id: int) -> None:
    """Send a message with the id of an order. Call this function after the order's transaction is committed."""
    producers.get().send(Message("Orders", str(order_id).encode(), keys=f"order-{order_id}"))
