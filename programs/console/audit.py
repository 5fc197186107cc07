"""Records who changed what through the console: in the log, on a page, and in a file of bounded size."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

import attrs
import msgspec

from flintmq.core.io.clock import Clock
from flintmq.core.log_events import event_log

log = event_log("flintmq.console")

KEPT_MAX: Final = 500
FILE_MAX_BYTES: Final = 1024 * 1024
_TEXT_MAX_CHARS: Final = 1_000


class Entry(msgspec.Struct, frozen=True):
    """A change that a user made, or tried to make, through the console."""

    at_ms: int
    who: str
    """The access key of the user who made the change; ``anyone`` if the cluster has no access control."""
    client: str
    """The IP address of the browser from which the change was made."""
    action: str
    subject: str
    result: str
    """The result of the change: ``done`` with details, or the text of the error."""


@attrs.define
class AuditLog:
    """The log of the last 500 changes that users made through the console. For the loop thread only.

    Args:
        clock: the clock for the times of changes.
        file: a file with a line of JSON per change. At 1 MiB it is renamed to ``NAME.1``, replacing an older file of this name.
            None to keep the changes in memory.

    Raises:
        OSError: the file cannot be read.
    """

    _clock: Clock
    _file: Path | None = None
    _kept: deque[Entry] = attrs.field(factory=lambda: deque(maxlen=KEPT_MAX), init=False)

    def __attrs_post_init__(self) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        for file in (self._older, self._file):
            if file.exists():
                self._kept.extend(filter(None, map(_decoded, file.read_bytes().splitlines())))

    @property
    def _older(self) -> Path:
        assert self._file is not None
        return self._file.with_name(self._file.name + ".1")

    def entries(self) -> list[Entry]:
        """Return the recorded changes, newest first."""
        return list(reversed(self._kept))

    def note(self, who: str, client: str, action: str, subject: str, result: str) -> None:
        """Record a change. If the audit file cannot be written, the error is logged, and the page still shows the change."""
        texts = (text[:_TEXT_MAX_CHARS] for text in (who, client, action, subject, result))
        entry = Entry(self._clock.now_ms(), *texts)
        self._kept.append(entry)
        log.info(
            "console.changed",
            "%(who)s at %(client)s: %(what)s of %(subject)s: %(result)s",
            who=entry.who,
            client=entry.client,
            what=entry.action,
            subject=entry.subject,
            result=entry.result,
        )
        if self._file is None:
            return
        try:
            if self._file.exists() and self._file.stat().st_size >= FILE_MAX_BYTES:
                self._file.replace(self._older)
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")
        except OSError as error:
            log.error(
                "console.audit_not_written",
                "the audit file %(file)s is not written: %(error)s",
                file=self._file,
                error=error,
            )


def _decoded(line: bytes) -> Entry | None:
    """Return the recorded change in a line of the audit file; None if a crash or a full disk cut the line off."""
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.MsgspecError, UnicodeError):
        return None
