"""Administration of one broker: what it alone is asked about its topics, its groups, their clients and itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from flintmq.core.broker.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from flintmq.core.broker.topic_config import MessageQueue, TopicConfig, TopicConfigSerializeWrapper
from flintmq.core.errors import InvalidArgumentError, RefusedError
from flintmq.remoting.client.instance import REQUEST_TIMEOUT_MS, ClientInstance
from flintmq.remoting.client.message import brief
from flintmq.remoting.wire.bodies import (
    BrokerStatsData,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    KVTable,
    ProducerTableInfo,
    TopicOffset,
    TopicStatsTable,
)
from flintmq.remoting.wire.broker_report import BrokerReport
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.headers_admin import (
    GetBrokerConsumeStatsRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    GroupRequestHeader,
    TopicRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from flintmq.remoting.wire.headers_message import ConsumerGroupRequestHeader
from flintmq.remoting.wire.json_body import decode_answer

LONG_TIMEOUT_MS: Final = 10_000
CODE_MAX: Final = 32_767
"""The binary form of a command has two bytes for it."""


class BrokerQuestions:
    """Questions to the broker at ``address``, put by way of a :class:`ClientInstance`. Loop thread only.

    Every method raises ``RemotingError`` when the broker does not answer and ``RefusedError`` when it refuses.
    """

    client: ClientInstance

    # --- any request ---

    async def invoke(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str | int] | None = None,
        body: bytes = b"",
        *,
        accepted: Sequence[int] = (),
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> RemotingCommand:
        """Send a request of any code, such as one of a plugin's own, to a broker or name server, and return its answer.

        Args:
            address: the server's ``host:port``; :meth:`masters` has those of brokers.
            code: of the request.
            fields: the request's extFields; numbers and truth values are written as RocketMQ does.
            body: of the request.
            accepted: codes of answers that are returned, too, and no errors.
            timeout_ms: for everything.

        Returns:
            The answer: ``code``, ``remark``, ``ext_fields`` and ``body``.

        Raises:
            InvalidArgumentError: what is asked cannot be sent as it is.
            RefusedError: the answer's code is neither SUCCESS nor accepted; it has the code and the remark.
            RemotingError: no answer came.
        """
        if not isinstance(code, int) or not 0 <= code <= CODE_MAX:
            raise InvalidArgumentError(f"code is {code!r}, and must be a number from 0 to {CODE_MAX}")
        if not isinstance(body, bytes):
            raise InvalidArgumentError(f"body is {brief(body)}, and must be bytes")
        written: dict[str, str] = {}
        for name, value in (fields or {}).items():
            if not isinstance(name, str) or not isinstance(value, str | int):
                raise InvalidArgumentError(f"field {name!r} is {brief(value)}, and must be a text or a number")
            written[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return await self.client.ask(address, request(code, written, body), timeout_ms, *accepted)

    # --- the broker ---

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Return a broker's counters and gauges (docs/internals/protocol.md, Runtime figures)."""
        answer = await self.client.ask(address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return (await decode_answer(answer.body, KVTable)).table

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return a broker's settings."""
        answer = await self.client.ask(address, request(RequestCode.GET_BROKER_CONFIG))
        lines = (line.partition("=") for line in answer.body.decode("utf-8", "replace").splitlines() if "=" in line)
        return {key.strip(): value.strip() for key, _, value in lines if not key.startswith("#")}

    async def broker_report(self, address: str) -> BrokerReport:
        """Return how a broker's last start went, what its quarantine holds, and where each of its settings comes from.

        Refused with REQUEST_CODE_NOT_SUPPORTED where the broker is not FlintMQ's.
        """
        answer = await self.client.ask(address, request(RequestCode.GET_BROKER_REPORT))
        return await decode_answer(answer.body, BrokerReport)

    async def broker_stats(self, name: str, key: str, address: str) -> BrokerStatsData:
        """Return what a broker counted in the last minute, hour and day.

        Args:
            name: a counter's, such as ``TOPIC_PUT_NUMS``.
            key: what of, such as a topic. Refused with SYSTEM_ERROR where nothing was ever counted.
            address: the broker's.
        """
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        answer = await self.client.ask(address, request(RequestCode.VIEW_BROKER_STATS_DATA, header))
        return await decode_answer(answer.body, BrokerStatsData)

    async def producers(self, address: str) -> ProducerTableInfo:
        """Return the members of every producer group that a broker knows."""
        answer = await self.client.ask(address, request(RequestCode.GET_ALL_PRODUCER_INFO))
        return await decode_answer(answer.body, ProducerTableInfo)

    # --- topics ---

    async def topic_configs(self, address: str) -> TopicConfigSerializeWrapper:
        """Return every topic of a broker with its settings."""
        answer = await self.client.ask(address, request(RequestCode.GET_ALL_TOPIC_CONFIG), LONG_TIMEOUT_MS)
        return await decode_answer(answer.body, TopicConfigSerializeWrapper)

    async def topic_config(self, topic: str, address: str) -> TopicConfig | None:
        """Return the settings that a topic has at a broker; None where the broker has no such topic."""
        try:
            answer = await self.client.ask(
                address, request(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic=topic))
            )
        except RefusedError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return (await self.topic_configs(address)).topic_config_table.get(topic)  # RocketMQ 4 tells all or none
        return await decode_answer(answer.body, TopicConfig)

    async def topic_stats_at(self, topic: str, address: str) -> dict[MessageQueue, TopicOffset]:
        """Return first and last offset of each queue that a topic has at a broker."""
        answer = await self.client.ask(
            address, request(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic=topic))
        )
        return (await decode_answer(answer.body, TopicStatsTable)).offset_table

    async def topic_groups(self, topic: str, address: str) -> list[str]:
        """Return the groups that consume a topic, as far as a broker knows."""
        header = TopicRequestHeader(topic=topic)
        answer = await self.client.ask(address, request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header))
        return (await decode_answer(answer.body, GroupList)).group_list

    # --- groups ---

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """Return every group of a broker with its settings."""
        answer = await self.client.ask(address, request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG), LONG_TIMEOUT_MS)
        return (await decode_answer(answer.body, SubscriptionGroupWrapper)).subscription_group_table

    async def group_config(self, group: str, address: str) -> SubscriptionGroupConfig | None:
        """Return the settings that a group has at a broker; None where the broker has no such group."""
        try:
            answer = await self.client.ask(
                address, request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader(group=group))
            )
        except RefusedError as error:
            if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                return None
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return (await self.group_configs(address)).get(group)  # RocketMQ 4 tells all or none
        return await decode_answer(answer.body, SubscriptionGroupConfig)

    async def consume_stats_at(self, group: str, address: str, topic: str = "") -> ConsumeStats:
        """Return how far a group has come in the queues that a topic, or each of its topics, has at a broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        answer = await self.client.ask(address, request(RequestCode.GET_CONSUME_STATS, header), LONG_TIMEOUT_MS)
        return await decode_answer(answer.body, ConsumeStats)

    async def all_consume_stats(self, address: str) -> ConsumeStatsList:
        """Return how far every group has come in every queue that a broker has, by one request."""
        header = GetBrokerConsumeStatsRequestHeader(is_order=False)
        answer = await self.client.ask(address, request(RequestCode.GET_BROKER_CONSUME_STATS, header), LONG_TIMEOUT_MS)
        return await decode_answer(answer.body, ConsumeStatsList)

    async def consumer_connections(self, group: str, address: str) -> ConsumerConnection:
        """Return the group's members that a broker knows. Refused with CONSUMER_NOT_ONLINE when there are none."""
        return (await self.connected_group(group, address))[0]

    async def contradictions(self, group: str, address: str) -> str:
        """Return how the group's members contradict each other in what they subscribe to, in words with their ids;
        empty when they do not, and where the broker is not FlintMQ's. Refused with CONSUMER_NOT_ONLINE when there are
        none."""
        return (await self.connected_group(group, address))[1]

    async def connected_group(self, group: str, address: str) -> tuple[ConsumerConnection, str]:
        """Return what :meth:`consumer_connections` and :meth:`contradictions` return, by one request."""
        header = ConsumerGroupRequestHeader(consumer_group=group)
        answer = await self.client.ask(address, request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header))
        return await decode_answer(answer.body, ConsumerConnection), answer.remark or ""

    async def consumer_running_info(
        self, group: str, client_id: str, address: str, timeout_ms: int = LONG_TIMEOUT_MS
    ) -> ConsumerRunningInfo:
        """Return what a member of a group reports about itself: its queues, subscriptions and rates.

        The broker asks the member, which may take its time. Refused with CONSUME_MSG_TIMEOUT when the member does not answer,
        and where it is too old for the question or gone.

        Args:
            group, client_id: name the member.
            address: of a broker that the member is connected with.
            timeout_ms: how long broker and member together may take.
        """
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
        answer = await self.client.ask(address, request(RequestCode.GET_CONSUMER_RUNNING_INFO, header), timeout_ms)
        return await decode_answer(answer.body, ConsumerRunningInfo)
