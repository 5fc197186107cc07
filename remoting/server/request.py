"""One decoded request, and the answer to it, between the server and the processors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from flintmq.core.limits import HEADER_MAX_BYTES
from flintmq.remoting.wire.command import (
    JSON,
    ONEWAY_FLAG,
    RemotingCommand,
    decode_split,
    split_frame,
    unpack_word,
)
from flintmq.remoting.wire.fast_json import FAST_JSON
from flintmq.remoting.wire.header_codec import CommandHeader, decode_header

if TYPE_CHECKING:
    from flintmq.remoting.server.channel import ServerChannel

H = TypeVar("H", bound=CommandHeader)


class Request(msgspec.Struct, gc=False):
    """What a client asks. Read-only by convention; made per frame."""

    channel: ServerChannel
    code: int
    opaque: int
    flag: int
    version: int
    """Ordinal of the client's version."""
    language: str
    codec: int
    ext_fields: dict[str, str] | None
    """None also when the header was decoded straight into ``typed``."""
    body: bytes
    typed: Any = None
    """The typed header, when the short way of :mod:`flintmq.remoting.wire.fast_json` was taken."""

    @property
    def is_oneway(self) -> bool:
        """True when no answer may be sent."""
        return bool(self.flag & ONEWAY_FLAG)

    def header(self, model: type[H]) -> H:
        """The typed header.

        Raises:
            RefusedError: a required field is missing (code 1).
        """
        typed = self.typed
        return typed if isinstance(typed, model) else decode_header(model, self.ext_fields)


class Response(msgspec.Struct):
    """What is answered. The server adds opaque, codec and flag."""

    code: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""


_PREFIX_BYTES: Final = 11
_FAST: Final = {(prefix + b",")[:_PREFIX_BYTES]: decoder for prefix, decoder in FAST_JSON.items()}
"""Typed decoders by a header's first bytes: ``{"code":310``, or with two digits ``{"code":11,``."""

Handler = Callable[[Request], Awaitable[Response | None] | Response | None]
"""Answers one request; None means that no answer is due now (held pulls, one-way work)."""
BatchHandler = Callable[[list[Request]], None]
"""Takes all requests of one read that it is registered for, and answers each through its channel."""


def decode_request(channel: ServerChannel, frame: bytes, *, keep_ext_fields: bool) -> Request | RemotingCommand:
    """The request in a frame, or the command when it is an answer to something the server asked.

    Args:
        keep_ext_fields: take the general way always (an authenticator signs over all fields).

    Raises:
        HeaderError: the header cannot be read; its sender is told, and the connection stays.
        FrameError: the frame's lengths are wrong; the connection must be closed.
    """
    if not keep_ext_fields:
        decoder = _FAST.get(frame[4 : 4 + _PREFIX_BYTES])
        if decoder is not None:
            # JSON's codec is 0, so the header word is the header's length; that of another codec is larger than any frame.
            end = 4 + unpack_word(frame)[0]
            if end <= len(frame) and end <= HEADER_MAX_BYTES + 4:
                try:
                    typed = decoder.decode(frame[4:end])
                except (msgspec.MsgspecError, RecursionError, UnicodeError):
                    pass  # unusual: the general way tells what is wrong with it
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
