"""Registers retention: the service that deletes files, and the processor of the requests that start deletions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.config.errors import ConfigError
from flintmq.core.broker.log_files import LogFiles
from flintmq.core.io.clock import stopwatch_of
from flintmq.core.io.disk import evict_slices
from flintmq.core.kernel.hookspecs import RegisterProcessor, RegisterService, hookimpl
from flintmq.core.kernel.ports import SupportsEvict
from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, declared_by, handles
from flintmq.plugins.retention.cleaner import CleanCommitLogService
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.refusal import unsupported

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import Alarm

RESIDENT_CHECK_S: Final = 1.0
"""Interval in seconds between two checks of the resident memory."""
RESIDENT_MAX_BYTES: Final = 128 * 1024 * 1024
"""Resident bytes of mapped files up to which no memory pages are released. The newest part of the log, the slots of an index
file and libraries fit into this size."""
NEWEST_BYTES: Final = 64 * 1024 * 1024
"""Number of bytes at the end of the log whose memory pages are not released, because slaves and consumers that keep up read
these bytes soon."""
_SLICE_S: Final = 0.001
"""Time, in seconds, for which a round of releasing memory pages occupies the event loop without a pause. The release of one
part of a file may take longer."""


class RetentionPlugin:
    """Registers the service that deletes old files, checks the disks and releases memory pages, and its request processor."""

    plugin_name = "retention"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("retention", lambda context: RetentionService(context.api))

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("retention", declared_by(RetentionProcessor), lambda context: RetentionProcessor(context.api))


class RetentionProcessor(DeclaredProcessor):
    """Answers requests that start the deletion of expired files (docs/internals/protocol.md, Request codes). Used only on the
    event loop's thread.

    Args:
        api: the broker. If a plugin has replaced :class:`RetentionService`, the requests are refused as unsupported.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    def _cleaner(self, request: Request) -> CleanCommitLogService:
        for service in self._api.parts(RetentionService):
            return service.cleaner
        raise unsupported(request.code)

    @handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, needs=ADMIN, audited=True)
    def clean_expired(self, request: Request) -> Response:
        """Delete the consume queues whose messages have all expired."""
        self._cleaner(request).clean_expired_queues()
        return Response()

    @handles(RequestCode.DELETE_EXPIRED_COMMITLOG, needs=ADMIN, audited=True)
    def delete_expired(self, request: Request) -> Response:
        """Start the deletion of expired files of the commit log."""
        self._cleaner(request).delete_manually()
        return Response()


class RetentionService:
    """Deletes old files, makes the store refuse messages if the disk is full, and releases memory pages. Used only on the event
    loop's thread.

    Args:
        api: the broker.

    Raises:
        ConfigError: ``store.keep_at_most_hours`` is less than ``store.file_reserved_hours``, so ``store.keep_for_groups`` would
            have no effect.
    """

    def __init__(self, api: BrokerApi) -> None:
        store = api.settings.current.store
        if store.keep_for_groups and store.keep_at_most_hours < store.file_reserved_hours:
            raise ConfigError(
                f"store.keep_at_most_hours is {store.keep_at_most_hours}, but every message is kept for "
                f"{store.file_reserved_hours} hours (store.file_reserved_hours): raise the first, lower the second, or leave "
                "store.keep_for_groups empty",
                key="store.keep_at_most_hours",
            )
        self._api = api
        files = api.part(LogFiles)
        self.cleaner = CleanCommitLogService(files, api.offsets.readers, api.topics.keeping_topics)
        self._pages = ResidentPages(files)

    def start(self) -> None:
        """Measure the disks and apply the retention of topics now, and start the timers for further rounds."""
        self.cleaner.check_space()
        self.cleaner.expire_topics()
        timers = self._api.work
        timers.pace(self._api.settings.current.store.clean_resource_interval_ms / 1000, self.cleaner.tick, "retention")
        # With a pause of math.inf seconds, a simulation's clock never runs this check of the process's real memory.
        timers.pace(RESIDENT_CHECK_S, self._pages.tick, "resident pages", lambda: math.inf)

    def alarms(self) -> list[Alarm]:
        """Return the alarms of the last measurement of the disks, and the alarms about messages deleted in the last hour."""
        return [*self.cleaner.alarms, *self.cleaner.lost_alarms, *self.cleaner.forced_alarms]

    def stop(self) -> None:
        """Do nothing, because the broker has already ended the timers of retention."""


class ResidentPages:
    """Releases mapped pages of older files to the kernel, in rounds. Used only on the event loop's thread. A timer of the
    caller calls :meth:`tick`.

    The kernel reclaims mapped pages only if memory is short. Until then, every page that was written or read counts as resident
    memory of the broker, although only the last few megabytes are used again. Container limits and operators who look for a
    memory leak use the size of the resident memory. Released pages stay in the page cache. To read them again costs a page
    fault, but no read from the disk.

    Args:
        files: the files of the store.
        max_bytes: resident bytes of mapped files above which pages are released.
        newest_bytes: bytes at the log's end whose pages are not released.
    """

    def __init__(self, files: LogFiles, max_bytes: int = RESIDENT_MAX_BYTES, newest_bytes: int = NEWEST_BYTES) -> None:
        self._files = files
        self._max_bytes = max_bytes
        self._newest_bytes = newest_bytes
        self._round: Iterator[None] | None = None

    def tick(self) -> float:
        """Run a slice of the current round that releases pages, or begin a round if too many bytes are resident; return the
        seconds until the next call."""
        if self._round is None:
            if self._files.disk.resident_bytes() <= self._max_bytes:
                return RESIDENT_CHECK_S
            self._round = self._steps()
        now_s = stopwatch_of(self._files.clock)
        until_s = now_s() + _SLICE_S
        for _ in self._round:
            if now_s() >= until_s:
                return 0.0
        self._round = None
        return RESIDENT_CHECK_S

    def _steps(self) -> Iterator[None]:
        """Release memory pages of the store's mapped files; yield after each part.

        Three kinds of pages are released:

        * pages of the log, except those of its newest part;
        * synced pages of the consume queues;
        * the entries of the index files.
        """
        files = self._files
        marks = files.log.marks
        behind = min(marks.flushed, marks.dispatched) - self._newest_bytes
        for file in list(files.files):
            yield from evict_slices(file.region, min(file.size, behind - file.start))
        for part in (files.queues, files.index):
            if isinstance(part, SupportsEvict):
                yield from part.evict()
