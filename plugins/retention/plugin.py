"""Registers retention: the service that deletes files, and the processor of the requests that ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.core.kernel.hookspecs import RegisterProcessor, RegisterService, hookimpl
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.plugins.retention.processor import RetentionProcessor
from flintmq.plugins.retention.service import RetentionService

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerHandle


class RetentionPlugin:
    """Registers the deletion of old files, the watch over the disks, and the return of pages to the kernel."""

    plugin_name = "retention"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("retention", RetentionService)

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("retention", declared_by(RetentionProcessor), _processor)


def _processor(broker: BrokerHandle) -> RetentionProcessor:
    return RetentionProcessor(broker.state.service(RetentionService).cleaner)
