"""Requests that a broker sends to a consumer: changed members, reset offsets, status, running info, and direct consumption."""

from __future__ import annotations

from flintmq.remoting.client.callbacks import is_of_task, told
from flintmq.remoting.client.consume_from import begin_of
from flintmq.remoting.client.consume_service import ConsumeService
from flintmq.remoting.client.membership import Membership
from flintmq.remoting.client.message import unpacked_messages
from flintmq.remoting.client.rebalancer import Rebalancer
from flintmq.remoting.client.transport import RequestHandler
from flintmq.remoting.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from flintmq.remoting.wire.codes import MQ_VERSION, RequestCode, ResponseCode, version_name
from flintmq.remoting.wire.command import RemotingCommand, response
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_admin import ConsumeMessageDirectlyRequestHeader, GetConsumerStatusRequestHeader


class ConsumerRequests:
    """Handles the requests that brokers send to one member of a group. Used only on the event loop's thread."""

    def __init__(
        self, member: Membership, rebalancer: Rebalancer, consumption: ConsumeService, started_at_ms: int
    ) -> None:
        self._member = member
        self._rebalancer = rebalancer
        self._consumption = consumption
        self._started_at_ms = started_at_ms

    def register(self) -> None:
        """Register handlers for brokers' requests to this group member with the member's client instance."""
        handlers: dict[int, RequestHandler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }
        for code, handler in handlers.items():
            self._member.client.register_group_processor(code, self._member.group, handler)

    def _members_changed(self, command: RemotingCommand, address: str) -> None:
        self._rebalancer.soon()

    async def _reset_offset(self, command: RemotingCommand, address: str) -> None:
        table = ResetOffsetBody.decode(command.body).offset_table
        unwrap = self._member.client.namespace.unwrap_queue
        await self._rebalancer.reset_offsets({unwrap(queue): queue_offset for queue, queue_offset in table.items()})

    def _status(self, command: RemotingCommand, address: str) -> RemotingCommand:
        header = decode_header(GetConsumerStatusRequestHeader, command.ext_fields)
        namespace = self._member.client.namespace
        offsets = {
            namespace.wrap_queue(queue): held.commit_offset
            for queue, held in self._rebalancer.process_queues.items()
            if queue.topic == namespace.unwrap(header.topic)
        }
        return response(command, ResponseCode.SUCCESS, body=GetConsumerStatusBody({}, offsets).encode())

    def _running_info(self, command: RemotingCommand, address: str) -> RemotingCommand:
        member = self._member
        namespace = member.client.namespace
        info = ConsumerRunningInfo(
            mq_table={
                namespace.wrap_queue(queue): held.info(locked=member.settings.orderly)
                for queue, held in self._rebalancer.process_queues.items()
            },
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(member.client.routes.name_servers),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "messageModel": member.settings.message_model,
                "consumeFromWhere": begin_of(member.settings.consume_from)[0],
                "PROP_CONSUMEORDERLY": str(member.settings.orderly).lower(),
                "PROP_THREADPOOL_CORE_SIZE": str(member.settings.concurrency),
                "PROP_CLIENT_VERSION": version_name(MQ_VERSION),
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_at_ms),
            },
            status_table={namespace.wrap(topic): self._statistics(topic) for topic in member.subscriptions},
            subscription_set=list(map(namespace.wrap_subscription, member.subscriptions.values())),
        )
        return response(command, ResponseCode.SUCCESS, body=info.encode())

    def _statistics(self, topic: str) -> ConsumeStatus:
        counts = self._member.counts[topic]
        seconds = max((self._member.client.clock.now_ms() - self._started_at_ms) / 1000, 0.001)
        return ConsumeStatus(
            consume_failed_msgs=counts.failed,
            consume_failed_tps=round(counts.failed / seconds, 3),
            consume_ok_tps=round(counts.consumed / seconds, 3),
            consume_rt_ms=round(counts.consume_time_s * 1000 / max(counts.consumed + counts.failed, 1), 3),
            pull_rt_ms=round(counts.pull_time_s * 1000 / max(counts.pulls, 1), 3),
            pull_tps=round(counts.pulled / seconds, 3),
        )

    async def _consume_directly(self, command: RemotingCommand, address: str) -> RemotingCommand:
        header = decode_header(ConsumeMessageDirectlyRequestHeader, command.ext_fields)
        member = self._member
        begin_s = member.client.clock.monotonic_s()
        result = ConsumeMessageDirectlyResult(order=member.settings.orderly, consume_result="CR_SUCCESS")
        (stored,) = await unpacked_messages(command.body, header.broker_name or "")
        message = member.client.namespace.unwrap_message(stored)
        try:
            outcome = await self._consumption.consume(message)
        except BaseException as failure:
            # The answer to the broker reports an exception of any type from the listener.
            if is_of_task(failure):
                raise
            result.consume_result = "CR_THROW_EXCEPTION"
            result.remark = told(failure)
        else:
            if outcome.value != "success":
                result.consume_result = "CR_LATER"
        result.spent_time_ms = int((member.client.clock.monotonic_s() - begin_s) * 1000)
        return response(command, ResponseCode.SUCCESS, body=result.encode())
