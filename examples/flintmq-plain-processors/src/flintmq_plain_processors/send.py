"""A request processor that stores and answers each send separately."""

from __future__ import annotations

from functools import partial

from flintmq.core.broker.api import BrokerApi
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.protocol import (
    DeclaredProcessor,
    Incoming,
    MessageBatch,
    RefusedError,
    Request,
    RequestCode,
    Response,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    StoreError,
    batch_message_id,
    encode_header,
    handles,
    needs,
    not_durable,
    not_stored,
    offset_message_id,
    until_flushed,
)

_sends = partial(handles, answer=SendMessageResponseHeader, pool="send")


class PlainSend(DeclaredProcessor):
    """A request processor that stores the message or batch of each send, and answers when the message or batch is durable. Loop
    thread."""

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    @_sends(RequestCode.SEND_MESSAGE, header=SendMessageRequestHeader, needs=needs.send("topic"))
    async def send(self, request: Request) -> Response:
        """Store the message of a send, and return the answer when the message is durable. Raises ``RefusedError`` if the
        message is not stored."""
        return await self._stored(request, request.header(SendMessageRequestHeader))

    @_sends(RequestCode.SEND_MESSAGE_V2, header=SendMessageRequestHeaderV2, needs=needs.send("b"))
    @_sends(RequestCode.SEND_BATCH_MESSAGE, header=SendMessageRequestHeaderV2, needs=needs.send("b"))
    async def send_v2(self, request: Request) -> Response:
        """Store a message or batch whose header has RocketMQ's short names, and return the answer when the message or batch is
        durable. Raises ``RefusedError`` if the message or batch is not stored.
        """
        return await self._stored(request, request.header(SendMessageRequestHeaderV2))

    async def _stored(self, request: Request, header: SendMessageRequestHeader) -> Response:
        """Store the message or batch of a send, and return the answer when the message or batch is durable.

        Raises:
            RefusedError: the message is not stored.
        """
        api = self._api
        api.log.check_writeable()
        try:
            message = self._message(request, header)
        except StoreError as error:
            # A send to a new topic writes the topic to a file. If this write fails, the message cannot be stored.
            raise not_stored(error) from error
        stored = api.put([message])
        (result,) = stored.results
        if isinstance(result, RefusedError):
            raise result
        refusal = not_durable(await until_flushed(stored.waiter))
        host = api.address.packed_hex
        settings = api.settings.current.broker
        answer = SendMessageResponseHeader(
            msg_id=offset_message_id(host, result.commit_log_offset_bytes)
            if isinstance(result, DispatchRequest)
            else batch_message_id(host, result.positions),
            queue_id=_queue_id(message),
            queue_offset=result.queue_offset,
            region_id=settings.region,
            trace_on=settings.trace_on,
        )
        code, remark = (0, None) if refusal is None else (refusal.code, refusal.remark)
        return Response(code, remark, encode_header(answer))

    def _message(self, request: Request, header: SendMessageRequestHeader) -> Incoming:
        if header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
            return self._api.intake.batch(header, request.body, request.channel)
        return self._api.intake.single(header, request.body, request.channel, request.version)


def _queue_id(message: Incoming) -> int:
    """Return the number of the queue that a message was sent to.

    A delayed message is stored in another queue first; its property ``REAL_QID`` has the number.
    """
    sent_to = "" if isinstance(message, MessageBatch) else message.properties.get("REAL_QID", "")
    return int(sent_to) if sent_to.isdecimal() else message.queue_id
