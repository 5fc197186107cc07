"""Threads take orders from a queue and send them with one producer. A listener bills them. SIGTERM ends the program cleanly."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import flintmq
from flintmq.client.sync import Consumers, ConsumerSettings, Message, MessageExt, Producer

THREADS = 8
FROM_FIRST = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", close_timeout_s=10)


class Journal:
    """A file to which several threads append lines. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        """Append a line to the journal's file. The line is in the file when this method returns."""
        with self._lock:
            print(line, file=self._file, flush=True)

    def close(self) -> None:
        """Close the journal's file."""
        self._file.close()


def work(orders: queue.Queue[str | None], producer: Producer, sent: Journal) -> None:
    """Send orders until the queue yields None. An order is added to the journal after the broker has stored it."""
    while (order := orders.get()) is not None:
        producer.send(Message("Orders", order.encode(), keys=order))
        sent.add(order)


def run(folder: Path, end: threading.Event) -> None:
    """Send and bill orders until the event is set. At the end, the ``with`` statements are left in the reverse order: the
    consumer commits the offsets of billed orders, the producer leaves its group, and the broker makes its log durable.
    """
    config = flintmq.load_config(
        overrides=[f"store.path={folder / 'store'}", "listen.enable=false", "store.commit_log_file_bytes=16MiB"]
    )
    sent, billed = Journal(folder / "sent.txt"), Journal(folder / "billed.txt")
    with flintmq.Broker(config) as broker:
        consumers = Consumers(broker)

        @consumers.handler("Orders", group="billing", settings=FROM_FIRST)
        def bill(message: MessageExt) -> None:
            billed.add(message.body.decode())

        with Producer("shop", broker) as producer:
            # The first message creates the topic, which must exist before the consumer starts.
            producer.send(Message("Orders", b"opening"))
            with consumers:
                produce(producer, sent, end)
    sent.close()
    billed.close()


def produce(producer: Producer, sent: Journal, end: threading.Event) -> None:
    """Put orders into the queue of the threads until the event is set; return when the threads have sent all orders."""
    orders: queue.Queue[str | None] = queue.Queue(maxsize=2 * THREADS)
    with ThreadPoolExecutor(THREADS) as threads:
        workers = [threads.submit(work, orders, producer, sent) for _ in range(THREADS)]
        for number in itertools.count():
            if end.is_set():
                break
            orders.put(f"{os.getpid()}-{number}")
        for _ in workers:
            orders.put(None)
    for worker in workers:
        worker.result()  # result() raises the exception that ended the worker's thread, if any.


def main() -> None:
    """Send and bill orders, in the folder that the command line names, until SIGTERM or Ctrl-C."""
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    run(Path(sys.argv[1]), end)


if __name__ == "__main__":
    main()
