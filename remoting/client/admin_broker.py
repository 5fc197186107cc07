"""Administrative requests to one broker: about the broker, its topics, its groups and their clients."""

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
"""The highest request code. The binary header of a command has two signed bytes for the request code."""


class BrokerQuestions:
    """Administrative requests to the broker at ``address``; a base class of the admin client. Used only on the event loop's
    thread.

    Every method raises ``RemotingError`` if the broker does not answer, and ``RefusedError`` if it refuses the request.
    """

    client: ClientInstance

    # --- requests of any code ---

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
        """Send a request with any code, such as a plugin's, to a broker or name server, and return the answer.

        Args:
            address: the server's ``host:port``; :meth:`masters` returns the addresses of brokers.
            code: the request code.
            fields: the request's extFields; numbers and booleans are written in RocketMQ's format.
            body: the body of the request.
            accepted: response codes to return as answers, besides SUCCESS, instead of raising ``RefusedError``.
            timeout_ms: the limit for the connect and the answer together.

        Returns:
            The server's answer, with the attributes ``code``, ``remark``, ``ext_fields`` and ``body``.

        Raises:
            InvalidArgumentError: the code, a field or the body has a wrong type or value.
            RefusedError: the answer's code is neither SUCCESS nor in ``accepted``; the error has the code and the remark.
            RemotingError: no answer arrived.
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

    # --- requests about a broker as a whole ---

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Return a broker's counters and gauges (docs/internals/protocol.md, Runtime figures)."""
        answer = await self.client.ask(address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return (await decode_answer(answer.body, KVTable)).table

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return a broker's settings as text, keyed by their RocketMQ names."""
        answer = await self.client.ask(address, request(RequestCode.GET_BROKER_CONFIG))
        lines = (line.partition("=") for line in answer.body.decode("utf-8", "replace").splitlines() if "=" in line)
        return {key.strip(): value.strip() for key, _, value in lines if not key.startswith("#")}

    async def broker_report(self, address: str) -> BrokerReport:
        """Return a broker's report on its last start, the contents of its quarantine, and the source of each setting.

        Only FlintMQ brokers support this request; other brokers refuse it with REQUEST_CODE_NOT_SUPPORTED.
        """
        answer = await self.client.ask(address, request(RequestCode.GET_BROKER_REPORT))
        return await decode_answer(answer.body, BrokerReport)

    async def broker_stats(self, name: str, key: str, address: str) -> BrokerStatsData:
        """Return the values of one of a broker's counters for the last minute, hour and day.

        Args:
            name: the name of the counter, such as ``TOPIC_PUT_NUMS``.
            key: the key of the counter, such as a topic. If the key has never been counted, the broker refuses the request with
                SYSTEM_ERROR.
            address: the broker's address.
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
        """Return a topic's settings at a broker; None if the broker does not have the topic."""
        try:
            answer = await self.client.ask(
                address, request(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic=topic))
            )
        except RefusedError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            # A RocketMQ 4 broker has no request for the settings of a single topic, only for those of all topics.
            return (await self.topic_configs(address)).topic_config_table.get(topic)
        return await decode_answer(answer.body, TopicConfig)

    async def topic_stats_at(self, topic: str, address: str) -> dict[MessageQueue, TopicOffset]:
        """Return the minimum and maximum offsets of each of a topic's queues at a broker."""
        answer = await self.client.ask(
            address, request(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic=topic))
        )
        return (await decode_answer(answer.body, TopicStatsTable)).offset_table

    async def topic_groups(self, topic: str, address: str) -> list[str]:
        """Return the names of the groups that consume a topic, according to a broker."""
        header = TopicRequestHeader(topic=topic)
        answer = await self.client.ask(address, request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header))
        return (await decode_answer(answer.body, GroupList)).group_list

    # --- groups ---

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """Return every group of a broker with its settings."""
        answer = await self.client.ask(address, request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG), LONG_TIMEOUT_MS)
        return (await decode_answer(answer.body, SubscriptionGroupWrapper)).subscription_group_table

    async def group_config(self, group: str, address: str) -> SubscriptionGroupConfig | None:
        """Return a group's settings at a broker; None if the broker does not have the group."""
        try:
            answer = await self.client.ask(
                address, request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader(group=group))
            )
        except RefusedError as error:
            if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                return None
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            # A RocketMQ 4 broker has no request for the settings of a single group, only for those of all groups.
            return (await self.group_configs(address)).get(group)
        return await decode_answer(answer.body, SubscriptionGroupConfig)

    async def consume_stats_at(self, group: str, address: str, topic: str = "") -> ConsumeStats:
        """Return a group's offsets in the queues of a topic, or of all its topics (``topic=""``), at a broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        answer = await self.client.ask(address, request(RequestCode.GET_CONSUME_STATS, header), LONG_TIMEOUT_MS)
        return await decode_answer(answer.body, ConsumeStats)

    async def all_consume_stats(self, address: str) -> ConsumeStatsList:
        """Return the offsets of every group in every queue of a broker, by one request."""
        header = GetBrokerConsumeStatsRequestHeader(is_order=False)
        answer = await self.client.ask(address, request(RequestCode.GET_BROKER_CONSUME_STATS, header), LONG_TIMEOUT_MS)
        return await decode_answer(answer.body, ConsumeStatsList)

    async def consumer_connections(self, group: str, address: str) -> ConsumerConnection:
        """Return a group's members that are connected to a broker.

        The broker refuses with CONSUMER_NOT_ONLINE if the group has no connected member.
        """
        return (await self.connected_group(group, address))[0]

    async def contradictions(self, group: str, address: str) -> str:
        """Return a description of how the subscriptions of a group's members differ, with the members' client ids.

        The description of the conflict is empty if the subscriptions agree, or if the broker is not a FlintMQ broker. The
        broker refuses with CONSUMER_NOT_ONLINE if the group has no connected member.
        """
        return (await self.connected_group(group, address))[1]

    async def connected_group(self, group: str, address: str) -> tuple[ConsumerConnection, str]:
        """Return a group's connected members, and a description of how their subscriptions differ, by one request.

        See :meth:`consumer_connections` and :meth:`contradictions`.
        """
        header = ConsumerGroupRequestHeader(consumer_group=group)
        answer = await self.client.ask(address, request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header))
        return await decode_answer(answer.body, ConsumerConnection), answer.remark or ""

    async def consumer_running_info(
        self, group: str, client_id: str, address: str, timeout_ms: int = LONG_TIMEOUT_MS
    ) -> ConsumerRunningInfo:
        """Return a group member's report about itself: its queues, subscriptions and rates.

        The broker forwards the request to the member and returns the member's answer. The broker refuses the request with
        SYSTEM_ERROR if the member is not connected or too old to answer it, and with CONSUME_MSG_TIMEOUT if the member does not
        answer.

        Args:
            group, client_id: identify the member.
            address: the address of a broker to which the member is connected.
            timeout_ms: the limit for the broker and the member together.
        """
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
        answer = await self.client.ask(address, request(RequestCode.GET_CONSUMER_RUNNING_INFO, header), timeout_ms)
        return await decode_answer(answer.body, ConsumerRunningInfo)
