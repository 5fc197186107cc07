"""Decodes the requests of clients, and sends clients the server's requests and waits for their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from flintmq.core.kernel.ports.processor import Request
from flintmq.core.limits import HEADER_MAX_BYTES
from flintmq.core.log_events import client_log
from flintmq.remoting.wire.command import (
    JSON,
    RemotingCommand,
    decode_split,
    split_frame,
    unpack_word,
)
from flintmq.remoting.wire.fast_json import FAST_JSON

if TYPE_CHECKING:
    from flintmq.remoting.server.channel import ServerChannel
import asyncio
from collections.abc import Callable, Mapping

from flintmq.core.errors import RemotingError, RemotingTimeoutError
from flintmq.remoting.wire.command import encode_command, request

log = client_log("flintmq.remoting")

_PREFIX_BYTES: Final = 11
_FAST: Final = {(prefix + b",")[:_PREFIX_BYTES]: decoder for prefix, decoder in FAST_JSON.items()}
"""Typed decoders of requests, keyed by the first bytes of a header: ``{"code":310``, or for a code of two digits
``{"code":11,``."""


def decode_request(channel: ServerChannel, frame: bytes, *, keep_ext_fields: bool) -> Request | RemotingCommand:
    """Return the request in a frame, or the command in the frame if it answers a request of the server.

    Args:
        channel: the connection that the frame arrived on.
        frame: the bytes of a frame after its length word, beginning with the header word.
        keep_ext_fields: always use the general decoder, which keeps all fields, because an authenticator needs them to check
            the signature.

    Raises:
        HeaderError: the header cannot be read; its sender gets an answer, and the connection stays open.
        FrameError: the frame's lengths are wrong; the connection must be closed.
    """
    if not keep_ext_fields:
        decoder = _FAST.get(frame[4 : 4 + _PREFIX_BYTES])
        if decoder is not None:
            # The codec number of JSON is 0, so the header word of a JSON header equals the header's length.
            # In frames of other codecs, the highest byte of the header word is not 0, so the word is at least 16 MiB.
            # No frame is longer than 16 MiB, so the general decoder reads frames whose header word is at least 16 MiB.
            end = 4 + unpack_word(frame)[0]
            if end <= len(frame) and end <= HEADER_MAX_BYTES + 4:
                try:
                    typed = decoder.decode(frame[4:end])
                except (msgspec.MsgspecError, RecursionError, UnicodeError):
                    pass  # The general decoder reads headers that msgspec rejects, and reports errors.
                else:
                    if not typed.flag & 1:
                        return Request(
                            channel,
                            typed.code,
                            typed.opaque,
                            typed.flag,
                            typed.version,
                            typed.language,
                            JSON,
                            None,
                            frame[end:],
                            typed.ext,
                        )
    command = decode_split(*split_frame(frame))
    if command.is_response:
        return command
    return Request(
        channel,
        command.code,
        command.opaque,
        command.flag,
        command.version,
        command.language,
        command.codec,
        command.ext_fields,
        command.body,
    )


class Questions:
    """The requests that the server has sent to one client and that the client has not answered yet.

    Used only on the event loop's thread.
    """

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
        """Send a request to the client and wait for the client's answer.

        Args:
            code: the request code.
            header: the fields of the request.
            body: the body of the request.
            send: function that writes the encoded request to the connection.
            address: the client's ``ip:port``, for errors.
            timeout_s: seconds to wait for the answer.

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
        """Pass a client's answer to the call of :meth:`ask` that waits for the answer.

        An answer for which no call waits is only logged.

        Args:
            command: the answer.
            address: the client's ``ip:port``, for the log.
        """
        future = self._waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)
        else:
            log.debug(
                "request.not_waited_for",
                "%(client)s answered request %(opaque)d, which does not wait for an answer",
                client=address,
                opaque=command.opaque,
            )

    def fail(self, reason: str) -> None:
        """Raise `RemotingError` with a reason in every call of :meth:`ask` that waits for a client's answer."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RemotingError(reason))
        self._waiting.clear()
