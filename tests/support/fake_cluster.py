"""A name server and brokers on the network of a seeded loop, which may be slow, refuse, be cut off, or have wrong routes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, Final

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.record.batch import decode_batch
from flintmq.core.record.properties import CORRELATION_ID, REPLY_TO_CLIENT, string_to_properties
from flintmq.core.route.route_data import BrokerData, ClusterInfo, QueueData, TopicRouteData
from flintmq.remoting.client.message import decode_messages
from flintmq.remoting.wire.bodies import HeartbeatData, ResetOffsetBody, TopicList
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import RemotingCommand, encode_command, request, response
from flintmq.remoting.wire.headers_message import ReplyMessageRequestHeader
from flintmq.remoting.wire.json_body import decode_body, dumps
from flintmq.testing.choices import Choices
from flintmq.testing.seeded_loop import SeededClock, SeededLoop
from flintmq.testing.simulated_network import SimulatedNetwork
from flintmq.tests.support.fake_broker import FakeBroker, FakePeer

LOCK_S: Final = 60.0
RETRY_S: Final = 10.0
"""When a message that was sent back comes again."""
CHECK_S: Final = 6.0
"""When a broker asks what became of a half message, and then as often."""
PREPARED, COMMIT = 4, 8
ILLEGAL: Final = b"!"
"""Brokers refuse bodies that begin so, and batches with such a body."""


class FakeCluster:
    """A loop, its network, one name server and some brokers.

    Args:
        choices: decides everything.
        brokers: how many; each is a master with ``queue_nums`` queues of every topic.
        topics: the topics that there are.
        queue_nums: queues of a topic at each broker.
    """

    def __init__(
        self, choices: Choices, *, brokers: int = 2, topics: tuple[str, ...] = ("T",), queue_nums: int = 2
    ) -> None:
        self.choices = choices
        self.loop = SeededLoop(choices)
        self.clock = SeededClock(self.loop)
        self.network = SimulatedNetwork(self.loop)
        self.topics = set(topics)
        self.queue_nums = queue_nums
        self.name_server = FakePeer()
        self.brokers = {f"broker-{number}": ClusterBroker(self, f"broker-{number}") for number in range(brokers)}
        self.gone: set[str] = set()
        """Brokers that routes do not name."""
        self.refuse_percent = 0
        """How many of 100 requests brokers refuse (14), or do not answer."""

    async def start(self) -> None:
        """Listen at every address."""
        self.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route
        self.name_server.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = self._cluster
        self.name_server.answers[RequestCode.DELETE_TOPIC_IN_NAMESRV] = self._forget_topic
        self.name_server.answers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = self._topic_list
        await self.name_server.__aenter__()
        for broker in self.brokers.values():
            await broker.peer.__aenter__()

    @property
    def address(self) -> str:
        """Return the address of the name server."""
        return self.name_server.address

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Return the addresses of all servers, as the network knows them."""
        return [("127.0.0.1", peer.port) for peer in (self.name_server, *(b.peer for b in self.brokers.values()))]

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return every queue of a topic."""
        return [MessageQueue(name, queue_id, topic) for name in self.brokers for queue_id in range(self.queue_nums)]

    def put(self, queue: MessageQueue, body: bytes, properties: str = "") -> None:
        """Store a message as if somebody had sent it."""
        self.brokers[queue.broker_name].put(queue.topic, queue.queue_id, body, properties)

    def length(self, queue: MessageQueue) -> int:
        """Return how many messages a queue has."""
        return len(self.brokers[queue.broker_name].records[queue.topic, queue.queue_id])

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's offset."""
        return self.brokers[queue.broker_name].offsets.get((group, queue.topic, queue.queue_id))

    async def move(self, broker_name: str) -> None:
        """End a broker's connections, and have it listen at another address. What it has stored, it keeps."""
        peer = self.brokers[broker_name].peer
        await peer.__aexit__()
        await peer.__aenter__()

    def heal(self) -> None:
        """End every fault of servers and network."""
        self.network.silent.clear()
        self.network.refusing.clear()
        self.gone.clear()
        self.refuse_percent = 0

    def _brokers(self) -> list[BrokerData]:
        return [
            BrokerData(broker_addrs={0: broker.peer.address}, broker_name=name, cluster="C")
            for name, broker in self.brokers.items()
            if name not in self.gone
        ]

    def _route(self, asked: RemotingCommand) -> RemotingCommand:
        topic = (asked.ext_fields or {})["topic"]
        if topic not in self.topics and not topic.startswith(RETRY_PREFIX):
            return response(asked, 17, f"No topic route info in name server for the topic: {topic}")
        nums = 1 if topic.startswith(RETRY_PREFIX) else self.queue_nums
        brokers = self._brokers()
        queues = [
            QueueData(
                broker_name=one.broker_name, perm=6, read_queue_nums=nums, topic_sys_flag=0, write_queue_nums=nums
            )
            for one in brokers
        ]
        return response(asked, 0, body=dumps(TopicRouteData(broker_datas=brokers, queue_datas=queues), "standard"))

    def _forget_topic(self, asked: RemotingCommand) -> RemotingCommand:
        self.topics.discard((asked.ext_fields or {})["topic"])
        return response(asked, 0)

    def _topic_list(self, asked: RemotingCommand) -> RemotingCommand:
        return response(asked, 0, body=TopicList(topic_list=sorted(self.topics)).encode())

    def _cluster(self, asked: RemotingCommand) -> RemotingCommand:
        brokers = {one.broker_name: one for one in self._brokers()}
        return response(
            asked, 0, body=dumps(ClusterInfo(broker_addr_table=brokers, cluster_addr_table={"C": [*brokers]}))
        )


