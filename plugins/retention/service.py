"""The service of retention: rounds of deletion, and slices in which pages of old files are given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.plugins.retention.cleaner import CleanCommitLogService
from flintmq.plugins.retention.resident_pages import RESIDENT_CHECK_S, ResidentPages

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi


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
