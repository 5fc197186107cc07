"""A peer that answers by script, and a broker and name server in one, in memory, to try clients without the real ones."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.record.batch import decode_batch
from flintmq.core.record.host import offset_message_id, pack_host
from flintmq.core.record.properties import string_to_properties
from flintmq.core.record.record import MessageExtBrokerInner, encode_record, record_size
from flintmq.core.route.route_data import BrokerData, ClusterInfo, QueueData, TopicRouteData
from flintmq.remoting.wire.bodies import ConsumerIdList, HeartbeatData, LockBatchRequestBody, LockBatchResponseBody
from flintmq.remoting.wire.command import RemotingCommand, decode_command, encode_command, response
from flintmq.remoting.wire.frame import FrameDecoder
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_message import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueueOffsetResponseHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from flintmq.remoting.wire.json_body import dumps
from flintmq.tests.support.request_headers import REQUEST_HEADERS

Answer = Callable[[RemotingCommand], RemotingCommand | None]


class FakePeer(asyncio.Protocol):
    """A server that answers by script, one object for all its connections. Use ``async with``.

    ``answers`` maps request codes to functions; None as an answer means silence; a code without one is answered 0.
    """

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.requests: list[RemotingCommand] = []
        self.responses: list[RemotingCommand] = []
        self.transports: list[asyncio.Transport] = []
        self.connections_made = 0
        self.address = ""

    async def __aenter__(self) -> FakePeer:
        self._server = await asyncio.get_running_loop().create_server(lambda: _PeerConnection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        for transport in self.transports:
            transport.abort()
        self._server.close()
        await self._server.wait_closed()

    def received(self, transport: asyncio.Transport, command: RemotingCommand) -> None:
        if command.is_response:
            self.responses.append(command)
        else:
            self.requests.append(command)
            scripted = self.answers.get(command.code)
            answer = response(command, 0) if scripted is None else scripted(command)
            if answer is not None and not command.is_oneway:
                transport.write(encode_command(answer))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Lets the loop turn until something is so."""
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - any state of client or peer may be waited for
                await asyncio.sleep(0.001)

    def push(self, command: RemotingCommand) -> None:
        """Sends a command over every connection."""
        for transport in self.transports:
            transport.write(encode_command(command))

    def of_code(self, code: int) -> list[RemotingCommand]:
        return [request for request in self.requests if request.code == code]


