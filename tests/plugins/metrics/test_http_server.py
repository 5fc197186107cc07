"""A port that strangers may reach: whatever they send, or do not, is answered or closed, and bounded."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from flintmq.plugins.metrics import http_server
from flintmq.plugins.metrics.http_server import CONNECTIONS_MAX, REQUEST_MAX_BYTES, THREADS, Answer, HttpServer

SLOW = threading.Event()


def respond(path: str, accept: str) -> Answer:
    if path == "/broken":
        raise ValueError("a defect")
    if path == "/slow":
        SLOW.wait(20)
    return Answer.text(HTTPStatus.OK, f"{path} {accept}")


@contextlib.contextmanager
def served() -> Iterator[tuple[str, int]]:
    sock = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(sock, respond, slow_path="/slow")
    address = sock.getsockname()
    server.start()
    try:
        yield address
    finally:
        server.stop()


def exchange(address: tuple[str, int], sent: bytes) -> tuple[int, dict[str, str], bytes]:
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(sent)
        found = b""
        while some := connection.recv(65536):
            found += some
    head, _, body = found.partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in headers), body


def test_a_get_request_is_answered_and_its_connection_closed() -> None:
    """What a scraper does: a request with its query and headers."""
    with served() as address:
        code, headers, body = exchange(
            address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\nACCEPT: text/plain;q=0.5\r\n\r\n"
        )
    assert (code, body) == (200, b"/metrics text/plain;q=0.5\n")
    assert headers["Content-Length"] == str(len(body))
    assert headers["Connection"] == "close"


def test_the_answer_to_a_head_request_has_a_content_length_but_no_body() -> None:
    """Load balancers probe with it."""
    with served() as address:
        code, headers, body = exchange(address, b"HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (code, headers["Content-Length"], body) == (200, str(len("/readyz \n")), b"")


def test_a_request_with_bare_line_feeds_is_answered() -> None:
    """With line feeds alone, as netcat sends them."""
    with served() as address:
        assert exchange(address, b"GET /readyz HTTP/1.0\naccept: x\n\n")[2] == b"/readyz x\n"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * REQUEST_MAX_BYTES * 2 + b"\r\n\r\n", 431),
        (b"G" * (REQUEST_MAX_BYTES * 3), 431),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
    ],
)
def test_malformed_oversized_and_unsupported_http_requests_are_answered_with_an_error_status(
    sent: bytes, code: int
) -> None:
    """With a status and a sentence, and what failed inside is not shown outside."""
    with served() as address:
        found, _headers, body = exchange(address, sent)
        assert found == code
        assert b"defect" not in body
        assert exchange(address, b"GET / HTTP/1.0\r\n\r\n")[0] == 200, "the next one is served"


def test_connections_of_silent_http_clients_are_closed_at_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them after its deadline."""
    monkeypatch.setattr(http_server, "DEADLINE_S", 0.1)
    with served() as address, socket.create_connection(address, timeout=20) as silent:
        silent.sendall(b"GET / HT")
        assert silent.recv(1) == b""


def test_silent_clients_do_not_delay_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe has a second; a pod whose probe fails is killed, so nobody who reaches the port may keep it from its answer."""
    monkeypatch.setattr(http_server, "DEADLINE_S", 1_000.0)
    with served() as address, contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(CONNECTIONS_MAX * 2)
        ]
        assert exchange(address, b"GET / HTTP/1.1\r\n\r\n")[0] == 200
        assert silent[0].recv(1) == b"", "the one that was silent for longest had to go"


def test_waiting_scrapes_do_not_delay_health_probes() -> None:
    """More of them than there are threads wait for the broker's loop, which is busy."""
    with served() as address, contextlib.ExitStack() as stack:
        stack.callback(SLOW.clear)
        stack.callback(SLOW.set)
        scrapes = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(THREADS * 3)]
        for scrape in scrapes:
            scrape.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        assert exchange(address, b"GET /readyz HTTP/1.1\r\n\r\n")[0] == 200
        SLOW.set()
        assert all(scrape.recv(15) == b"HTTP/1.1 200 OK" for scrape in scrapes), "each is answered in the end"


def test_a_hundred_concurrent_requests_are_answered() -> None:
    """Those beyond the bound wait until another one is done."""
    with served() as address, contextlib.ExitStack() as stack:
        several = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(100)]
        for one in several:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert all(one.recv(15) == b"HTTP/1.1 200 OK" for one in several)


def test_stopping_the_http_server_ends_its_threads_and_closes_its_port() -> None:
    """Also with a client that has sent nothing yet, which is cut off."""
    before = threading.active_count()
    with served() as address, socket.create_connection(address, timeout=20):
        assert exchange(address, b"GET / HTTP/1.1\r\n\r\n")[0] == 200
        assert threading.active_count() > before
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5).close()