def pushed_reply(correlation_id: str, body: bytes) -> RemotingCommand:
    """Return what a broker sends to who waits for a reply."""
    header = ReplyMessageRequestHeader(
        producer_group="repliers",
        topic="REPLY",
        default_topic="",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp_ms=1,
        flag=0,
        properties=f"{CORRELATION_ID}\x01{correlation_id}\x02",
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        store_timestamp_ms=1,
    )
    return request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body)


class _Peer(FakePeer):
    """Knows on which connection a request came, so that a broker can answer later and forget members."""

    def __init__(self, broker: ClusterBroker) -> None:
        super().__init__()
        self.broker = broker
        self.asking: asyncio.Transport | None = None

    def received(self, transport: asyncio.Transport, command: RemotingCommand) -> None:
        self.asking = transport
        self.broker.forget_lost_members()
        cluster = self.broker.servers
        if not command.is_response and cluster.choices.happens(cluster.refuse_percent):
            if cluster.choices.below(2) and not command.is_oneway:
                transport.write(encode_command(response(command, 14, "the broker refuses")))
            return
        super().received(transport, command)


class ClusterBroker(FakeBroker):
    """One broker of a :class:`FakeCluster`: members, locks, held pulls, send-backs and transactions besides."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.servers = cluster
        self.name = name
        self.peer: _Peer
        super().__init__(_Peer(self))
        self.connections: dict[str, asyncio.Transport] = {}
        """Client id → the connection of its last heartbeat."""
        self.groups: defaultdict[str, set[str]] = defaultdict(set)
        """Producer group → client ids."""
        self.lock_until_s: dict[MessageQueue, float] = {}
        self.half: dict[int, tuple[Any, bytes]] = {}
        """Number → the half message that waits for its end."""
        self.half_messages = 0
        """How many half messages were stored so far."""
        self.asking_of: dict[int, asyncio.Transport | None] = {}
        """The connection of each held pull."""
        self.created: dict[str, int] = {}
        """Topics that an admin client has created → their queues."""
        self.created_groups: set[str] = set()
        """Likewise."""
        self.replies: list[tuple[str, bytes]] = []
        """The correlation ids and the bodies of replies to requests."""
        self.peer.answers.update(
            {
                RequestCode.UNREGISTER_CLIENT: self.unregister,
                RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back,
                RequestCode.END_TRANSACTION: self.end_transaction,
                RequestCode.UPDATE_AND_CREATE_TOPIC: self.create_topic,
                RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.create_group,
                RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
                RequestCode.SEND_REPLY_MESSAGE_V2: self.take_reply,
            }
        )

    # --- members ---

    def heartbeat(self, asked: RemotingCommand) -> RemotingCommand:
        heartbeat = HeartbeatData.decode(asked.body)
        assert self.peer.asking is not None
        self.connections[heartbeat.client_id] = self.peer.asking
        for producer in heartbeat.producer_data_set:
            self.groups[producer.group_name].add(heartbeat.client_id)
        for consumer in heartbeat.consumer_data_set:
            members = self.members[consumer.group_name]
            if heartbeat.client_id not in members:
                members.append(heartbeat.client_id)
                members.sort()
                self._members_changed(consumer.group_name)
        return response(asked, 0)

    def unregister(self, asked: RemotingCommand) -> RemotingCommand:
        fields = asked.ext_fields or {}
        if group := fields.get("consumerGroup"):
            self._leave(group, fields["clientID"])
        if group := fields.get("producerGroup"):
            self.groups[group].discard(fields["clientID"])
        return response(asked, 0)

    def forget_lost_members(self) -> None:
        """Drop the members whose connections are gone."""
        for client_id, transport in list(self.connections.items()):
            if transport.is_closing():
                del self.connections[client_id]
                for group in list(self.members):
                    self._leave(group, client_id)
                for clients in self.groups.values():
                    clients.discard(client_id)

    def _leave(self, group: str, client_id: str) -> None:
        if client_id in self.members[group]:
            self.members[group].remove(client_id)
            self._members_changed(group)

    def _members_changed(self, group: str) -> None:
        for client_id in self.members[group]:
            if client_id in self.connections:
                push = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
                push.flag |= 2
                self.connections[client_id].write(encode_command(push))

    # --- what admin clients change ---

    def create_topic(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        self.created[header.topic] = header.read_queue_nums
        self.servers.topics.add(header.topic)
        return response(asked, 0)

    def delete_topic(self, asked: RemotingCommand) -> RemotingCommand:
        self.created.pop(self._header(asked).topic, None)
        return response(asked, 0)

    def create_group(self, asked: RemotingCommand) -> RemotingCommand:
        self.created_groups.add(decode_body(asked.body, SubscriptionGroupConfig).group_name)
        return response(asked, 0)

    def delete_group(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        self.created_groups.discard(header.group_name)
        if header.remove_offset:
            self.offsets = {key: at for key, at in self.offsets.items() if key[0] != header.group_name}
        return response(asked, 0)

    def reset_offset(self, asked: RemotingCommand) -> RemotingCommand:
        """Reset a group to the end of each queue (-1), or to its begin."""
        header = self._header(asked)
        table: dict[MessageQueue, int] = {}
        for queue_id in range(self.servers.queue_nums):
            at = len(self.records[header.topic, queue_id]) if header.timestamp_ms < 0 else 0
            self.offsets[header.group, header.topic, queue_id] = at
            table[MessageQueue(self.name, queue_id, header.topic)] = at
        return response(asked, 0, body=ResetOffsetBody(table).encode())

    def take_reply(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        self.replies.append((string_to_properties(header.properties)[CORRELATION_ID], asked.body))
        return self.stored(asked, header, f"{0x7F000001:08X}{10_911:08X}{len(self.replies):016X}", 0)

    # --- locks ---

    def lock(self, asked: RemotingCommand) -> RemotingCommand:
        now_s = self.servers.loop.time()
        for queue, until_s in list(self.lock_until_s.items()):
            if until_s < now_s:
                del self.lock_until_s[queue]
                self.locks.pop(queue, None)
        answer = super().lock(asked)
        for queue in self.locks:
            self.lock_until_s.setdefault(queue, now_s + LOCK_S)
        return answer

    # --- messages ---

    def pull(self, asked: RemotingCommand) -> RemotingCommand | None:
        answer = super().pull(asked)
        if answer is None:  # it is held, at most for the time that the client names
            asking = self.asking_of.setdefault(id(asked), self.peer.asking)
            wait_s = int((asked.ext_fields or {}).get("suspendTimeoutMillis", "1000")) / 1000

            def give_up() -> None:
                if any(held is asked for held in self.held) and asking is not None:
                    self.held = [held for held in self.held if held is not asked]
                    del self.asking_of[id(asked)]
                    asked.ext_fields = (asked.ext_fields or {}) | {"sysFlag": "4"}
                    answered = FakeBroker.pull(self, asked)
                    assert answered is not None
                    asking.write(encode_command(answered))

            self.servers.loop.call_later(wait_s, give_up)
        else:
            self.asking_of.pop(id(asked), None)
        return answer

    def send(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        if asked.body.startswith(ILLEGAL):
            return response(asked, ResponseCode.MESSAGE_ILLEGAL, "the broker does not like the body")
        properties = string_to_properties(header.properties)
        if REPLY_TO_CLIENT in properties:
            self.servers.loop.call_later(self.servers.choices.below(10) / 10, self._reply, properties)
        if not header.sys_flag & PREPARED:
            return super().send(asked)
        self.half_messages += 1
        number = self.half_messages
        self.half[number] = (header, asked.body)
        msg_id = f"{0x7F000001:08X}{10_911:08X}{number:016X}"
        self.servers.loop.call_later(CHECK_S, self._check, number, msg_id)
        return self.stored(asked, header, msg_id, number)

    def send_batch(self, asked: RemotingCommand) -> RemotingCommand:
        if any(item.body.startswith(ILLEGAL) for item in decode_batch(asked.body)):
            return response(asked, ResponseCode.MESSAGE_ILLEGAL, "the broker does not like a body")
        return super().send_batch(asked)

    def _reply(self, properties: dict[str, str]) -> None:
        """Reply to a request, as if one of its consumers had done so: the body is the correlation id."""
        self.forget_lost_members()
        if properties[REPLY_TO_CLIENT] not in self.connections:
            return
        push = pushed_reply(properties[CORRELATION_ID], properties[CORRELATION_ID].encode())
        self.connections[properties[REPLY_TO_CLIENT]].write(encode_command(push))

    def end_transaction(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        half = self.half.pop(header.tran_state_table_offset, None)
        if half is not None and header.commit_or_rollback == COMMIT:
            self.put(half[0].topic, half[0].queue_id, half[1], half[0].properties)
        elif half is not None and header.commit_or_rollback == 0:
            self.half[header.tran_state_table_offset] = half
        return response(asked, 0)

    def _check(self, number: int, msg_id: str) -> None:
        if number not in self.half:
            return
        self.forget_lost_members()
        header, body = self.half[number]
        group = string_to_properties(header.properties).get("PGROUP", "")
        for client_id in sorted(self.groups[group]):
            record_of = FakeBroker(FakePeer())
            record_of.put(header.topic, header.queue_id, body, header.properties)
            fields = {"tranStateTableOffset": str(number), "commitLogOffset": str(number), "msgId": msg_id,
                      "transactionId": msg_id, "offsetMsgId": msg_id}  # fmt: skip
            push = request(RequestCode.CHECK_TRANSACTION_STATE, fields, record_of.by_place[0])
            push.flag |= 2
            self.connections[client_id].write(encode_command(push))
            break
        self.servers.loop.call_later(CHECK_S, self._check, number, msg_id)

    def send_back(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        record = self.by_place.get(header.commit_log_offset_bytes)
        if record is None:
            return response(asked, 1, "look message by offset failed")
        message = decode_messages(record, self.name)[0]
        limit = header.max_reconsume_times if header.max_reconsume_times is not None else 16
        dead = message.reconsume_times >= limit or header.delay_level < 0
        topic = ("%DLQ%" if dead else RETRY_PREFIX) + header.group
        properties = f"RETRY_TOPIC\x01{message.properties.get('RETRY_TOPIC', message.topic)}\x02"
        self.servers.loop.call_later(
            0 if dead else RETRY_S, self.put, topic, 0, message.body, properties, message.reconsume_times + 1
        )
        return response(asked, 0)
