"""Keep what is sent over a connection, for tests."""

from __future__ import annotations

from collections.abc import Mapping


class RecordingChannel:
    """A :class:`flintmq.core.kernel.ports.channel.Channel` that keeps what was sent over it."""

    def __init__(self, remote_address: str = "127.0.0.1:40000") -> None:
        self.remote_address = remote_address
        self.is_open = True
        self.sent: list[tuple[int, dict[str, str], bytes]] = []
        """(code, header, body) of each one-way request."""

    def send_oneway(self, code: int, header: Mapping[str, str], body: bytes = b"") -> None:
        if self.is_open:
            self.sent.append((code, dict(header), body))

    def close(self, reason: str) -> None:
        self.is_open = False
