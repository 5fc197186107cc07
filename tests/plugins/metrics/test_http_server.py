"""A port that strangers may reach: whatever they send, or do not, is answered or closed, and bounded."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from flintmq.plugins.metrics import http_server
from flintmq.plugins.metrics.http_server import REQUEST_MAX_BYTES, THREADS, Answer, HttpServer


def respond(path: str, accept: str) -> Answer:
    if path == "/broken":
        raise ValueError("a defect")
    return Answer.text(HTTPStatus.OK, f"{path} {accept}")


@contextlib.contextmanager
def served() -> Iterator[tuple[str, int]]:
    sock = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(sock, respond)
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


def test_a_get_is_answered_and_the_connection_closed() -> None:
    """What a scraper does: a request with its query and headers."""
    with served() as address:
        code, headers, body = exchange(
            address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\nACCEPT: text/plain;q=0.5\r\n\r\n"
        )
    assert (code, body) == (200, b"/metrics text/plain;q=0.5\n")
    assert headers["Content-Length"] == str(len(body))
    assert headers["Connection"] == "close"


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
def test_what_is_not_a_small_get_is_refused(sent: bytes, code: int) -> None:
    """With a status and a sentence, and what failed inside is not shown outside."""
    with served() as address:
        found, _headers, body = exchange(address, sent)
        assert found == code
        assert b"defect" not in body
        assert exchange(address, b"GET / HTTP/1.0\r\n\r\n")[0] == 200, "the next one is served"


def test_clients_that_send_nothing_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are threads hold it up for one deadline, not for good."""
    monkeypatch.setattr(http_server, "DEADLINE_S", 0.1)
    with served() as address, contextlib.ExitStack() as stack:
        for _ in range(THREADS * 2):
            silent = stack.enter_context(socket.create_connection(address, timeout=20))
            silent.sendall(b"GET / HT")
        assert exchange(address, b"GET / HTTP/1.1\r\n\r\n")[0] == 200


def test_a_stop_leaves_no_thread_and_no_port() -> None:
    """Also with a client that has sent nothing yet, which is cut off after its deadline at the latest."""
    before = threading.active_count()
    with served() as address:
        assert threading.active_count() == before + THREADS
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5).close()
