"""A small HTTP server for GET requests that bounds the size, the time and the number of requests and connections.

One thread runs a separate event loop, which reads requests and writes answers. Other threads compute the answers. So a client
that sends nothing, or reads nothing, delays no other client. If too many connections are open, the connection that has sent no
complete request for longest is closed. A connection serves one request.

Python's ``http.server`` does not fit: it reads headers without a time limit, and up to 6 MiB of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import attrs

from flintmq.core.io.threads import daemon_thread, submit, thread_pool
from flintmq.core.log_events import event_log

log = event_log("flintmq.broker")

THREADS: Final = 4
"""Number of threads that answer requests for metrics. One further thread answers health probes, so that the probes do not wait
for scrapes."""
CONNECTIONS_MAX: Final = 64
"""Maximum number of open connections of the metrics server. It is half of the number of file descriptors that the broker
reserves for other uses than connections of clients."""
BACKLOG: Final = 128
REQUEST_MAX_BYTES: Final = 8 * 1024
"""Maximum size in bytes of the request line and the headers of an HTTP request together."""
DEADLINE_S: Final = 5.0
"""Time limit in seconds for reading an HTTP request. Writing the answer has a separate time limit of the same length."""
_LINGER_S: Final = 0.5
_PATIENCE_S: Final = 0.25
"""Minimum time in seconds that a client has to send its request, even if other clients wait for a free connection."""
_REST_S: Final = 1.0
_JOIN_S: Final = 5.0
_REQUEST_LINE: Final = re.compile(r"([A-Z]{1,20}) (/[!-~]{0,2000}) HTTP/1\.[01]")
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")


@attrs.frozen
class Answer:
    """The status, body, content type and further headers of an answer from the HTTP server for metrics and health probes."""

    status: HTTPStatus
    parts: tuple[bytes, ...]
    """Parts of the body of an HTTP answer, in order. The parts are sent one after the other and not joined, because a cached
    part can be large."""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def text(cls, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Answer:
        """Return an HTTP answer with one or several lines of text."""
        return cls(status, (f"{text}\n".encode(),), headers=headers)


Respond = Callable[[str, str], Answer]
"""Function that returns the answer to an HTTP request. Its arguments are the request's path without the query, and the header
``Accept``."""


class HttpServer:
    """Serves a bound socket from :meth:`start` to :meth:`stop`.

    Args:
        sock: a bound socket, which :meth:`stop` closes.
        respond: computes the answers, on the server's threads. If this function raises an exception, the error is logged and
            the client gets 500.
        slow_path: the path whose answers take long, and are computed by :data:`THREADS` threads.
    """

    def __init__(self, sock: socket.socket, respond: Respond, slow_path: str) -> None:
        self._sock = sock
        self._respond = respond
        self._slow_path = slow_path
        self._slow = thread_pool(THREADS, "flintmq-metrics")
        self._quick = thread_pool(1, "flintmq-probes")
        self._loop = asyncio.SelectorEventLoop()
        self._thread = daemon_thread(self._run, "flintmq-metrics-http")
        self._serving: asyncio.Task[None] | None = None
        self._open: dict[asyncio.Task[None], socket.socket] = {}
        self._reading: dict[asyncio.Task[None], float] = {}
        """Time at which each connection with an incomplete request was opened, in seconds of the event loop's clock, keyed by
        the connection's task; oldest first."""

    def start(self) -> None:
        """Listen on the socket, and begin to serve HTTP requests."""
        self._sock.setblocking(False)
        self._sock.listen(BACKLOG)
        self._serving = self._loop.create_task(self._serve(), name="metrics")
        self._thread.start()

    def stop(self) -> None:
        """Accept no more HTTP requests, and wait until the requests under way are answered. Idempotent. Blocks."""
        if self._thread.is_alive() and self._serving is not None:
            with contextlib.suppress(RuntimeError):
                # call_soon_threadsafe() raises RuntimeError if the event loop was closed after is_alive() had returned true.
                # RuntimeError is ignored, because a server whose event loop is closed has already stopped.
                self._loop.call_soon_threadsafe(self._serving.cancel)
            self._thread.join()
        elif not self._loop.is_closed():
            self._loop.close()
        for pool in (self._slow, self._quick):
            pool.shutdown()
        self._sock.close()

    def _run(self) -> None:
        assert self._serving is not None
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._serving)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        try:
            while True:
                await self._make_room()
                try:
                    connection, _peer = await self._loop.sock_accept(self._sock)
                except OSError as error:
                    log.warning("metrics.not_taken", "a request for metrics could not be taken: %(error)s", error=error)
                    # If sock_accept() fails, the process probably has no free file descriptor.
                    # After a failed sock_accept(), the server waits, because an immediate retry would probably fail, too.
                    await asyncio.sleep(_REST_S)
                    continue
                task = self._loop.create_task(self._serve_one(connection))
                self._open[task] = connection
                self._reading[task] = self._loop.time()
                task.add_done_callback(self._forget)
        finally:
            for task in self._reading:
                task.cancel()
            if self._open:
                await asyncio.wait(self._open, timeout=_JOIN_S)

    async def _make_room(self) -> None:
        """Wait until fewer than :data:`CONNECTIONS_MAX` connections are open.

        During this wait, connections whose request is incomplete are closed, oldest first.
        """
        while len(self._open) >= CONNECTIONS_MAX:
            patience_s = None
            if self._reading:
                task, since_s = next(iter(self._reading.items()))
                patience_s = since_s + _PATIENCE_S - self._loop.time()
                if patience_s <= 0:
                    task.cancel()
            await asyncio.wait(self._open, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task).close()
        self._reading.pop(task, None)

    async def _serve_one(self, connection: socket.socket) -> None:
        # OSError is ignored, because it means that the client disconnected, or was too slow (TimeoutError).
        with contextlib.suppress(OSError):
            connection.setblocking(False)
            async with asyncio.timeout(DEADLINE_S):
                head = await self._read_head(connection)
            task = asyncio.current_task()
            assert task is not None
            self._reading.pop(task, None)
            parts = await self._answer(head)
            async with asyncio.timeout(DEADLINE_S):
                for part in parts:
                    await self._loop.sock_sendall(connection, part)
            connection.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_LINGER_S):
                # If a socket with unread bytes is closed, the system resets the connection, and the client loses the answer.
                # The remaining bytes of the request are read before the socket is closed, so that the client gets the answer.
                await self._loop.sock_recv(connection, REQUEST_MAX_BYTES)

    async def _read_head(self, connection: socket.socket) -> bytes | None:
        """Return the request line and the headers of an HTTP request, or None if the line and the headers are too long.

        Raises:
            OSError: the client disconnected.
        """
        found = b""
        while (end := _HEAD_END.search(found)) is None:
            if len(found) > REQUEST_MAX_BYTES:
                return None
            some = await self._loop.sock_recv(connection, REQUEST_MAX_BYTES)
            if not some:
                raise ConnectionAbortedError("the client disconnected before its request was complete")
            found += some
        return found[: end.start()] if end.start() <= REQUEST_MAX_BYTES else None

    async def _answer(self, head: bytes | None) -> tuple[bytes, ...]:
        """Return the bytes of an HTTP answer to send to the client, in parts."""
        if head is None:
            text = f"a request has at most {REQUEST_MAX_BYTES} bytes of headers"
            return _encoded(Answer.text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text))
        line, *headers = head.decode("latin-1").splitlines() or [""]
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            return _encoded(Answer.text(HTTPStatus.BAD_REQUEST, "the request line is not a request line of HTTP/1.1"))
        if match[1] not in ("GET", "HEAD"):
            text = "only GET and HEAD are answered here"
            return _encoded(Answer.text(HTTPStatus.METHOD_NOT_ALLOWED, text, ("Allow", "GET, HEAD")))
        pairs = [header.partition(":") for header in headers]
        accept = ", ".join(text.strip() for name, _, text in pairs if name.strip().lower() == "accept")
        path = match[2].partition("?")[0]
        pool = self._slow if path == self._slow_path else self._quick
        try:
            answer = await submit(pool, self._respond, path, accept)
        except Exception:
            log.exception("metrics.not_answered", "a request for %(path)s could not be answered", path=match[2][:80])
            text = "this could not be answered; the broker's log says why"
            answer = Answer.text(HTTPStatus.INTERNAL_SERVER_ERROR, text)
        return _encoded(answer, with_body=match[1] == "GET")


def _encoded(answer: Answer, *, with_body: bool = True) -> tuple[bytes, ...]:
    headers = (
        ("Content-Type", answer.content_type),
        ("Content-Length", str(sum(map(len, answer.parts)))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
        *answer.headers,
    )
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}", *(f"{name}: {text}" for name, text in headers)]
    head = "\r\n".join([*lines, "", ""]).encode("ascii")
    return (head, *answer.parts) if with_body else (head,)
