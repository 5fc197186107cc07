"""A commit sends a message and a rollback sends none. Forked workers can send. SIGTERM ends the command cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import connections
from django.test import Client

WITHIN_S = 30.0


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flintmq_broker: Any) -> Iterator[Client]:
    """Yield a test client of the Django application. The application has an empty database and a broker with the topic
    ``Orders``."""
    database = str(tmp_path / "orders.sqlite3")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "orders_django.settings")
    monkeypatch.setenv("ORDERS_DATABASE", database)
    monkeypatch.setenv("ORDERS_NAME_SERVERS", flintmq_broker.name_server_address)
    django.setup()
    monkeypatch.setattr(django_settings, "FLINTMQ_NAME_SERVERS", flintmq_broker.name_server_address)
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", database)
    call_command("migrate", verbosity=0)
    flintmq_broker.create_topic("Orders")
    yield Client()
    from orders_django.messages import producers

    producers.close()
    connections.close_all()


def test_only_a_committed_order_sends_a_message(shop: Client, flintmq_broker: Any) -> None:
    """The message that the view sends has the id of an order that is already committed to the database."""
    assert shop.post("/orders", {"article": ""}).status_code == 400
    placed = shop.post("/orders", {"article": "tea"})
    assert placed.status_code == 202
    (message,) = flintmq_broker.wait_for_messages("Orders")
    assert message.body == str(placed.json()["id"]).encode()


def test_a_forked_worker_can_send_messages(shop: Client, flintmq_broker: Any) -> None:
    """The parent process has created a producer before it forks the worker, as with gunicorn's ``preload_app``."""
    assert shop.post("/orders", {"article": "tea"}).status_code == 202
    connections.close_all()
    worker = os.fork()
    if worker == 0:
        is_placed = False
        try:
            is_placed = shop.post("/orders", {"article": "coffee"}).status_code == 202
        finally:
            os._exit(0 if is_placed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0
    assert len(flintmq_broker.wait_for_messages("Orders", 2)) == 2
    assert shop.post("/orders", {"article": "tea"}).status_code == 202


def bill(count: int) -> None:
    """Run the command until there are ``count`` bills, then end it with SIGTERM."""
    from orders_django.models import Bill

    command = [sys.executable, "-m", "orders_django", "bill_orders"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "consuming\n"
            give_up_s = time.monotonic() + WITHIN_S
            while Bill.objects.count() < count:
                assert process.poll() is None
                assert time.monotonic() < give_up_s
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            printed, _ = process.communicate(timeout=WITHIN_S)
            assert (process.returncode, printed) == (0, "ended\n")
        finally:
            process.kill()


def test_the_bill_command_bills_every_order_across_two_runs(shop: Client) -> None:
    """The command is ended before it has billed all orders. When it is started again, it bills the remaining orders."""
    from orders_django.models import Bill, Order

    for _ in range(60):
        assert shop.post("/orders", {"article": "tea"}).status_code == 202
    bill(20)
    bill(60)
    assert set(Bill.objects.values_list("order_id", flat=True)) == set(Order.objects.values_list("id", flat=True))
