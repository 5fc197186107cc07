"""The interface of a network connection, for code that keeps connections, such as the routes of a name server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Channel(Protocol):
    """A connection to a client or another server. Compared and hashed by identity. Used only on the event loop's thread."""

    @property
    def remote_address(self) -> str:
        """``ip:port`` of the connection's peer."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the connection is open; False once the connection is closed or closing."""
        ...

    def send_oneway(self, code: int, header: Mapping[str, str], body: bytes = b"") -> None:
        """Send a one-way request on the connection. Does not wait, and raises nothing: a closed channel drops the request."""
        ...

    def close(self, reason: str) -> None:
        """End the connection and log the reason. A second call does nothing."""
        ...

    def __hash__(self) -> int: ...

    def __eq__(self, other: object, /) -> bool: ...
