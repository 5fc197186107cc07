"""Counts the connections, requests and answers of one server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec

from flintmq.protocol import ACCOUNT, DeclaredProcessor, RefusedError, Request, Response, ResponseCode, handles

COUNTS: int = 25_000
"""Code of the request that the plugin answers with its counts of connections, requests and errors."""


class Watch(DeclaredProcessor):
    """A class that is a connection listener, an RPC hook, a request processor and the default processor at the same time. Loop
    thread.

    Args:
        refused_codes: request codes that are refused for every client.
    """

    def __init__(self, refused_codes: Collection[int]) -> None:
        self._refused = frozenset(refused_codes)
        self.open = 0
        self.errors = 0
        self.requests: Counter[int] = Counter()
        self.answers: Counter[int] = Counter()
        self.unknown: Counter[int] = Counter()

    def on_channel_connect(self, channel: Any) -> None:
        self.open += 1

    def on_channel_close(self, channel: Any) -> None:
        self.open -= 1

    def on_channel_exception(self, channel: Any, error: Exception) -> None:
        self.errors += 1

    def do_before_request(self, request: Request) -> None:
        self.requests[request.code] += 1
        if request.code in self._refused:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"request type {request.code} is refused here",
                reason="request_watch.refused",
                key="request_watch.refused_codes",
            )

    def do_after_response(self, request: Request, response: Response) -> None:
        self.answers[response.code] += 1

    def handle(self, request: Request) -> Response:
        """Count and refuse a request whose code has no processor. Always raises ``RefusedError``."""
        self.unknown[request.code] += 1
        raise RefusedError(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f"request type {request.code} not supported",
            reason="request_watch.unknown",
            measured=f"{self.unknown[request.code]} requests with code {request.code}",
        )

    @handles(COUNTS, needs=ACCOUNT)
    def counts(self, request: Request) -> Response:
        """Return the counts of connections, requests and answers as JSON."""
        counts = {
            "open": self.open,
            "errors": self.errors,
            "requests": self.requests,
            "answers": self.answers,
            "unknown": self.unknown,
        }
        return Response(body=msgspec.json.encode(counts))
