"""Keeps two landers out of one landing zone."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from flintmq.plugins.spark.landing.errors import LandingTroubleError
from flintmq.plugins.spark.landing.names import MANIFEST_FOLDER

_TRY_S: Final = 0.05


class ZoneLock:
    """Held from construction until :meth:`release`.

    The process of a broker that was killed finishes what it is at before it notices; the next one waits for it.

    Args:
        root: the landing zone's folder.
        wait_s: how long to wait while another process has it.

    Raises:
        LandingTroubleError: another process holds it.
        OSError: the lock file cannot be made.
    """

    def __init__(self, root: Path, wait_s: float = 10.0) -> None:
        path = root / MANIFEST_FOLDER / "lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        until_s = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= until_s:
                    os.close(self._fd)
                    self._fd = -1
                    raise LandingTroubleError(
                        f"{root}: another broker's landing zone; stop that broker, or set spark_feed.landing.path"
                    ) from error
                time.sleep(_TRY_S)
            else:
                return

    def release(self) -> None:
        """Let the next one in. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
