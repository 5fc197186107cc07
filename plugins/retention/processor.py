"""Answers the requests that start a deletion (docs/internals/protocol.md, Request codes)."""

from __future__ import annotations

from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.plugins.retention.cleaner import CleanCommitLogService
from flintmq.remoting.wire.codes import RequestCode


class RetentionProcessor(DeclaredProcessor):
    """Answers requests about the deletion of what has expired. Loop thread.

    Args:
        cleaner: deletes.
    """

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
