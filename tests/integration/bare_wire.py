"""A client of bare frames over a blocking socket, and small brokers to try it on."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from flintmq.config import LoadedConfig, load_config
from flintmq.core.record import record as rec
from flintmq.core.record.properties import properties_to_string
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand, decode_command, encode_command, request

SMALL = (
    "listen.port=0",
    "listen.vip=false",
    "store.commit_log_file_bytes=1048576",
    "store.consume_queue_file_bytes=20000",
    "index.max_hash_slot_num=1000",
    "index.max_index_num=4000",
    "nameserver.port=0",
)
ANSWER_S = 5.0


def settings(store: Path, *overrides: str) -> LoadedConfig:
    """A configuration of small files and free ports; nothing comes from the environment."""
    return load_config(None, [*SMALL, f"store.path={store}", *overrides], {})


@attrs.frozen
class Sent:
    """What a send was answered."""

    code: int
    remark: str
    queue_id: int = -1
    queue_offset: int = -1
    message_id: str = ""


@attrs.frozen
class Pulled:
    """What a pull was answered."""

    code: int
    remark: str
    next_offset: int
    min_offset: int
    max_offset: int
    records: tuple[rec.Record, ...]

    @property
    def bodies(self) -> list[bytes]:
        return [record.body for record in self.records]


class Wire:
    """One connection. ``notices`` gathers what the server sent unasked."""

    def __init__(self, address: str, *, receive_buffer_bytes: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(ANSWER_S)
        try:
            self.socket.connect((host, int(port)))
        except OSError:
            self.socket.close()
            raise
        self._pending = b""
        self._opaques = itertools.count(1)
        self.notices: list[RemotingCommand] = []
        self._answers: dict[int, RemotingCommand] = {}

    def close(self) -> None:
        self.socket.close()

    # frames

    def post(
        self,
        code: int,
        fields: Mapping[str, Any] | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
        codec: int = 0,
        version: int = 407,
    ) -> int:
        """Sends a request and returns its opaque."""
        opaque = next(self._opaques)
        ext = None if fields is None else {name: str(value) for name, value in fields.items()}
        command = request(code, ext, body, oneway=oneway, opaque=opaque, codec=codec, language="JAVA", version=version)
        self.socket.sendall(encode_command(command))
        return opaque

    def read(self) -> RemotingCommand:
        """The next frame. Raises EOFError when the server closed, TimeoutError when it says nothing."""
        while True:
            if len(self._pending) >= 4:
                (length,) = struct.unpack_from(">i", self._pending)
                if len(self._pending) >= 4 + length:
                    frame, self._pending = self._pending[4 : 4 + length], self._pending[4 + length :]
                    return decode_command(frame)
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionError as error:
                raise EOFError(str(error)) from error
            if not data:
                raise EOFError("the server closed the connection")
            self._pending += data

    def answer(self, opaque: int, timeout_s: float = ANSWER_S) -> RemotingCommand:
        """The answer to a request; others are kept."""
        deadline_s = time.monotonic() + timeout_s
        while opaque not in self._answers:
            self.socket.settimeout(max(0.001, deadline_s - time.monotonic()))
            command = self.read()
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.notices.append(command)
        return self._answers.pop(opaque)

    def ask(
        self,
        code: int,
        fields: Mapping[str, Any] | None = None,
        body: bytes = b"",
        timeout_s: float = ANSWER_S,
        **options: Any,
    ) -> RemotingCommand:
        return self.answer(self.post(code, fields, body, **options), timeout_s)

    def is_closed_by_peer(self, timeout_s: float = ANSWER_S) -> bool:
        """Reads until the end; False when the server is still there after that time."""
        self.socket.settimeout(timeout_s)
        try:
            while True:
                self.read()
        except EOFError:
            return True
        except TimeoutError:
            return False

    # requests

    def post_send(self, topic: str, body: bytes, *, queue_id: int = 0, **fields: Any) -> int:
        return self.post(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue_id, **fields), body)

    def send(self, topic: str, body: bytes, *, queue_id: int = 0, **fields: Any) -> Sent:
        return sent(self.answer(self.post_send(topic, body, queue_id=queue_id, **fields)))

    def post_pull(self, topic: str, offset: int = 0, *, queue_id: int = 0, **fields: Any) -> int:
        return self.post(RequestCode.PULL_MESSAGE, pull_fields(topic, queue_id, offset, **fields))

    def pull(self, topic: str, offset: int = 0, *, queue_id: int = 0, **fields: Any) -> Pulled:
        return pulled(self.answer(self.post_pull(topic, offset, queue_id=queue_id, **fields)))

    def pull_all(self, topic: str, *, queue_id: int = 0, at_least: int = 0) -> list[rec.Record]:
        """Every message of a queue, from its minimum on; with a pool so many must first be committed."""
        found: list[rec.Record] = []
        offset = 0
        deadline_s = time.monotonic() + ANSWER_S
        while True:
            answer = self.pull(topic, offset, queue_id=queue_id)
            if answer.code == 0:
                found += answer.records
                offset = answer.next_offset
            elif answer.code in (20, 21) and answer.next_offset > offset:
                offset = answer.next_offset
            elif len(found) >= at_least or time.monotonic() > deadline_s:
                return found

    def is_served(self, topic: str = "Healthy") -> bool:
        """Whether a message goes in and comes out again."""
        body = b"%d" % time.monotonic_ns()
        result = self.send(topic, body)
        if result.code != 0:
            return False
        answer = self.pull(topic, result.queue_offset, _suspend_ms=2_000)
        return answer.code == 0 and answer.bodies[:1] == [body]


def send_fields(
    topic: str,
    queue_id: int = 0,
    *,
    group: str = "P",
    properties: Mapping[str, str] | str = "",
    batch: bool = False,
    reconsume_times: int = 0,
    **more: Any,
) -> dict[str, str]:
    text = properties if isinstance(properties, str) else properties_to_string(properties)
    fields = {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": text,
        "j": str(reconsume_times),
        "k": "false",
        "m": "true" if batch else "false",
    }
    return fields | {name: str(value) for name, value in more.items()}


def pull_fields(
    topic: str, queue_id: int = 0, offset: int = 0, *, group: str = "C", _suspend_ms: int = 0, **more: Any
) -> dict[str, str]:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if _suspend_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(_suspend_ms),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return fields | {name: str(value) for name, value in more.items()}


def sent(answer: RemotingCommand) -> Sent:
    fields = answer.ext_fields or {}
    if "queueOffset" not in fields:
        return Sent(answer.code, answer.remark or "")
    return Sent(answer.code, answer.remark or "", int(fields["queueId"]), int(fields["queueOffset"]), fields["msgId"])


def pulled(answer: RemotingCommand) -> Pulled:
    fields = answer.ext_fields or {}
    return Pulled(
        answer.code,
        answer.remark or "",
        int(fields.get("nextBeginOffset", -1)),
        int(fields.get("minOffset", -1)),
        int(fields.get("maxOffset", -1)),
        tuple(records_of(answer.body)),
    )


def records_of(data: bytes) -> list[rec.Record]:
    found = []
    at = 0
    while at < len(data):
        record = rec.decode_record(data, at)
        found.append(record)
        at += record.size_bytes
    return found
