"""The administration client: it manages topics, groups, routes, offsets and messages of name servers and brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Unpack

from msgspec.structs import replace

from flintmq.config.rocketmq.system_topics import AUTO_CREATE_TOPIC
from flintmq.core.broker.address import host_port, is_address
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue, TopicConfig, TopicFilterType
from flintmq.core.broker.topic_name import dlq_topic, retry_topic
from flintmq.core.errors import InvalidArgumentError, RefusedError, RemotingError
from flintmq.core.io.threads import background
from flintmq.core.limits import TOPIC_MAX_BYTES
from flintmq.core.record.host import decode_message_id
from flintmq.core.record.properties import UNIQ_KEY
from flintmq.core.route.route_data import ClusterInfo, TopicRouteData
from flintmq.remoting.client.admin_broker import LONG_TIMEOUT_MS, BrokerQuestions
from flintmq.remoting.client.broker_api import QueueOffsets
from flintmq.remoting.client.instance import ClientInstance, InstanceOptions, InstanceUser, checked, log
from flintmq.remoting.client.message import UNKNOWN_PLACE, MessageExt, unpacked_messages
from flintmq.remoting.client.route import MASTER_ID, NEW_TOPIC_QUEUES, NameServers
from flintmq.remoting.wire.bodies import (
    ConsumeStats,
    ResetOffsetBody,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.header_codec import CommandHeader
from flintmq.remoting.wire.headers_admin import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    ResetOffsetRequestHeader,
    TopicRequestHeader,
)
from flintmq.remoting.wire.headers_message import (
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from flintmq.remoting.wire.headers_route import DeleteTopicFromNamesrvRequestHeader
from flintmq.remoting.wire.json_body import decode_answer, dumps

ALL_TIME_MS: Final = 2**63 - 1


class AdminClient(BrokerQuestions, QueueOffsets, InstanceUser):
    """Queries and administers name servers and brokers. Loop thread only; use it in an ``async with`` statement.

    Every method raises ``RemotingError`` if no server answers, and ``RefusedError`` if a server refuses the request. A method
    with the parameters ``address`` and ``cluster`` acts on the broker at ``address`` if ``address`` is given, otherwise on the
    masters of ``cluster`` if ``cluster`` is given, otherwise on all masters.

    Args:
        name_servers, client, instance_options: passed to :class:`~flintmq.remoting.client.instance.InstanceUser`; the option
            ``namespace`` is not allowed.

    Raises:
        ValueError: the client has a namespace.
    """

    def __init__(
        self,
        name_servers: NameServers = (),
        *,
        client: ClientInstance | None = None,
        **instance_options: Unpack[InstanceOptions],
    ) -> None:
        super().__init__(name_servers, client=client, **instance_options)
        if self.client.namespace.name:
            raise InvalidArgumentError(
                "an AdminClient knows topics and groups by their whole names, such as NAMESPACE%TOPIC: leave out namespace"
            )

    # --- requests to name servers ---

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return a topic's current route from a name server: its queues and brokers."""
        return await self.client.routes.fetch(topic)

    async def cluster_info(self) -> ClusterInfo:
        """Return the brokers and clusters that a name server knows."""
        answer = checked(await self.client.routes.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO)))
        return await decode_answer(answer.body, ClusterInfo)

    async def topic_list(self) -> list[str]:
        """Return the names of all topics that a name server knows."""
        answer = checked(await self.client.routes.ask(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)))
        return (await decode_answer(answer.body, TopicList)).topic_list

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return the addresses of a cluster's masters, or of all masters, keyed by broker name.

        A master whose registered address is not HOST:PORT is left out with a warning, because such a master cannot be reached.
        """
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"no cluster {cluster}", reason="cluster.unknown")
        names = info.broker_addr_table if cluster is None else info.cluster_addr_table[cluster]
        found = {
            name: info.broker_addr_table[name].broker_addrs[MASTER_ID]
            for name in sorted(names)
            if name in info.broker_addr_table and MASTER_ID in info.broker_addr_table[name].broker_addrs
        }
        if not self.client.remoting.is_in_process:
            for name in [name for name, address in found.items() if not is_address(address)]:
                log.warning(
                    "client.broker_left_out",
                    "broker %(broker)s is left out: it is registered at '%(address)s', which is not HOST:PORT",
                    broker=name,
                    address=found.pop(name),
                )
        return found

    async def master(self, broker: str, cluster: str | None = None) -> str:
        """Return the address of the master that has a broker name, in one cluster or, without ``cluster``, in any cluster.

        Raises:
            RefusedError: no master has the broker name; the error's text lists the names of the existing masters.
        """
        masters = await self.masters(cluster)
        if broker not in masters:
            there = f"there are {', '.join(masters)}" if masters else "there is none"
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"no master is named {broker}{f' in cluster {cluster}' if cluster is not None else ''}: {there}",
                reason="broker.unknown",
            )
        return masters[broker]

    # --- topics ---

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        topic_sys_flag: int | None = None,
        topic_filter_type: TopicFilterType | None = None,
        address: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create a topic, or change an existing one. A value that is None keeps the existing topic's value.

        Args:
            topic: the name of the topic.
            queues: the number of readable and writable queues. A new topic has 4 by default, as if a send had created it.
            write_queues: the number of writable queues, if it is less than ``queues``. To remove queues of a topic without
                losing messages, first reduce ``write_queues``. Reduce ``queues`` after the messages in the removed queues have
                been consumed.
            perm: the sum of the topic's permission bits (docs/internals/protocol.md, Flag words): 4 (readable), 2 (writable)
                and 1 (a template for topics that sends create). A new topic is readable and writable by default.
            order, topic_sys_flag, topic_filter_type: further settings of the topic.
            address, cluster: choose the brokers to change, as described at :class:`AdminClient`.
        """
        given = {
            "read_queue_nums": queues,
            "write_queue_nums": queues if write_queues is None else write_queues,
            "perm": perm,
            "order": order,
            "topic_sys_flag": topic_sys_flag,
            "topic_filter_type": topic_filter_type,
        }
        changes = {name: value for name, value in given.items() if value is not None}

        async def create(target: str) -> None:
            had = await self.topic_config(topic, target) if len(changes) < len(given) else None
            config = replace(had or TopicConfig.with_queues(topic, NEW_TOPIC_QUEUES), **changes)
            header = CreateTopicRequestHeader(
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_filter_type=config.topic_filter_type,
                topic_sys_flag=config.topic_sys_flag,
                order=config.order,
            )
            await self.client.ask(target, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), LONG_TIMEOUT_MS)

        await _at_all(await self._targets(address, cluster), create)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic and its queues at the brokers, then its route at every name server."""
        targets = await self._targets(None, cluster)
        await _ask_all(self.client, targets, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic=topic))
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        await _ask_all(self.client, self.client.routes.name_servers, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the minimum and maximum offsets of each queue of a topic, from all its brokers."""
        stats: dict[MessageQueue, TopicOffset] = {}
        header = TopicRequestHeader(topic=topic)
        for answer in await self._ask_topic(topic, RequestCode.GET_TOPIC_STATS_INFO, header):
            stats.update((await decode_answer(answer.body, TopicStatsTable)).offset_table)
        return stats

    # --- groups ---

    async def create_group(
        self, config: SubscriptionGroupConfig, *, address: str | None = None, cluster: str | None = None
    ) -> None:
        """Create a subscription group, or replace all settings of an existing one.

        To change only some settings, start from the result of :meth:`group_config`.
        """
        targets = await self._targets(address, cluster)
        await _ask_all(self.client, targets, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(config))

    async def delete_group(
        self, group: str, *, remove_offset: bool = False, address: str | None = None, cluster: str | None = None
    ) -> None:
        """Delete a subscription group with its retry and dead-letter topics, and with ``remove_offset`` also its offsets.

        If ``address`` is given, the group is deleted at one broker, and its retry and dead-letter topics are kept, because
        other brokers can still have the group. RocketMQ's tool mqadmin does the same.
        """
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=remove_offset)
        await _ask_all(self.client, await self._targets(address, cluster), RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        if address is None:
            for topic in (retry_topic(group), dlq_topic(group)):
                # Brokers refuse to delete an unknown topic with a too long name, so a too long name is looked up first.
                if len(topic) <= TOPIC_MAX_BYTES or topic in await self.topic_list():
                    await self.delete_topic(topic, cluster=cluster)

    async def consume_stats(self, group: str, topic: str) -> ConsumeStats:
        """Return a group's offsets in each queue of a topic, from all its brokers, and the group's consumption rate."""
        merged = ConsumeStats()
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        for answer in await self._ask_topic(topic, RequestCode.GET_CONSUME_STATS, header):
            stats = await decode_answer(answer.body, ConsumeStats)
            merged.consume_tps += stats.consume_tps
            merged.offset_table.update(stats.offset_table)
        return merged

    async def reset_offset(
        self, topic: str, group: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Reset the offsets of a group's online members to a time, and return the new offset of each queue.

        Args:
            topic, group: identify the offsets.
            timestamp_ms: milliseconds since 1970; -1: the end of each queue.
            force: whether to reset also queues whose offset would move forward.
        """
        header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp_ms=timestamp_ms, is_force=force)
        offsets: dict[MessageQueue, int] = {}
        for answer in await self._ask_topic(topic, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header):
            offsets.update((await decode_answer(answer.body, ResetOffsetBody)).offset_table)
        return offsets

    # --- messages ---

    async def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 32,
        begin_timestamp_ms: int = 0,
        end_timestamp_ms: int = ALL_TIME_MS,
        unique: bool = False,
        keep: Callable[[MessageExt], MessageExt] | None = None,
    ) -> list[MessageExt]:
        """Return the messages of a topic that have a key and were stored within a time range, oldest first.

        Args:
            topic, key: the topic, and the key to look for.
            max_num: the maximum number of messages from each broker.
            begin_timestamp_ms, end_timestamp_ms: the range of store times, in ms since 1970.
            unique: whether ``key`` is a UNIQ_KEY.
            keep: a function called on a thread with each message, before the next broker is asked; the function's result
                replaces the message.
        """
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=max_num,
            begin_timestamp_ms=begin_timestamp_ms,
            end_timestamp_ms=end_timestamp_ms,
            unique_key_query=unique,
        )
        found: dict[str, MessageExt] = {}
        kept: dict[str, MessageExt] = {}
        for answer in await self._ask_topic(topic, RequestCode.QUERY_MESSAGE, header, ResponseCode.QUERY_NOT_FOUND):
            for message in await unpacked_messages(answer.body, packed=self.client.bodies_stay_packed):
                # A message with UNKNOWN_PLACE as queue offset is a damaged record that the broker found by its key.
                if message.queue_offset == UNKNOWN_PLACE:
                    found[f"damaged {len(kept)} {len(found)}"] = message
                elif message.topic == topic and _has_key(message, key, unique=unique):  # brokers compare hashes
                    found[message.offset_msg_id] = message
            if keep is not None:
                kept |= zip(found, await background(list, map(keep, found.values())), strict=True)
                found.clear()
        return sorted((kept | found).values(), key=lambda message: message.store_timestamp_ms)

    async def view_message(self, offset_msg_id: str) -> MessageExt:
        """Return the message with a broker's message id (``offset_msg_id``), from the broker whose address the id contains.

        Raises ``ValueError`` if ``offset_msg_id`` is not a broker's message id.
        """
        message_id = decode_message_id(offset_msg_id)
        header = ViewMessageRequestHeader(commit_log_offset_bytes=message_id.commit_log_offset_bytes)
        address = host_port(message_id.ip, message_id.port)
        answer = await self.client.ask(address, request(RequestCode.VIEW_MESSAGE_BY_ID, header))
        messages = await unpacked_messages(answer.body, packed=self.client.bodies_stay_packed)
        if len(messages) != 1:
            raise RemotingError(
                f"{address} has answered with {len(messages)} messages for the id {offset_msg_id}, not with one"
            )
        return messages[0]

    # --- internals ---

    async def _targets(self, address: str | None, cluster: str | None) -> list[str]:
        if address is not None:
            return [address]
        addresses = list((await self.masters(cluster)).values())
        if not addresses:
            raise RemotingError("no master is registered with the name server")
        return addresses

    async def _ask_topic(self, topic: str, code: int, header: CommandHeader, *accepted: int) -> list[RemotingCommand]:
        """Send a request to each broker that has a topic, and return the answers.

        The request goes to the broker's master, or to a slave if the topic's route contains no master of the broker.
        """
        route = await self.client.routes.route(topic, max_age_s=0)
        return [
            await self.client.ask(route.address(name), request(code, header), LONG_TIMEOUT_MS, *accepted)
            for name in route.broker_addrs
        ]


async def _ask_all(
    client: ClientInstance, addresses: Iterable[str], code: int, header: CommandHeader | None = None, body: bytes = b""
) -> None:
    async def ask(address: str) -> None:
        await client.ask(address, request(code, header, body), LONG_TIMEOUT_MS)

    await _at_all(addresses, ask)


async def _at_all(addresses: Iterable[str], work: Callable[[str], Awaitable[None]]) -> None:
    """Call ``work`` with each server's address, even after calls for earlier addresses have failed.

    The first error is raised at the end. If the first error is a ``RemotingError`` and the call for another address succeeded,
    the error's text has the number of failed servers.
    """
    failures: list[RefusedError | RemotingError] = []
    count = 0
    for address in addresses:
        count += 1
        try:
            await work(address)
        except (RefusedError, RemotingError) as error:
            failures.append(error)
    if failures and len(failures) < count and isinstance(failures[0], RemotingError):
        raise RemotingError(
            f"{len(failures)} of {count} servers failed, the others succeeded: {failures[0]}"
        ) from failures[0]
    if failures:
        raise failures[0]


def _has_key(message: MessageExt, key: str, *, unique: bool) -> bool:
    return message.properties.get(UNIQ_KEY) == key if unique else key in message.keys
