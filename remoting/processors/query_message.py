"""Answers QUERY_MESSAGE (12), which finds messages by key, and VIEW_MESSAGE_BY_ID (33), which finds a message by physical
offset."""

from __future__ import annotations

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.access import Permission
from flintmq.core.kernel.ports.processor import Request, Response, handles
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.answers import StateProcessor, in_slices, record_bytes
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_message import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)

_MAX_NUM = 64
"""Largest number of messages in an answer to a query. RocketMQ's ``defaultQueryMaxNum`` is 32, but its admin client requests
64."""
_MAX_BYTES = 8 * 1024 * 1024
"""Number of bytes of messages after which no further message is added to an answer, so that clients accept the frame."""


class QueryMessageProcessor(StateProcessor):
    """Answers requests for messages by key and by message id. Used only on the event loop's thread."""

    @handles(
        RequestCode.QUERY_MESSAGE,
        header=QueryMessageRequestHeader,
        answer=QueryMessageResponseHeader,
        pool="query",
        needs=needs.topic(Permission.SUB),
    )
    async def query(self, request: Request) -> Response:
        """Return the messages of a topic that have a given key.

        The index finds messages by a hash, so it may also find messages that have another topic or key. The broker leaves these
        messages out of the answer. RocketMQ's clients check the topic and the key of each message again.
        """
        header = request.header(QueryMessageRequestHeader)
        steps = self._api.log.reader.query_message_steps(
            header.topic,
            header.key,
            max(1, min(header.max_num, _MAX_NUM)),
            header.begin_timestamp_ms,
            header.end_timestamp_ms,
        )
        found, index_time_ms, index_offset_bytes = await in_slices(steps)
        fields = {
            "indexLastUpdatePhyoffset": str(index_offset_bytes),
            "indexLastUpdateTimestamp": str(index_time_ms),
        }
        if not found:
            nothing = RefusedError(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                reason="message.not_found",
            )
            return Response(int(nothing.code), nothing.remark, fields)
        taken: list[memoryview] = []
        size = 0
        for piece in found:
            if taken and size + len(piece) > _MAX_BYTES:
                break
            taken.append(piece)
            size += len(piece)
        return Response(0, None, fields, b"".join(taken))

    @handles(
        RequestCode.VIEW_MESSAGE_BY_ID,
        header=ViewMessageRequestHeader,
        pool="query",
        needs=needs.record(ViewMessageRequestHeader, Permission.SUB),
    )
    def view(self, request: Request) -> Response:
        """Return the message at a physical offset of the commit log."""
        header = request.header(ViewMessageRequestHeader)
        return Response(body=record_bytes(self._api, header.commit_log_offset_bytes))
