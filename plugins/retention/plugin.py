"""Registers retention: the service that deletes files, and the processor of the requests that ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.core.kernel.hookspecs import RegisterProcessor, RegisterService, hookimpl
from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, declared_by, handles
from flintmq.plugins.retention.cleaner import CleanCommitLogService
from flintmq.plugins.retention.resident_pages import RESIDENT_CHECK_S, ResidentPages
from flintmq.remoting.wire.codes import RequestCode

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi


class RetentionPlugin:
    """Registers the deletion of old files, the watch over the disks, and the return of pages to the kernel."""

    plugin_name = "retention"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("retention", RetentionService)

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register(
            "retention",
            declared_by(RetentionProcessor),
            lambda broker: RetentionProcessor(broker.state.service(RetentionService).cleaner),
        )


class RetentionProcessor(DeclaredProcessor):
    """Answers requests about the deletion of what has expired (docs/internals/protocol.md, Request codes). Loop thread."""

    def __init__(self, cleaner: CleanCommitLogService) -> None:
        self._cleaner = cleaner

    @handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, needs=ADMIN, audited=True)
    def clean_expired(self, _request: Request) -> Response:
        """Delete the consume queues whose messages have all expired."""
        self._cleaner.clean_expired_queues()
        return Response()

    @handles(RequestCode.DELETE_EXPIRED_COMMITLOG, needs=ADMIN, audited=True)
    def delete_expired(self, _request: Request) -> Response:
        """Start the deletion of expired files of the commit log."""
        self._cleaner.delete_manually()
        return Response()


class RetentionService:
    """Deletes what is old, refuses writes to a full disk, and keeps resident memory small. Loop thread.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.cleaner = CleanCommitLogService(api.store, api.readers, api.topics.keeping_topics)
        self._pages = ResidentPages(api.store)

    def start(self) -> None:
        """Measure the disks and expire topics now, and begin the rounds."""
        self.cleaner.check_space()
        self.cleaner.expire_topics()
        timers = self._api.timers
        timers.pace(self._api.config.store.clean_resource_interval_ms / 1000, self.cleaner.tick, "retention")
        timers.pace(RESIDENT_CHECK_S, self._pages.tick, "resident pages")

    def stop(self) -> None:
        """Do nothing: the timers have ended."""
