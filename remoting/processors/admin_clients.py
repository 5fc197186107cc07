"""Returns data about connected clients to tools, and forwards requests that only a client can answer.

See docs/internals/protocol.md, Request codes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol, cast

from flintmq.core.broker.conflicts import describe_conflicts
from flintmq.core.broker.consumers import ConsumerGroupInfo
from flintmq.core.broker.producers import ClientChannelInfo
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingError
from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import Request, Response, handles
from flintmq.core.record.host import decode_message_id
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.answers import StateProcessor, record_bytes, with_json
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, RequestCode, version_name
from flintmq.remoting.wire.command import RemotingCommand
from flintmq.remoting.wire.header_codec import encode_header
from flintmq.remoting.wire.headers_admin import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
    ResetOffsetRequestHeader,
)
from flintmq.remoting.wire.headers_message import ConsumerGroupRequestHeader
from flintmq.remoting.wire.refusal import system_error

ASK_CLIENT_TIMEOUT_S: Final = 10.0
"""Seconds that a client may take to answer a request that the broker forwards."""
ASK_STATUS_TIMEOUT_S: Final = 5.0
"""Seconds that each consumer may take to return its consumer offsets to the broker."""


class Askable(Protocol):
    """A client's connection, over which the broker can send the client a request and wait for the answer."""

    async def invoke(self, code: int, header: Mapping[str, str], body: bytes, timeout_s: float) -> RemotingCommand: ...


