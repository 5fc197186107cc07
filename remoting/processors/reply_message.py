"""Forwards the replies of consumers to requests that producers sent as messages: SEND_REPLY_MESSAGE (324, 325).

The consumer of a request sends its reply to the broker. The broker finds the connection of the requesting producer by the
producer's client id, pushes the reply over this connection, and waits for the producer's answer. With ``topics.store_reply``
the broker also stores the reply, even if the push fails.

See docs/internals/protocol.md, Request and reply.
"""

from __future__ import annotations

from functools import partial
from typing import Final, cast

from flintmq.core.broker.sink import told_durable, until_flushed
from flintmq.core.errors import RefusedError, RemotingError
from flintmq.core.kernel.ports.processor import Request, Response, handles
from flintmq.core.record.host import offset_message_id
from flintmq.core.record.properties import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    properties_to_string,
    string_to_properties,
)
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.admin_clients import Askable
from flintmq.remoting.processors.answers import StateProcessor
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.header_codec import encode_header
from flintmq.remoting.wire.headers_message import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    SentRequestHeader,
)
from flintmq.remoting.wire.refusal import system_error

PUSH_TIMEOUT_S: Final = 10.0
"""Seconds that a producer may take to acknowledge the reply to its request."""

_sends = partial(handles, answer=SendMessageResponseHeader, pool="reply")


class ReplyMessageProcessor(StateProcessor):
    """Forwards consumers' replies to the producers that sent the requests as messages. Used only on the event loop's thread."""

    @_sends(RequestCode.SEND_REPLY_MESSAGE, header=SendMessageRequestHeader, needs=needs.send("topic"))
    @_sends(RequestCode.SEND_REPLY_MESSAGE_V2, header=SendMessageRequestHeaderV2, needs=needs.send("b"))
    async def reply(self, request: Request) -> Response:
        """Push a consumer's reply to the producer of the request, and store the reply if ``topics.store_reply`` is set.

        The consumer gets the same kind of answer as to a send request. If the reply does not reach the producer, the consumer's
        request is refused with SYSTEM_ERROR.
        """
        api = self._api
        v1 = request.code == RequestCode.SEND_REPLY_MESSAGE
        header = request.header(SendMessageRequestHeader if v1 else SendMessageRequestHeaderV2)
        properties = string_to_properties(header.properties)
        client_id = properties.get(REPLY_TO_CLIENT, "")
        properties[PUSH_REPLY_TIME] = str(api.clock.now_ms())
        header.properties = properties_to_string(properties)
        message = api.intake.single(header, request.body, request.channel, request.version)
        failure: RefusedError | None = None
        try:
            await self._push(request, header, client_id)
        except RefusedError as error:
            failure = error
        answer = SendMessageResponseHeader(
            msg_id="0",
            queue_id=message.queue_id,
            queue_offset=0,
            region_id=api.settings.current.broker.region,
            trace_on=api.settings.current.broker.trace_on,
        )
        code = ResponseCode.SUCCESS
        if api.settings.current.topics.store_reply:
            code = await self._store(message, answer)
        if failure is not None:
            raise failure
        return Response(int(code), None, encode_header(answer))

    async def _push(self, request: Request, header: SendMessageRequestHeader, client_id: str) -> None:
        if not client_id:
            raise system_error(f"reply message properties[{REPLY_TO_CLIENT}] is null", reason="reply.nobody")
        channel = self._api.clients.producers.find_channel(client_id)
        if channel is None:
            raise system_error(f"push reply message fail, channel of <{client_id}> not found.", reason="reply.offline")
        pushed = ReplyMessageRequestHeader(
            **{name: getattr(header, name) for name in SentRequestHeader.__struct_fields__},
            born_host=request.channel.remote_address,
            store_host=self._api.address.host_port,
            store_timestamp_ms=self._api.clock.now_ms(),
        )
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        try:
            answer = await cast("Askable", channel).invoke(code, encode_header(pushed), request.body, PUSH_TIMEOUT_S)
        except RemotingError as error:
            raise system_error(
                f"push reply message to {client_id} fail.", reason="reply.not_taken", measured=str(error)
            ) from error
        if answer.code != ResponseCode.SUCCESS:
            raise system_error(
                f"push reply message to {client_id} fail.",
                reason="reply.refused",
                measured=f"code {answer.code}, {answer.remark}",
            )

    async def _store(self, message: MessageExtBrokerInner, answer: SendMessageResponseHeader) -> ResponseCode:
        """Store a consumer's reply as a message, and return the code of the answer to the consumer.

        The message id and the queue offset are set in `answer`.
        """
        api = self._api
        stored = api.put([message])
        try:
            (record,) = stored.requests()
        except RefusedError as error:
            error.code = ResponseCode.SYSTEM_ERROR
            raise
        answer.msg_id = offset_message_id(api.address.packed_hex, record.commit_log_offset_bytes)
        answer.queue_offset = record.queue_offset
        refusal = told_durable(await until_flushed(stored.waiter), api.figures.counts.faults)
        return ResponseCode(refusal.code) if refusal is not None else ResponseCode.SUCCESS
