"""The requests that a server sends over a connection, and the client's answers to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from flintmq.core.client_log import client_log
from flintmq.core.errors import RemotingError, RemotingTimeoutError
from flintmq.remoting.wire.command import RemotingCommand, encode_command, request

log = client_log("flintmq.remoting")


class Questions:
    """What one client was asked and has not answered. Loop thread."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}

    async def ask(
        self,
        code: int,
        header: Mapping[str, str],
        body: bytes,
        *,
        send: Callable[[bytes], None],
        address: str,
        timeout_s: float,
    ) -> RemotingCommand:
        """Send a request and wait for its answer.

        Args:
            code: the request code.
            header: the fields of the request.
            body: of the request.
            send: writes the encoded request to the connection.
            address: of the client, for errors.
            timeout_s: how long the client may take.

        Raises:
            RemotingTimeoutError: no answer came in time.
            RemotingError: the connection ended.
        """
        command = request(code, header, body, language="JAVA")
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._waiting[command.opaque] = future
        send(encode_command(command))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            raise RemotingTimeoutError(f"{address} did not answer {code} within {timeout_s} s") from error
        finally:
            self._waiting.pop(command.opaque, None)

    def answered(self, command: RemotingCommand, address: str) -> None:
        """Hand an answer to the caller that waits for it."""
        future = self._waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)
        else:
            log.debug("%s answered request %d, which does not wait for an answer", address, command.opaque)

    def fail(self, reason: str) -> None:
        """End every wait: no answer will come any more."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RemotingError(reason))
        self._waiting.clear()