class AdminClientProcessor(StateProcessor):
    """Answers tools' requests about connected clients, and forwards requests that only a client can answer.

    Used only on the event loop's thread.
    """

    @handles(RequestCode.GET_CONSUMER_CONNECTION_LIST, header=ConsumerGroupRequestHeader, needs=needs.group())
    def consumer_connections(self, request: Request) -> Response:
        """Return the members and subscriptions of a consumer group. A remark describes members with conflicting settings."""
        group = request.header(ConsumerGroupRequestHeader).consumer_group
        info = self._api.clients.consumers.find(group)
        if info is not None and info.kept and not info.members:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{group}] not online{_returning(info)}",
                reason="group.returning",
            )
        if info is None or not info.members:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{group}] not online",
                reason="group.not_online",
            )
        connections = [_connection(member) for member in info.members.values()]
        body = bodies.ConsumerConnection(
            connections, info.consume_from_where, info.consume_type, info.message_model, info.subscriptions
        )
        return Response(remark=describe_conflicts(info.conflicts()) or None, body=body.encode())

    @handles(RequestCode.GET_PRODUCER_CONNECTION_LIST, header=GetProducerConnectionListRequestHeader, needs=ADMIN)
    def producer_connections(self, request: Request) -> Response:
        """Return the connections of a producer group's members."""
        group = request.header(GetProducerConnectionListRequestHeader).producer_group
        members = self._api.clients.producers.members(group)
        if not members:
            raise system_error(f"the producer group[{group}] not exist", reason="producer.not_online")
        return with_json({"connectionSet": [_connection(member) for member in members]})

    @handles(RequestCode.GET_ALL_PRODUCER_INFO, needs=ADMIN)
    def all_producers(self, _request: Request) -> Response:
        """Return the members of every producer group."""
        data = {
            group: [
                bodies.ProducerInfo(
                    member.client_id,
                    member.language,
                    member.last_update_ms,
                    f"/{member.channel.remote_address}",
                    member.version,
                )
                for member in members
            ]
            for group, members in self._api.clients.producers.groups()
        }
        return Response(body=bodies.ProducerTableInfo(data).encode())

    @handles(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header=ResetOffsetRequestHeader, needs=ADMIN, audited=True)
    def reset_offset(self, request: Request) -> Response:
        """Reset a consumer group's offsets to a given time at its connected consumers, and return the new offsets.

        The consumers get the new offsets in a request, and commit them later. This request does not change the broker's own
        table of consumer offsets.
        """
        header = request.header(ResetOffsetRequestHeader)
        offsets = self._offsets_at(header)
        info = self._api.clients.consumers.find(header.group)
        if info is None:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp_ms}",
                reason="group.not_online",
            )
        _check_all_connected(info)
        self._check_versions(info, V3_0_7_SNAPSHOT)
        body = bodies.ResetOffsetBody(offsets).encode()
        pushed = _for_cpp(offsets).encode() if request.language == "CPP" else body
        for member in info.members.values():
            member.channel.send_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, encode_header(header), pushed)
        return Response(body=body)

    def _offsets_at(self, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        """Return the consumer offset that a reset gives the group in each queue of a topic.

        Without ``is_force``, a reset never raises the group's current offset.
        """
        api = self._api
        config = api.topics.select(header.topic)
        if config is None:
            raise system_error(
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
                reason="topic.missing",
            )
        offsets: dict[MessageQueue, int] = {}
        for queue_id in range(config.write_queue_nums):
            current = api.offsets.query(header.topic, header.group, queue_id)
            if current < 0:
                raise system_error(
                    f"The consumer group <{header.group}> not exist",
                    reason="offset.missing",
                    measured=f"no offset for queue {queue_id} of topic {header.topic}",
                )
            if header.timestamp_ms == -1:
                wanted = api.log.reader.max_queue_offset(header.topic, queue_id)
            else:
                wanted = api.log.reader.queue_offset_by_time(header.topic, queue_id, header.timestamp_ms)
            wanted = max(0, wanted)
            queue = MessageQueue(api.settings.current.broker.name, queue_id, header.topic)
            offsets[queue] = wanted if header.is_force or wanted < current else current
        return offsets

    @staticmethod
    def _check_versions(info: ConsumerGroupInfo, least: int) -> None:
        for member in info.members.values():
            if member.version < least:
                raise system_error(
                    f"the client does not support this feature. version={version_name(member.version)}",
                    reason="client.too_old",
                    measured=member.client_id,
                )

    @handles(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header=GetConsumerStatusRequestHeader, needs=ADMIN)
    async def consumer_status(self, request: Request) -> Response:
        """Return the offsets that one consumer of a group, or each of its consumers, has in memory."""
        header = request.header(GetConsumerStatusRequestHeader)
        info = self._api.clients.consumers.find(header.group)
        if info is None or not info.members:
            raise system_error(
                f"No Any Consumer online in the consumer group: [{header.group}]{_returning(info)}",
                reason="group.not_online",
            )
        self._check_versions(info, V3_0_7_SNAPSHOT)
        members = [m for m in info.members.values() if header.client_addr in (None, "", m.client_id)]
        fields = {"group": header.group, "topic": header.topic}
        answers = await asyncio.gather(
            *(
                _askable(member).invoke(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields, b"", ASK_STATUS_TIMEOUT_S)
                for member in members
            ),
            return_exceptions=True,
        )
        found = bodies.GetConsumerStatusBody()
        for member, answer in zip(members, answers, strict=True):
            if isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS:
                table = bodies.GetConsumerStatusBody.decode(answer.body).message_queue_table
                found.consumer_table[member.client_id] = table
            elif isinstance(answer, BaseException) and not isinstance(answer, RemotingError):
                raise answer
        return Response(body=found.encode())

    @handles(RequestCode.GET_CONSUMER_RUNNING_INFO, header=GetConsumerRunningInfoRequestHeader, needs=ADMIN)
    async def running_info(self, request: Request) -> Response:
        """Forward a request for the running info to a consumer, and return the running info that the consumer reports."""
        header = request.header(GetConsumerRunningInfoRequestHeader)
        member = self._member(header.consumer_group, header.client_id)
        return await _pass_on(member, RequestCode.GET_CONSUMER_RUNNING_INFO, encode_header(header), request.body)

    @handles(
        RequestCode.CONSUME_MESSAGE_DIRECTLY, header=ConsumeMessageDirectlyRequestHeader, needs=ADMIN, audited=True
    )
    async def consume_directly(self, request: Request) -> Response:
        """Have a consumer consume one message, whatever the group's offsets are.

        Return the result that the consumer reports.
        """
        header = request.header(ConsumeMessageDirectlyRequestHeader)
        member = self._member(header.consumer_group, header.client_id or "")
        header.broker_name = self._api.settings.current.broker.name
        body = self._record(header.msg_id) if header.msg_id else request.body
        return await _pass_on(member, RequestCode.CONSUME_MESSAGE_DIRECTLY, encode_header(header), body)

    def _record(self, message_id: str) -> bytes:
        try:
            offset_bytes = decode_message_id(message_id).commit_log_offset_bytes
        except ValueError as error:
            raise system_error(str(error), reason="message_id.malformed") from error
        return record_bytes(self._api, offset_bytes)

    def _member(self, group: str, client_id: str) -> ClientChannelInfo:
        member = self._api.clients.consumers.find_member(group, client_id)
        if member is None:
            raise system_error(f"The Consumer <{group}> <{client_id}> not online", reason="client.not_online")
        if member.version < V3_1_8_SNAPSHOT:
            raise system_error(
                f"The Consumer <{client_id}> Version <{version_name(member.version)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
                reason="client.too_old",
                measured=member.client_id,
            )
        return member


def _returning(info: ConsumerGroupInfo | None) -> str:
    """Return the part of a refusal's text that states how many members have not registered again since the broker's start.

    The text is empty if every member of the group has registered again.
    """
    if info is None or not info.kept:
        return ""
    return f": {len(info.kept)} members from before the broker's start have not registered again, which takes 30 s"


def _check_all_connected(info: ConsumerGroupInfo) -> None:
    """Raise ``RefusedError`` if a member of the group has not registered again since the broker's start.

    Such a member would not get the new consumer offsets of a reset, and would later commit its old offsets.
    """
    if info.kept:
        raise system_error(
            f"the offsets of group {info.group_name} cannot be reset yet{_returning(info)}; try again later",
            reason="group.returning",
            measured=", ".join(list(info.kept)[:10]),
        )


def _askable(member: ClientChannelInfo) -> Askable:
    return cast("Askable", member.channel)


async def _pass_on(member: ClientChannelInfo, code: int, fields: Mapping[str, str], body: bytes) -> Response:
    """Forward a request to a client and return its answer.

    Raises:
        RefusedError: CONSUME_MSG_TIMEOUT; the client did not answer in time, or is not connected.
    """
    try:
        answer = await _askable(member).invoke(code, fields, body, ASK_CLIENT_TIMEOUT_S)
    except RemotingError as error:
        raise RefusedError(
            ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{member.client_id}> Timeout: {error}", reason="client.silent"
        ) from error
    return Response(answer.code, answer.remark, answer.ext_fields, answer.body)


def _connection(member: ClientChannelInfo) -> bodies.Connection:
    return bodies.Connection(member.channel.remote_address, member.client_id, member.language, member.version)


def _for_cpp(offsets: Mapping[MessageQueue, int]) -> bodies.ResetOffsetBodyForC:
    return bodies.ResetOffsetBodyForC(
        [
            bodies.MessageQueueOffset(queue.broker_name, queue_offset, queue.queue_id, queue.topic)
            for queue, queue_offset in offsets.items()
        ]
    )
