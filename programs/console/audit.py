"""Who changed what by way of the console: in the log, on a page, and in a file of bounded size."""

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
    """Something that was changed, or was to be."""

    at_ms: int
    who: str
    """The access key; ``anyone`` where the cluster asks for none."""
    client: str
    """The address of the browser."""
    action: str
    subject: str
    result: str
    """``done``, with figures, or why not."""


@attrs.define
class AuditLog:
    """The last 500 changes. Loop thread only.

    Args:
        clock: tells when.
        file: a line of JSON each; at 1 MiB it becomes ``NAME.1`` in place of the one before. None: in memory only.

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
        """Return what was changed, the last first."""
        return list(reversed(self._kept))

    def note(self, who: str, client: str, action: str, subject: str, result: str) -> None:
        """Note a change. A file that cannot be written to is logged, and the change is on the page all the same."""
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
    """Return the entry of a line; None for one that a crash or a full disk cut off."""
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.MsgspecError, UnicodeError):
        return None
