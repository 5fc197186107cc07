"""Orders are billed. A service that is ended under load loses no confirmed order, and bills none twice."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest
from orders_fastapi.app import app
from starlette.testclient import TestClient

WITHIN_S = 30.0


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the service's environment variables, and return the path of the file of bills."""
    monkeypatch.delenv("ORDERS_NAME_SERVERS", raising=False)
    monkeypatch.setenv("ORDERS_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("ORDERS_BILLS", str(tmp_path / "bills.txt"))
    return tmp_path / "bills.txt"


def billed_in_time(client: httpx2.Client, order: str) -> bool:
    """Return whether an order is billed within ``WITHIN_S`` seconds."""
    give_up_s = time.monotonic() + WITHIN_S
    while order not in client.get("/bills").json():
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.usefixtures("environ")
def test_an_order_is_billed() -> None:
    """``TestClient`` runs the application's lifespan, so the test uses a real broker, producer and consumer."""
    with TestClient(app) as client:
        answer = client.post("/orders", json={"id": "o-1", "article": "tea"})
        assert answer.status_code == 202
        assert billed_in_time(client, "o-1")


def test_the_service_uses_an_external_broker_if_configured(
    environ: Path, monkeypatch: pytest.MonkeyPatch, flintmq_broker
) -> None:  # type: ignore[no-untyped-def]
    """With the address of a name server, the service is only a client and makes no store."""
    flintmq_broker.create_topic("Orders")
    monkeypatch.setenv("ORDERS_NAME_SERVERS", flintmq_broker.name_server_address)
    with TestClient(app) as client:
        assert client.post("/orders", json={"id": "o-2", "article": "tea"}).status_code == 202
        assert billed_in_time(client, "o-2")
    assert len(flintmq_broker.messages("Orders")) == 1
    assert not (environ.parent / "store").exists()


class Service:
    """Runs the service of orders in a separate process."""

    def __init__(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = ["-m", "uvicorn", "orders_fastapi.app:app", "--port", str(port), "--log-level", "warning"]
        self._process = subprocess.Popen([sys.executable, *command], env=dict(os.environ))

    def __enter__(self) -> Service:
        """Wait until the service answers requests."""
        give_up_s = time.monotonic() + WITHIN_S
        while True:
            try:
                httpx2.get(f"{self.url}/bills")
            except httpx2.TransportError:
                assert self._process.poll() is None
                assert time.monotonic() < give_up_s
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM to the service's process, as a supervisor does."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait until the service's process has ended without an error. SIGTERM may end the process, because uvicorn raises the
        signal again after its shutdown."""
        assert self._process.wait(WITHIN_S) in (0, -signal.SIGTERM)


async def orders(service: Service, customer: int, confirmed: list[str], enough: asyncio.Event) -> None:
    """Send orders to the service over HTTP until the service has ended."""
    async with httpx2.AsyncClient(base_url=service.url) as client:
        for number in range(100_000):
            order = f"{customer}-{number}"
            try:
                answer = await client.post("/orders", json={"id": order, "article": "tea"})
            except httpx2.TransportError:
                return
            assert answer.status_code == 202, answer.text
            confirmed.append(order)
            if len(confirmed) >= 100:
                enough.set()


def test_sigterm_under_load_loses_no_message(environ: Path) -> None:
    """After SIGTERM, requests under way are still answered with 202. The next process of the service bills each confirmed order
    once."""
    confirmed: list[str] = []

    async def load(service: Service) -> None:
        enough = asyncio.Event()
        customers = [asyncio.ensure_future(orders(service, customer, confirmed, enough)) for customer in range(8)]
        async with asyncio.timeout(WITHIN_S):
            await enough.wait()
            service.terminate()
            await asyncio.gather(*customers)

    with Service() as service:
        asyncio.run(load(service))
        service.wait()
    with Service() as again:
        with httpx2.Client(base_url=again.url) as client:
            assert all(billed_in_time(client, order) for order in confirmed)
        again.terminate()
        again.wait()
    billed = Counter(environ.read_text("utf-8").split())
    assert set(confirmed) <= billed.keys()
    assert max(billed.values()) == 1
