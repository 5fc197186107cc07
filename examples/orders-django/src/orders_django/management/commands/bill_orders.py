"""The command ``bill_orders``, which consumes orders and creates their bills until SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
import threading

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection

from flintmq.client.sync import Consumers, ConsumerSettings, MessageExt
from orders_django.models import Bill

FROM_FIRST = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", close_timeout_s=10, concurrency=2)


class Command(BaseCommand):
    """The command ``bill_orders``, which runs in another process than the web server."""

    help = "Bills orders until SIGTERM or Ctrl-C."

    def handle(self, **_options: object) -> None:
        """Consume orders until SIGTERM or Ctrl-C. Then the ``with`` statement waits for the current message, and commits the
        offsets."""
        end = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: end.set())
        consumers = Consumers(settings.FLINTMQ_NAME_SERVERS)
        consumers.handler("Orders", group="billing", settings=FROM_FIRST)(bill)
        with consumers:
            self.stdout.write("consuming")
            self.stdout.flush()
            end.wait()
        self.stdout.write("ended")


def bill(message: MessageExt) -> None:
    """Create the bill of an order unless it exists. If the function raises an exception, the broker delivers the message again
    later."""
    try:
        Bill.objects.get_or_create(order_id=int(message.body))
    finally:
        # Listeners run in threads, and each thread must close its own connection to the database.
        connection.close()
