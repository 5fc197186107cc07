"""Hostile peers, each a function; run as a program so that they take no time from the client whose wait is measured.

``python attacks.py NAME HOST:PORT``: gets ready, prints READY, begins when a line comes on stdin, and ends with stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import struct
import sys
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from flintmq.config.secret import Secret
from flintmq.core import limits
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.remoting.wire.command import encode_command, request
from flintmq.remoting.wire.signature import add_signature

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SEND: Final = {"a": "P", "b": "Attacked", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "i": "",
               "j": "0", "k": "false", "m": "false"}  # fmt: skip
PULL: Final = {"consumerGroup": "Attackers", "topic": "Attacked", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
               "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
               "expressionType": "TAG"}  # fmt: skip
PAUSE_S: Final = 0.005
"""Between two strokes of one connection: whoever wants all of a core gets it from the system, not from the broker."""


class Battle:
    """What attacks have in common."""

    def __init__(self, address: str) -> None:
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self.began = asyncio.Event()

    async def connect(self, source: str | None = None) -> Connection:
        local = None if source is None else (source, 0)
        return await asyncio.open_connection(self.host, self.port, local_addr=local)

    async def many(self, count: int, work: Callable[[Connection], Awaitable[None]]) -> None:
        """So many connections, each made again when the server has ended it."""

        async def one() -> None:
            while True:
                with contextlib.suppress(OSError):
                    connection = await self.connect()
                    try:
                        await work(connection)
                    finally:
                        connection[1].transport.abort()
                await asyncio.sleep(PAUSE_S)

        await asyncio.gather(*(one() for _ in range(count)))


def frame(code: int, fields: dict[str, str] | None = None, body: bytes = b"", **more: Any) -> bytes:
    return encode_command(request(code, fields, body, language="JAVA", version=407, **more))


def raw(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def dripping(data: bytes, whole: int) -> Callable[[Connection], Awaitable[None]]:
    """The first bytes at once, each of the others alone."""

    async def drip(connection: Connection) -> None:
        _, writer = connection
        writer.write(data[:whole])
        for at in range(whole, len(data)):
            writer.write(data[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0.02)

    return drip


def repeating(*frames: bytes, drain: bool = True, pause_s: float = PAUSE_S) -> Callable[[Connection], Awaitable[None]]:
    """These again and again; answers are read unless told otherwise."""

    async def repeat(connection: Connection) -> None:
        reader, writer = connection
        reading = asyncio.ensure_future(_swallow(reader)) if drain else None
        try:
            while reading is None or not reading.done():
                for one in frames:
                    writer.write(one)
                    await writer.drain()
                await asyncio.sleep(pause_s)
        finally:
            if reading is not None:
                reading.cancel()

    return repeat


async def _swallow(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def _stay(connection: Connection) -> None:
    await connection[0].read(1)


async def slow_loris_in_the_header(battle: Battle) -> None:
    await battle.many(200, dripping(frame(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}), 9))


async def slow_loris_in_the_body(battle: Battle) -> None:
    data = frame(Code.SEND_MESSAGE_V2, SEND, b"x" * 2_000)
    await battle.many(200, dripping(data, len(data) - 2_000))


async def half_open(battle: Battle) -> None:
    data = frame(Code.SEND_MESSAGE_V2, SEND, b"x" * 50_000)

    async def half(connection: Connection) -> None:
        connection[1].write(data[: len(data) // 2])
        await _stay(connection)

    await battle.many(500, half)


async def never_reads(battle: Battle) -> None:
    reader, writer = await battle.connect()
    for _ in range(32):
        writer.write(frame(Code.SEND_MESSAGE_V2, SEND, b"x" * 8_000))
    await reader.read(100)
    writer.transport.abort()
    await battle.many(5, repeating(*[frame(Code.PULL_MESSAGE, PULL)] * 5, drain=False, pause_s=0.05))


async def pulls_that_nobody_reads(battle: Battle) -> None:
    """Sixty peers, each asking sixty times for a megabyte at once."""
    reader, writer = await battle.connect()
    writer.write(frame(Code.SEND_MESSAGE_V2, SEND | {"b": "Unread"}, b"x" * 1_000_000))
    await reader.read(100)
    writer.transport.abort()
    pulls = frame(Code.PULL_MESSAGE, PULL | {"topic": "Unread", "maxMsgNums": "1"}) * 60

    async def ask(connection: Connection) -> None:
        _, writer = connection
        writer.transport.pause_reading()
        writer.write(pulls)
        await asyncio.sleep(0.3)

    await battle.many(60, ask)


async def other_answers_that_nobody_reads(battle: Battle) -> None:
    """The same with requests of another kind: one message by its place in the log, again and again."""
    reader, writer = await battle.connect()
    writer.write(frame(Code.SEND_MESSAGE_V2, SEND | {"b": "Unread"}, b"x" * 1_000_000))
    answer = await reader.readuntil(b'"queueOffset"')
    writer.transport.abort()
    place = int(answer.partition(b'"msgId":"')[2][16:32], 16)
    asked = frame(Code.VIEW_MESSAGE_BY_ID, {"offset": str(place)}) * 60

    async def ask(connection: Connection) -> None:
        _, writer = connection
        writer.transport.pause_reading()
        writer.write(asked)
        await asyncio.sleep(0.3)

    await battle.many(60, ask)


async def idle_connections(battle: Battle) -> None:
    open_ones: list[Connection] = []
    try:
        for number in range(5_000):
            open_ones.append(await battle.connect(f"127.0.0.{2 + number // 1_000}"))
            if number % 50 == 0:
                await asyncio.sleep(PAUSE_S)
        await asyncio.Event().wait()
    finally:
        for _, writer in open_ones:
            writer.transport.abort()


async def connect_flood(battle: Battle) -> None:
    async def leave(connection: Connection) -> None:
        """Connected, and gone."""

    await battle.many(40, leave)


async def wrong_lengths(battle: Battle) -> None:
    lengths = (-1, 0, 3, -(2**31), 2**31 - 1, limits.FRAME_MAX_BYTES + 1)

    async def announce(connection: Connection) -> None:
        connection[1].write(struct.pack(">i", random.choice(lengths)) + b"x" * 100)
        await _stay(connection)

    await battle.many(20, announce)


async def headers_longer_than_their_frame(battle: Battle) -> None:
    async def announce(connection: Connection) -> None:
        connection[1].write(struct.pack(">II", 20, random.choice((17, 65_536, 0xFFFFFF))) + b"x" * 16)
        await _stay(connection)

    await battle.many(20, announce)


async def strange_json(battle: Battle) -> None:
    headers = [
        b'{"code":34,"code":105,"opaque":7}',
        b'{"code":34,"opaque":7,"extFields":{"a":' + b"1" * 5_000 + b"}}",
        b'{"code":34,"opaque":7,"extFields":{"a":1e999,"a":"b","a":null}}',
    ]
    bodies = [
        b"[" * 20_000,
        b'{"a":' * 20_000,
        b'{"clientID":NaN,"consumerDataSet":[{"groupName":Infinity}]}',
        b'{"clientID":' + b"9" * 5_000 + b"}",
        b'{"clientID":"a","clientID":"b","clientID":["c"]}',
        b'{"a":[' + b"1," * 7_000 + b'1],"b":[' + b'{"$ref":"$.a"},' * 900 + b"1]}",
    ]
    frames = [raw(header, b"{}") for header in headers]
    frames += [frame(code, {}, body) for body in bodies for code in (Code.HEART_BEAT, Code.LOCK_BATCH_MQ)]
    await battle.many(3, repeating(*frames, pause_s=0.05))


async def bombs(battle: Battle) -> None:
    bomb = zlib.compress(bytes(32 * 1024 * 1024))
    compressed = SEND | {"f": str(0x301)}
    await battle.many(2, repeating(frame(Code.SEND_MESSAGE_V2, compressed, bomb), pause_s=0.05))


async def names_that_lead_elsewhere(battle: Battle) -> None:
    frames = []
    for name in ("../../x", "..", "/etc/passwd", "a/b", "a\\b", "nul\0", "%2e%2e/x"):
        frames += [
            frame(Code.SEND_MESSAGE_V2, SEND | {"b": name}, b"x"),
            frame(Code.PULL_MESSAGE, PULL | {"topic": name, "consumerGroup": name}),
            frame(Code.DELETE_TOPIC_IN_BROKER, {"topic": name}),
            frame(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": name}).encode()),
        ]
    await battle.many(2, repeating(*frames, pause_s=0.02))


async def control_characters(battle: Battle) -> None:
    texts = (
        "\x01\x02" * 500,
        "A\x01\x1b[31m\x02B\x01c\nd",
        "KEYS\x01" + "k " * 500,
        "TAGS\x01\x00\x02DELAY\x01x",
        "\x02" * 9_000,
    )
    frames = [frame(Code.SEND_MESSAGE_V2, SEND | {"i": text}, b"x") for text in texts]
    await battle.many(2, repeating(*frames, pause_s=0.02))


async def replayed_signatures(battle: Battle) -> None:
    fields = {"topic": "Attacked", "queueId": "0"}
    add_signature(fields, b"", "attacker-key", Secret("what was recorded somewhere"), "1700000000000-abcdef")
    await battle.many(4, repeating(*[frame(Code.GET_MAX_OFFSET, fields)] * 20, pause_s=0.02))


async def oneway_flood(battle: Battle) -> None:
    await battle.many(4, repeating(*[frame(Code.SEND_MESSAGE_V2, SEND, b"x" * 100, oneway=True)] * 20, pause_s=0.02))


async def pulls_of_everything(battle: Battle) -> None:
    frames = [
        frame(Code.PULL_MESSAGE, PULL | {"maxMsgNums": str(number), "queueOffset": "0"})
        for number in (2**31 - 1, 2**31, -1)
    ]
    await battle.many(2, repeating(*frames, pause_s=0.02))


async def offsets_out_of_reach(battle: Battle) -> None:
    frames = []
    for offset in (-1, -(2**63), 2**63 - 1, 2**63):
        frames += [
            frame(Code.PULL_MESSAGE, PULL | {"queueOffset": str(offset)}),
            frame(Code.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "Attackers", "topic": "Attacked", "queueId": "0",
                                                "commitOffset": str(offset)}),
            frame(Code.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}),
            frame(Code.GET_MAX_OFFSET, {"topic": "Attacked", "queueId": str(offset)}),
        ]  # fmt: skip
    await battle.many(2, repeating(*frames, pause_s=0.02))


ATTACKS: Final[tuple[Callable[[Battle], Coroutine[Any, Any, None]], ...]] = (
    slow_loris_in_the_header,
    slow_loris_in_the_body,
    half_open,
    never_reads,
    pulls_that_nobody_reads,
    other_answers_that_nobody_reads,
    idle_connections,
    connect_flood,
    wrong_lengths,
    headers_longer_than_their_frame,
    strange_json,
    bombs,
    names_that_lead_elsewhere,
    control_characters,
    replayed_signatures,
    oneway_flood,
    pulls_of_everything,
    offsets_out_of_reach,
)


async def main(name: str, address: str) -> None:
    loop = asyncio.get_running_loop()
    attack = next(attack for attack in ATTACKS if attack.__name__ == name)
    print("READY", flush=True)
    if not await loop.run_in_executor(None, sys.stdin.readline):
        return
    task = loop.create_task(attack(Battle(address)))
    ended = loop.run_in_executor(None, sys.stdin.readline)
    await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main(sys.argv[1], sys.argv[2]))
