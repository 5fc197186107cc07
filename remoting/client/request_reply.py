"""Request and reply by messages: a request is sent to a topic, its consumer sends a reply, and the broker forwards the reply.

::

    requester ──message with CORRELATION_ID──▶ topic ──▶ consumer
        ▲                                                   │ SEND_REPLY_MESSAGE_V2 (request code 325)
        └── PUSH_REPLY_MESSAGE_TO_CLIENT (326) ── broker ◀──┘

:func:`make_reply` returns the reply to a request. The broker pushes the reply over the connection that carries the requester's
heartbeats. See docs/internals/protocol.md, Request and reply.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from flintmq.core.broker.topic_name import reply_topic
from flintmq.core.errors import InvalidArgumentError
from flintmq.core.io import chance
from flintmq.core.io.threads import background
from flintmq.core.log_events import event_log
from flintmq.core.record import properties as props
from flintmq.core.record.host import pack_host
from flintmq.remoting.client.compression import CompressionError, TooLongError, decompress
from flintmq.remoting.client.message import UNPACKED_AT_ONCE_MAX_BYTES, Message, MessageExt
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import RemotingCommand, response
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_message import ReplyMessageRequestHeader

if TYPE_CHECKING:
    from flintmq.remoting.client.instance import ClientInstance

log = event_log("flintmq.client")

REPLY: Final = "reply"
"""Value of the message property MSG_TYPE in a reply."""


def make_reply(request: MessageExt, body: bytes, properties: Mapping[str, str] | None = None) -> Message:
    """Return the message that answers a request; send it with any producer.

    Args:
        request: the consumed request.
        body: the body of the reply.
        properties: the user's properties of the reply.

    Raises:
        ValueError: the message is not a request, so no client waits for a reply.
    """
    asked = request.properties
    missing = [name for name in (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.CLUSTER) if not asked.get(name)]
    if missing:
        raise InvalidArgumentError(f"message {request.msg_id} is not a request: it lacks {', '.join(missing)}")
    named = {name: asked[name] for name in (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL) if name in asked}
    made = {**(properties or {}), **named, props.MSG_TYPE: REPLY}
    return Message(reply_topic(asked[props.CLUSTER]), body, properties=made)


def is_reply(message: Message) -> bool:
    """Return whether a message is sent as a reply to a request (request codes 324 and 325)."""
    return message.properties.get(props.MSG_TYPE) == REPLY


class Requests:
    """The requests that one client has sent as messages and whose replies it awaits. Used only on the event loop's thread."""

    def __init__(self, client: ClientInstance) -> None:
        self._client = client
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}
        self._announced: set[str] = set()
        self._telling: dict[str, asyncio.Task[None]] = {}
        """Tasks of the latest heartbeats that :meth:`announce` sent, keyed by broker address."""
        self._losses_seen = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def stamped(self, message: Message, timeout_ms: int) -> tuple[Message, asyncio.Future[MessageExt]]:
        """Return a message as a request, and the future of the reply. Call :meth:`forget` when the wait ends."""
        self._client.remoting.register_processor(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._replied)
        correlation_id = str(uuid.UUID(bytes=chance.secret_bytes(16), version=4))
        properties = {
            **message.properties,
            props.CORRELATION_ID: correlation_id,
            props.REPLY_TO_CLIENT: self._client.client_id,
            props.TTL: str(timeout_ms),
        }
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return attrs.evolve(message, properties=properties), future

    def forget(self, message: Message) -> None:
        """Stop waiting for the reply to a request."""
        self._waiting.pop(message.properties[props.CORRELATION_ID], None)

    async def announce(self, addresses: Iterable[str], timeout_ms: float) -> None:
        """Send heartbeats to brokers that do not know this client yet.

        After the heartbeats, the brokers can forward replies to the client, and ask the client to check transactions.

        The method waits for at most half of ``timeout_ms``. It does not wait for brokers that did not answer their latest
        heartbeat, because a silent broker must not delay a send to another broker.
        """
        if self._losses_seen != self._client.remoting.connections_lost:
            self._losses_seen = self._client.remoting.connections_lost
            self._announced.clear()
        waited = []
        for address in addresses:
            if address not in self._announced:
                telling = self._telling.get(address)
                if telling is None or telling.done():
                    telling = self._client.start_task(self._tell(address), f"announce-{address}")
                    self._telling[address] = telling
                if not self._client.is_silent(address):
                    waited.append(telling)
        if waited:
            await asyncio.wait(waited, timeout=timeout_ms / 2_000)

    def forget_announced(self) -> None:
        """Make :meth:`announce` send heartbeats to all brokers again, because the client has a new group."""
        self._announced.clear()

    async def _tell(self, address: str) -> None:
        losses, groups = self._losses_seen, set(self._client.producer_groups)
        answered = await self._client.send_heartbeats([address])
        if answered and (losses, groups) == (self._losses_seen, self._client.producer_groups):
            self._announced.add(address)

    def _replied(self, command: RemotingCommand, _address: str) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Handle a forwarded reply (request code 326). A late reply is accepted too, so the broker reports no error for it."""
        header = decode_header(ReplyMessageRequestHeader, command.ext_fields)
        properties = props.string_to_properties(header.properties)
        properties[props.ARRIVE_TIME] = str(self._client.clock.now_ms())
        future = self._waiting.pop(properties.get(props.CORRELATION_ID, ""), None)
        if future is None or future.done():
            log.info(
                "client.reply_too_late",
                "a reply from %(sender)s came too late, or no request waits for it",
                sender=header.born_host,
            )
            return response(command, ResponseCode.SUCCESS)
        try:
            body = decompress(command.body, header.sys_flag, UNPACKED_AT_ONCE_MAX_BYTES)
        except TooLongError:
            return self._replied_at_length(command, header, properties, future)
        except CompressionError as failure:
            future.set_exception(failure)
        else:
            future.set_result(_message(header, properties, body))
        return response(command, ResponseCode.SUCCESS)

    async def _replied_at_length(
        self,
        command: RemotingCommand,
        header: ReplyMessageRequestHeader,
        properties: dict[str, str],
        future: asyncio.Future[MessageExt],
    ) -> RemotingCommand:
        """Handle a reply whose body is decompressed on a thread, because decompression would block the event loop."""
        try:
            body = await background(decompress, command.body, header.sys_flag)
        except CompressionError as failure:
            if not future.done():
                future.set_exception(failure)
        else:
            if not future.done():
                future.set_result(_message(header, properties, body))
        return response(command, ResponseCode.SUCCESS)


def _packed(host: str) -> bytes:
    """Return the packed form of an address ``ip:port``; return empty bytes if the text is not an address.

    Text up to a slash is ignored, because RocketMQ's brokers write a slash before the IP.
    """
    ip, _, port = host.rpartition("/")[2].rpartition(":")
    try:
        return pack_host(ip.removeprefix("[").removesuffix("]"), int(port))
    except ValueError:
        return b""


def _message(header: ReplyMessageRequestHeader, properties: dict[str, str], body: bytes) -> MessageExt:
    return MessageExt(
        topic=header.topic,
        body=body,
        properties_bytes=props.properties_to_string(properties).encode(),
        queue_id=header.queue_id,
        queue_offset=-1,
        broker_name="",
        commit_log_offset_bytes=-1,
        store_size_bytes=0,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp_ms,
        born_host_bytes=_packed(header.born_host),
        store_timestamp_ms=header.store_timestamp_ms,
        store_host_bytes=_packed(header.store_host),
        reconsume_times=header.reconsume_times,
        prepared_transaction_offset_bytes=0,
    )
