"""Answers a few GET requests over HTTP, in threads of its own, with bounds on everything a client can send or leave open.

So many threads, so many connections at once; others wait in the backlog of the socket. A connection serves one request and is
closed. Python's own ``http.server`` is not made for this: it reads headers without a bound in time, and up to 6 MiB of them.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from typing import Final

import attrs

log = logging.getLogger("flintmq.broker")

THREADS: Final = 4
BACKLOG: Final = 16
REQUEST_MAX_BYTES: Final = 8 * 1024
"""Of the request line and the headers."""
DEADLINE_S: Final = 5.0
"""For reading a request, and again for writing its answer."""
_LINGER_S: Final = 0.5
_REST_S: Final = 1.0
_JOIN_S: Final = 5.0
_REQUEST_LINE: Final = re.compile(r"([A-Z]{1,20}) (/[!-~]{0,2000}) HTTP/1\.[01]")


@attrs.frozen
class Answer:
    """What a client gets."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def text(cls, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Answer:
        """Return an answer of one or several lines."""
        return cls(status, f"{text}\n".encode(), headers=headers)


Respond = Callable[[str, str], Answer]
"""Answers a path, without what follows its ``?``, and the header ``Accept``."""


class HttpServer:
    """Serves a bound socket from :meth:`start` to :meth:`stop`.

    Args:
        sock: bound; closed at the stop.
        respond: called on one of the threads; what it raises is logged, and the client gets 500.
    """

    def __init__(self, sock: socket.socket, respond: Respond) -> None:
        self._sock = sock
        self._respond = respond
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Listen, and begin to serve."""
        self._sock.listen(BACKLOG)
        for number in range(THREADS):
            thread = threading.Thread(target=self._serve, name=f"flintmq-metrics-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Take nothing more, and wait for what is being answered. Idempotent. Blocks."""
        self._stopped.set()
        with contextlib.suppress(OSError):  # never listened, or closed
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the threads that wait for a connection
        for thread in self._threads:
            thread.join(_JOIN_S)
        self._sock.close()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _peer = self._sock.accept()
            except OSError as error:
                if not self._stopped.is_set():
                    log.warning("a request for metrics could not be taken: %s", error)
                    self._stopped.wait(_REST_S)  # no descriptor is left, most likely
                continue
            with connection, contextlib.suppress(OSError):  # a client that goes away, or takes its time
                self._serve_one(connection)

    def _serve_one(self, connection: socket.socket) -> None:
        answer = self._answer(_read_head(connection))
        headers = (
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
            *answer.headers,
        )
        lines = [
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            *(f"{name}: {text}" for name, text in headers),
        ]
        connection.settimeout(DEADLINE_S)
        connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + answer.body)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(_LINGER_S)
        connection.recv(REQUEST_MAX_BYTES)  # what it still sends must not take the answer away from it

    def _answer(self, head: bytes | None) -> Answer:
        if head is None:
            return Answer.text(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"a request has at most {REQUEST_MAX_BYTES} bytes of headers",
            )
        line, *headers = head.decode("latin-1").split("\r\n")
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            return Answer.text(HTTPStatus.BAD_REQUEST, "the request does not begin as one of HTTP/1.1")
        if match[1] != "GET":
            return Answer.text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered here", ("Allow", "GET"))
        pairs = [header.partition(":") for header in headers]
        accept = ", ".join(text.strip() for name, _, text in pairs if name.strip().lower() == "accept")
        try:
            return self._respond(match[2].partition("?")[0], accept)
        except Exception:
            log.exception("a request for %s could not be answered", match[2][:80])
            return Answer.text(
                HTTPStatus.INTERNAL_SERVER_ERROR, "this could not be answered; the broker's log says why"
            )


def _read_head(connection: socket.socket) -> bytes | None:
    """Return the request line and the headers; None where they are too long.

    Raises:
        OSError: the client is gone, or takes too long.
    """
    until_s = monotonic() + DEADLINE_S
    found = b""
    while b"\r\n\r\n" not in found:
        if len(found) > REQUEST_MAX_BYTES:
            return None
        connection.settimeout(max(0.001, until_s - monotonic()))
        some = connection.recv(REQUEST_MAX_BYTES)
        if not some:
            raise ConnectionAbortedError("the client went away")
        found += some
    head = found.partition(b"\r\n\r\n")[0]
    return head if len(head) <= REQUEST_MAX_BYTES else None
