"""The exceptions that FlintMQ raises deliberately. All are subclasses of :class:`FlintError`.

::

    FlintError
    ├── PluginError                  a plugin is unknown, malformed, or raised while it was loaded
    ├── RemotingError                the connection, not the request, is at fault
    │   ├── RemotingConnectError     no server answers at the address
    │   ├── RemotingTimeoutError     no answer in time
    │   └── FrameError               bytes that are not a frame: the connection is closed
    │       └── HeaderError          a frame whose header cannot be read: it is answered, the connection stays
    ├── ReplicationError             the other end of a replication stream breaks its rules: the connection is closed
    │   └── NotFollowedError         the logs of master and slave differ: following the master would lose bytes
    ├── StoreError                   the store cannot be opened or used
    │   ├── StoreLockedError         another process has the store open
    │   ├── StoreFormatError         the store's files do not fit the configuration, or each other
    │   ├── StoreFullError           the disk has no space for the next file
    │   │   └── StoreExhaustedError  the process has used up its file descriptors or memory maps
    │   └── StoreFencedError         a sync failed: nothing is acknowledged any more
    ├── JsonSyntaxError              a JSON body or file that cannot be read (also a ValueError)
    │   └── JsonTypeError            a member of a JSON body or file is not of RocketMQ's type
    ├── InvalidArgumentError         a value that a program gives does not fit (also a ValueError and a TypeError)
    └── RefusedError                 a request is refused; carries the response code

A :class:`RefusedError` carries what the client gets: the response code, a stable reason id, the measured value and the
configuration key that changes the outcome. The same text goes into the answer's ``remark``.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_REMARK_MAX_CHARS: Final = 4_000
"""Maximum length of an error's message in the remark of an answer. A message can repeat a name from the request, and the name
can be as long as a header."""
_IN_REMARK: Final = re.compile(r"\[([a-z_]+\.[a-z_.-]+)(?:; measured ([^\[\]]*?))?(?:; see ([^\[\]]*))?\]\Z")
_NO_BRACKETS: Final = str.maketrans("[]", "()")


class FlintError(Exception):
    """The base class of all exceptions that FlintMQ raises deliberately."""


class PluginError(FlintError):
    """A plugin is unknown, has a hook with a wrong signature, or raised while it was loaded. The message names the plugin."""


class RemotingError(FlintError):
    """A request got no answer, because of the connection and not because of a refusal."""


class RemotingConnectError(RemotingError):
    """No server answers at the address."""


class RemotingTimeoutError(RemotingError):
    """No answer arrived within the timeout."""


class FrameError(RemotingError):
    """Received bytes are not a valid frame (docs/internals/protocol.md, Frame). The connection that sent the bytes is closed.

    Args:
        message: the reason.
        refusal: the answer to send to the peer, if the bytes identify the request.
        rest: the received bytes of the frame, without the length field; empty if the code that catches the error has them.
    """

    def __init__(self, message: str, *, refusal: RefusedError | None = None, rest: bytes = b"") -> None:
        super().__init__(message)
        self.refusal = refusal
        self.rest = rest


class HeaderError(FrameError):
    """The header of a complete frame cannot be read; a server answers with ``refusal`` and keeps the connection."""


class ReplicationError(FlintError):
    """The peer of a replication stream violates the protocol, or does not know the secret. The connection is closed."""


class NotFollowedError(ReplicationError):
    """The logs of a master and its slave differ, so that following the master would lose records. The message gives the
    remedy."""


class StoreError(FlintError):
    """The store cannot be opened or used."""


class StoreLockedError(StoreError):
    """Another process has the store open."""


class StoreFormatError(StoreError):
    """The store's files do not match the configuration or each other, or are damaged."""


class StoreFullError(StoreError):
    """The disk has no space for the next file. Reads still work; writes are refused until there is space."""


class StoreExhaustedError(StoreFullError):
    """A file operation failed because the process or the system has no file descriptor or memory map left. The disk is sound,
    and no file was changed.

    As with a full disk, the operation is retried. The store is not fenced, so it can accept messages without a restart.
    """


class StoreFencedError(StoreError):
    """A sync failed, so the state of the disk is unknown; no message is acknowledged until the broker is restarted."""


class JsonSyntaxError(FlintError, ValueError):
    """A text is not in RocketMQ's JSON dialect, or is nested too deeply. The message states the position."""


class JsonTypeError(JsonSyntaxError):
    """A member of a JSON body or file does not have RocketMQ's type for it, or is out of range.

    Args:
        message: the reason.
        field: the path of the member, such as ``subscriptionGroupTable.Orders.retryMaxTimes``.
        measured: the member's value.
    """

    def __init__(self, message: str, field: str = "", measured: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.measured = measured


class InvalidArgumentError(FlintError, ValueError, TypeError):
    """An argument is invalid; the message states the value and the valid values.

    It is both a ValueError and a TypeError, so that callers need not distinguish a wrong type from a value out of range.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


class RefusedError(FlintError):
    """A server refuses a request.

    Args:
        code: the response code (docs/internals/protocol.md, Response codes).
        message: the reason as text; RocketMQ's text if RocketMQ has a text for the refusal.
        reason: a stable id for programs, such as ``topic.illegal``; docs/refusals.md lists all.
        measured: the value that led to the refusal, with its unit.
        key: the configuration key that changes the outcome.
    """

    def __init__(self, code: int, message: str, *, reason: str, measured: str = "", key: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.measured = measured
        self.key = key

    @classmethod
    def of_answer(cls, code: int, remark: str | None) -> RefusedError:
        """Return the error for a server's answer. A FlintMQ server's remark also contains reason, measured value and key.

        Args:
            code: the response code of the answer.
            remark: the remark of the answer.
        """
        told = _IN_REMARK.search(remark or "")
        reason, measured, key = told.groups("") if told is not None else ("broker.refused", "", "")
        return cls(code, remark or f"response code {code}", reason=reason, measured=measured, key=key)

    @property
    def remark(self) -> str:
        """The remark of the answer: the message, then ``[reason; measured …; see key]``. Unknown parts are left out.

        The text in the last pair of brackets of a remark always begins with the reason. The measured value can
        contain a client's text, so brackets in the value are replaced.
        """
        text = str(self)
        if len(text) > _REMARK_MAX_CHARS:
            text = text[:_REMARK_MAX_CHARS] + "…"
        extra = self.reason
        if self.measured:
            extra += f"; measured {self.measured.translate(_NO_BRACKETS)}"
        if self.key:
            extra += f"; see {self.key.translate(_NO_BRACKETS)}"
        return text if text.endswith(f"[{extra}]") else f"{text} [{extra}]"


def is_exhausted(error: OSError) -> bool:
    """Return whether a system call failed because no file descriptor was left (EMFILE, ENFILE). Such a call changes no file."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def store_error_kind(error: OSError) -> type[StoreError]:
    """Return the class of the error for an OSError: StoreFullError, StoreExhaustedError, or StoreError for other causes."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFullError
    return StoreExhaustedError if is_exhausted(error) else StoreError


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert OSErrors of a ``with`` block that reads a file or folder into StoreErrors that name the path of the file or
    folder.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def store_errors(root: Path) -> Iterator[None]:
    """Convert OSErrors of a ``with`` block into StoreErrors that name the file, or the store's folder."""
    try:
        yield
    except OSError as error:
        kind = store_error_kind(error)
        raise kind(f"{error.filename or root}: {error.strerror or error}") from error