class _PeerConnection(asyncio.Protocol):
    def __init__(self, peer: FakePeer) -> None:
        self.peer = peer
        self.decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer.transports.append(transport)
        self.peer.connections_made += 1

    def data_received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            self.peer.received(self.transport, decode_command(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer.transports.remove(self.transport)


STORE_HOST = pack_host("127.0.0.1", 10911)
STORE_TIMESTAMP_MS = 1_700_000_000_000


class FakeBroker:
    """Scripts a peer. Topics have two queues at ``broker-a``; every test may put other answers into ``peer.answers``."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer
        self.topics = {"T"}
        self.queue_nums = 2
        self.records: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.by_place: dict[int, bytes] = {}
        self.log_end = 0
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, list[str]] = defaultdict(list)
        self.locks: dict[MessageQueue, str] = {}
        self.held: list[RemotingCommand] = []
        peer.answers.update(
            {
                105: self.route,
                106: self.cluster,
                310: self.send,
                320: self.send_batch,
                11: self.pull,
                14: self.query_offset,
                15: self.update_offset,
                30: lambda asked: self.offset(asked, len(self._queue(asked))),
                31: lambda asked: self.offset(asked, 0),
                29: lambda asked: self.offset(asked, 1),
                34: self.heartbeat,
                38: self.consumer_list,
                41: self.lock,
                42: self.unlock,
                12: self.query,
                33: self.view,
            }
        )

    @staticmethod
    def _header(asked: RemotingCommand) -> Any:
        return decode_header(REQUEST_HEADERS[asked.code], asked.ext_fields)

    def _queue(self, asked: RemotingCommand) -> list[bytes]:
        header = self._header(asked)
        return self.records[header.topic, header.queue_id]

    def route(self, asked: RemotingCommand) -> RemotingCommand:
        if self._header(asked).topic not in self.topics:
            return response(asked, 17, "No topic route info")
        brokers = [BrokerData(broker_addrs={0: self.peer.address}, broker_name="broker-a", cluster="C")]
        queues = [
            QueueData(
                broker_name="broker-a",
                perm=6,
                read_queue_nums=self.queue_nums,
                topic_sys_flag=0,
                write_queue_nums=self.queue_nums,
            )
        ]
        return response(asked, 0, body=dumps(TopicRouteData(broker_datas=brokers, queue_datas=queues), "standard"))

    def cluster(self, asked: RemotingCommand) -> RemotingCommand:
        info = ClusterInfo(
            broker_addr_table={
                "broker-a": BrokerData(broker_addrs={0: self.peer.address}, broker_name="broker-a", cluster="C")
            },
            cluster_addr_table={"C": ["broker-a"]},
        )
        return response(asked, 0, body=dumps(info))

    def store(self, header: SendMessageRequestHeader, body: bytes, properties: bytes, flag: int) -> str:
        message = MessageExtBrokerInner(
            topic=header.topic,
            queue_id=header.queue_id,
            body=body,
            properties={},
            properties_bytes=properties,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=STORE_HOST,
            store_host=STORE_HOST,
            flag=flag,
            sys_flag=header.sys_flag,
            reconsume_times=header.reconsume_times,
        )
        queue = self.records[header.topic, header.queue_id]
        size = record_size(message)
        record = b"".join(encode_record(message, size, len(queue), self.log_end, STORE_TIMESTAMP_MS + len(queue)))
        queue.append(record)
        self.by_place[self.log_end] = record
        msg_id = offset_message_id(STORE_HOST.hex().upper(), self.log_end)
        self.log_end += size
        held, self.held = self.held, []
        for asked in held:
            answer = self.pull(asked)
            if answer is not None:
                self.peer.push(answer)
        return msg_id

    def send(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        queue_offset = len(self.records[header.topic, header.queue_id])
        msg_id = self.store(header, asked.body, header.properties.encode(), header.flag)
        return self.stored(asked, header, msg_id, queue_offset)

    def send_batch(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        queue_offset = len(self.records[header.topic, header.queue_id])
        ids = [self.store(header, item.body, item.properties_bytes, item.flag) for item in decode_batch(asked.body)]
        return self.stored(asked, header, ",".join(ids), queue_offset)

    @staticmethod
    def stored(asked: RemotingCommand, header: Any, msg_id: str, queue_offset: int) -> RemotingCommand:
        answer = SendMessageResponseHeader(
            msg_id=msg_id, queue_id=header.queue_id, queue_offset=queue_offset, region_id="R", trace_on=True
        )
        return response(asked, 0, header=answer)

    def pull(self, asked: RemotingCommand) -> RemotingCommand | None:
        header: PullMessageRequestHeader = self._header(asked)
        queue = self._queue(asked)
        found = queue[header.queue_offset : header.queue_offset + header.max_msg_nums]
        if not found and header.queue_offset == len(queue) and header.sys_flag & 2:
            self.held.append(asked)
            return None
        answer = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_queue_offset=min(header.queue_offset + len(found), len(queue)),
            min_queue_offset=0,
            max_queue_offset=len(queue),
        )
        if found:
            return response(asked, 0, "FOUND", answer, b"".join(found))
        moved = header.queue_offset > len(queue)
        return response(asked, 21 if moved else 19, "OFFSET_OVERFLOW", answer)

    def query_offset(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return response(asked, 22, "Not found")
        return response(asked, 0, header={"offset": str(offset)})

    def update_offset(self, asked: RemotingCommand) -> RemotingCommand:
        header = self._header(asked)
        self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_consumer_offset
        return response(asked, 0)

    @staticmethod
    def offset(asked: RemotingCommand, queue_offset: int) -> RemotingCommand:
        return response(asked, 0, header=QueueOffsetResponseHeader(queue_offset=queue_offset))

    def heartbeat(self, asked: RemotingCommand) -> RemotingCommand:
        heartbeat = HeartbeatData.decode(asked.body)
        for consumer in heartbeat.consumer_data_set:
            if heartbeat.client_id not in self.members[consumer.group_name]:
                self.members[consumer.group_name].append(heartbeat.client_id)
        return response(asked, 0)

    def consumer_list(self, asked: RemotingCommand) -> RemotingCommand:
        members = self.members[self._header(asked).consumer_group]
        if not members:
            return response(asked, 1, "no consumer for this group")
        return response(asked, 0, body=ConsumerIdList(members).encode())

    def lock(self, asked: RemotingCommand) -> RemotingCommand:
        body = LockBatchRequestBody.decode(asked.body)
        mine = [queue for queue in body.mq_set if self.locks.setdefault(queue, body.client_id) == body.client_id]
        return response(asked, 0, body=LockBatchResponseBody(mine).encode())

    def unlock(self, asked: RemotingCommand) -> RemotingCommand:
        for queue in LockBatchRequestBody.decode(asked.body).mq_set:
            self.locks.pop(queue, None)
        return response(asked, 0)

    def query(self, asked: RemotingCommand) -> RemotingCommand:
        """Like an index with hash collisions: every record of the topic."""
        topic = self._header(asked).topic
        body = b"".join(record for (name, _), queue in self.records.items() if name == topic for record in queue)
        header = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        return response(asked, 0 if body else 22, header=header, body=body)

    def view(self, asked: RemotingCommand) -> RemotingCommand:
        record = self.by_place.get(self._header(asked).commit_log_offset_bytes)
        return response(asked, 1, "can not find message") if record is None else response(asked, 0, body=record)

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: str = "",
        reconsume_times: int = 0,
        sys_flag: int = 0,
    ) -> str:
        """Stores a message as if somebody had sent it."""
        header = SendMessageRequestHeader(
            producer_group="p",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp_ms=STORE_TIMESTAMP_MS,
            flag=0,
            reconsume_times=reconsume_times,
        )
        return self.store(header, body, properties.encode(), 0)

    @staticmethod
    def sent_properties(asked: RemotingCommand) -> dict[str, str]:
        return string_to_properties((asked.ext_fields or {})["i"])
