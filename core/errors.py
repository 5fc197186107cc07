"""Every error FlintMQ raises on purpose, drawn as a tree.

::

    FlintError
    ├── PluginError                  a plugin is unknown, malformed, or raised while it was loaded
    ├── RemotingError                the connection, not the request, is at fault
    │   ├── RemotingConnectError     no server answers at the address
    │   ├── RemotingTimeoutError     no answer in time
    │   └── FrameError               bytes that are no frame: the connection is closed
    │       └── HeaderError          a frame whose header cannot be read: it is answered, the connection stays
    ├── ReplicationError             the other end of a replication stream breaks its rules: the connection is closed
    │   └── NotFollowedError         it is not the master that this log came from, or no longer: following it would lose bytes
    ├── StoreError                   the store cannot be opened or used
    │   ├── StoreLockedError         another process has it open
    │   ├── StoreFormatError         its files do not fit the configuration, or each other
    │   ├── StoreFullError           no room for the next file
    │   │   └── StoreExhaustedError  the process has no descriptor, or no map, left for it
    │   └── StoreFencedError         a sync failed: nothing is acknowledged any more
    ├── JsonSyntaxError              a JSON body or file that cannot be read (also a ValueError)
    │   └── JsonTypeError            a member of one that is not of RocketMQ's type
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
"""Many messages repeat a name of the request's, which may be as long as its header."""
_IN_REMARK: Final = re.compile(r"\[([a-z_]+\.[a-z_.-]+)(?:; measured ([^\[\]]*?))?(?:; see ([^\[\]]*))?\]\Z")
_NO_BRACKETS: Final = str.maketrans("[]", "()")


class FlintError(Exception):
    """The root: ``except FlintError`` catches what FlintMQ raises on purpose and nothing else."""


class PluginError(FlintError):
    """A plugin is unknown, has a hook of the wrong signature, or raised while it was loaded. Names the plugin."""


class RemotingError(FlintError):
    """The connection, not the request, is at fault."""


class RemotingConnectError(RemotingError):
    """No server answers at the address."""


class RemotingTimeoutError(RemotingError):
    """No answer arrived within the time given."""


class FrameError(RemotingError):
    """Bytes that are no frame (docs/internals/protocol.md, Frame). The connection that sent them is closed.

    Args:
        message: what is wrong with them.
        refusal: a server's answer to the sender, where the bytes name the request that waits for one.
        rest: what was read of the frame, without its length field, where that is not known to the caller.
    """

    def __init__(self, message: str, *, refusal: RefusedError | None = None, rest: bytes = b"") -> None:
        super().__init__(message)
        self.refusal = refusal
        self.rest = rest


class HeaderError(FrameError):
    """A header that cannot be read, in a frame whose lengths are right: a server answers with ``refusal`` and reads on."""


class ReplicationError(FlintError):
    """The other end of a replication stream breaks its rules, or does not know the secret. The connection is closed."""


class NotFollowedError(ReplicationError):
    """The two logs have parted: to follow would lose bytes that may matter. The message says what to do."""


class StoreError(FlintError):
    """The store cannot be opened or used."""


class StoreLockedError(StoreError):
    """Another process has the store open."""


class StoreFormatError(StoreError):
    """The store's files do not fit the configuration, or each other."""


class StoreFullError(StoreError):
    """No room to allocate the next file. Reads go on; writes are refused until there is room."""


class StoreExhaustedError(StoreFullError):
    """The process or the system has no descriptor, or no map, left: nothing is wrong with the disk, and nothing was changed.

    As after a full disk it is tried again, and nothing is fenced.
    """


class StoreFencedError(StoreError):
    """A sync failed, so what is on disk is unknown: nothing is acknowledged until the broker is restarted."""


class JsonSyntaxError(FlintError, ValueError):
    """Text that is not of RocketMQ's JSON dialect, or nests too deep. Says where."""


class JsonTypeError(JsonSyntaxError):
    """A member of a JSON body or file is not of the type that RocketMQ has for it, or beyond its range.

    Args:
        message: what is wrong with it.
        field: its path, such as ``subscriptionGroupTable.Orders.retryMaxTimes``.
        measured: what stands there.
    """

    def __init__(self, message: str, field: str = "", measured: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.measured = measured


class InvalidArgumentError(FlintError, ValueError, TypeError):
    """A value that a program gives does not fit: the message has the value and what fits.

    It is both, because callers should not need to know whether a value is of the wrong type or out of range.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


class RefusedError(FlintError):
    """A request is refused.

    Args:
        code: the response code (docs/internals/protocol.md, Response codes).
        message: what was wrong, in the words of RocketMQ where it has any.
        reason: a stable id such as ``topic.illegal``, for programs: docs/refusals.md lists them.
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
        """Return what a server refused: its remark is the message, and says reason, measured value and key if it is FlintMQ's.

        Args:
            code: of the answer.
            remark: of the answer.
        """
        told = _IN_REMARK.search(remark or "")
        reason, measured, key = told.groups("") if told is not None else ("broker.refused", "", "")
        return cls(code, remark or f"response code {code}", reason=reason, measured=measured, key=key)

    @property
    def remark(self) -> str:
        """The answer's remark: the message, then ``[reason; measured …; see key]`` as far as known.

        The last pair of brackets is always this one, whatever of the client's text was measured.
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
    """Return whether a call failed for want of a descriptor (EMFILE, ENFILE): whatever it was to do has not begun."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def store_error_kind(error: OSError) -> type[StoreError]:
    """Return what an error of the operating system is to the store: full (ENOSPC, EDQUOT), exhausted, or another
    one."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFullError
    return StoreExhaustedError if is_exhausted(error) else StoreError


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Make errors of the operating system errors of the store that name a file or folder which cannot be read."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def store_errors(root: Path) -> Iterator[None]:
    """Make errors of the operating system errors of the store in a folder."""
    try:
        yield
    except OSError as error:
        kind = store_error_kind(error)
        raise kind(f"{error.filename or root}: {error.strerror or error}") from error
