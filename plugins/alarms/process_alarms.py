"""Raises alarms if the process approaches the kernel's limits on memory maps or descriptors."""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from flintmq.core.errors import is_exhausted
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm, Level
from flintmq.remoting.server.descriptors import limit_of_descriptors

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

PROC: Final = Path("/proc")
LOOK_S: Final = 30.0
NEAR: Final = 0.8
"""Fraction of a limit of the process at which an alarm is raised. An example of a limit is the maximum number of memory maps.
After the alarm, users have time to react even if hundreds of topics or connections are added."""
AT_END: Final = 0.95
"""Fraction of a limit of the process at which an alarm becomes critical, because the broker will soon refuse sends. An example
of a limit is the maximum number of memory maps."""
_CHUNK_BYTES: Final = 64 * 1024


class ProcessUse(msgspec.Struct, frozen=True):
    """Numbers of memory maps and descriptors that the process uses, and the limits of these numbers; 0 for a number that is not
    known."""

    maps: int = 0
    maps_max: int = 0
    descriptors: int = 0
    descriptors_max: int = 0


def measure(proc: Path = PROC, before: ProcessUse = ProcessUse()) -> ProcessUse:
    """Return the numbers of memory maps and descriptors of this process, and their limits.

    Can be called from any thread. This takes about 50 ms if there are 60,000 maps.

    Args:
        proc: the folder of the kernel's files (proc(5)). A number whose file is missing counts as 0.
        before: the result of the previous call. If no descriptor is free, the kernel's files cannot be opened. In this case,
            all descriptors that the process may open are in use, and the result has the number of memory maps of ``before``.
    """
    descriptors_max = limit_of_descriptors()
    try:
        return ProcessUse(
            _count(lambda: _lines(proc / "self" / "maps")),
            _count(lambda: int((proc / "sys" / "vm" / "max_map_count").read_text("ascii"))),
            _count(lambda: sum(1 for _ in (proc / "self" / "fd").iterdir())),
            descriptors_max,
        )
    except OSError as error:
        used = descriptors_max if error.errno == errno.EMFILE else before.descriptors
        return ProcessUse(before.maps, before.maps_max, used, descriptors_max)


def _count(read: Callable[[], int]) -> int:
    """Return the number that a function reads from a file of the kernel; 0 if the file is missing or has no number.

    Raises OSError if no descriptor is free.
    """
    try:
        return read()
    except ValueError:
        return 0
    except OSError as error:
        if is_exhausted(error):
            raise
        return 0


def _lines(path: Path) -> int:
    with path.open("rb", buffering=0) as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))


def process_alarms(use: ProcessUse) -> Iterator[Alarm]:
    """Yield an alarm for each limit on memory maps or descriptors that the process approaches."""
    if _is_near(use.maps, use.maps_max):
        text = (
            f"the process has {use.maps:,} memory maps of {use.maps_max:,}; without one no file of the log or of a queue can "
            "be made, and sends are refused: raise vm.max_map_count (sysctl), or delete topics that nobody needs"
        )
        yield Alarm("process.maps", _level(use.maps, use.maps_max), "", text, use.maps, "maps", use.maps_max)
    if _is_near(use.descriptors, use.descriptors_max):
        text = (
            f"the process has {use.descriptors:,} open descriptors of {use.descriptors_max:,}; new connections wait, and "
            "without one files cannot be made: raise its limit (ulimit -n, LimitNOFILE of systemd), or close connections"
        )
        level = _level(use.descriptors, use.descriptors_max)
        yield Alarm("process.descriptors", level, "", text, use.descriptors, "descriptors", use.descriptors_max)


def _is_near(used: int, limit: int) -> bool:
    return limit > 0 and used >= NEAR * limit


def _level(used: int, limit: int) -> Level:
    return CRITICAL if used >= AT_END * limit else WARNING


class ProcessAlarms:
    """The service ``process_alarms``: measures memory maps and descriptors every :data:`LOOK_S` seconds in a thread, and raises
    alarms. Used only on the event loop's thread.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._measuring: asyncio.Task[None] | None = None
        self.use = ProcessUse()
        """Numbers of memory maps and file descriptors that the process uses, from the last measurement."""

    def start(self) -> None:
        """Begin to measure memory maps and descriptors at intervals.

        A test that advances the broker's clock skips these measurements, because they do not depend on the clock."""
        self._api.work.every(LOOK_S, self._look, "maps and descriptors", lambda: math.inf)

    async def stop(self) -> None:
        """Wait until a measurement of memory maps and descriptors that is under way has ended."""
        if self._measuring is not None:
            await self._measuring

    def _look(self) -> None:
        if self._measuring is None or self._measuring.done():
            self._measuring = asyncio.get_running_loop().create_task(self._measure())

    async def _measure(self) -> None:
        self.use = await self._api.work.background(lambda: measure(before=self.use))

    def alarms(self) -> Iterator[Alarm]:
        """Return an alarm for each limit on memory maps or descriptors that the process approached in the last measurement."""
        return process_alarms(self.use)
