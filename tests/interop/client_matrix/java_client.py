"""The real Java client in a process beside the test, driven over its standard input (``JavaClient.java``)."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from flintmq.remoting.client import Message

SOURCE = Path(__file__).with_name("JavaClient.java")


@attrs.frozen
class Consumed:
    """A message as the Java client consumed it."""

    topic: str
    body: bytes
    tags: str
    keys: tuple[str, ...]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    reconsume_times: int
    queue_id: int
    queue_offset: int
    msg_id: str
    properties: dict[str, str]


class JavaClient(AbstractContextManager["JavaClient"]):
    """A JVM with a producer, and with consumers as they join. Use it in a ``with`` statement.

    Args:
        jars: the folder of RocketMQ's jars.
        work: a folder for its home.
        name_server: ``host:port``.
    """

    def __init__(self, jars: Path, work: Path, name_server: str) -> None:
        work.mkdir(parents=True, exist_ok=True)
        logback = work / "logback.xml"
        logback.write_text("<configuration><root level='OFF'/></configuration>")
        self._errors = (work / "java-errors").open("w+b")
        options = ["-Xms48m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Drocketmq.client.rebalance.waitInterval=200"]
        options += [f"-Duser.home={work}", f"-Drmq.logback.configurationFile={logback}", "-Dfile.encoding=UTF-8"]
        options += [f"-Dlogback.configurationFile={logback}", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        self._process = subprocess.Popen(
            ["java", *options, "-cp", f"{jars}/*", str(SOURCE), name_server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=work,
        )

    async def call(self, command: str, *arguments: str | int | bytes) -> list[list[bytes]]:
        """Run a command and return the fields of its lines. Raises AssertionError when it fails."""
        return await asyncio.to_thread(self._call, command, *arguments)

    def _call(self, command: str, *arguments: str | int | bytes) -> list[list[bytes]]:
        raw = [value if isinstance(value, bytes) else str(value).encode() for value in arguments]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join([command, *(value.hex() for value in raw)]).encode() + b"\n")
        self._process.stdin.flush()
        lines: list[list[bytes]] = []
        while True:
            line = self._process.stdout.readline().decode()
            assert line, f"the JVM ended in {command}: {self._said()}"
            word, *fields = line.rstrip("\n").split(" ")
            values = [bytes.fromhex(field) for field in fields]
            if word == "ok":
                return lines
            assert word != "failed", f"{command}: {values[0].decode()}"
            if word in ("sent", "held", "message"):  # other lines come from libraries
                lines.append(values)

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-3000:].decode(errors="replace")

    async def send(self, message: Message, *, sharding_key: str = "", transaction: str = "") -> tuple[str, int]:
        """Send a message, in a transaction that ends so; return its id and its queue's."""
        pairs = "\0".join(part for pair in message.properties.items() for part in pair)
        fields: list[str | int | bytes] = [message.topic, message.body, message.tags, " ".join(message.keys)]
        fields += [message.flag, message.delay_level, pairs]
        if transaction:
            ((msg_id, queue_id, _, _),) = await self.call("transaction", transaction, *fields)
        else:
            ((msg_id, queue_id, _, _),) = await self.call("send", *fields, "", sharding_key)
        return msg_id.decode(), int(queue_id)

    async def next(self, group: str, count: int) -> list[Consumed]:
        """Return the next messages that a group of this JVM consumes."""
        found = []
        for topic, body, *texts, properties in await self.call("next", group, count):
            tags, keys, flag, sys_flag, born_ms, host, tries, queue_id, queue_offset, msg_id = (
                t.decode() for t in texts
            )
            parts = properties.decode().split("\0")
            found.append(
                Consumed(
                    topic.decode(),
                    body,
                    tags,
                    tuple(keys.split()),
                    int(flag),
                    int(sys_flag),
                    int(born_ms),
                    host,
                    int(tries),
                    int(queue_id),
                    int(queue_offset),
                    msg_id,
                    dict(zip(parts[0:-1:2], parts[1::2], strict=True)),
                )
            )
        return found

    async def join(
        self, group: str, topic: str, expression: str = "*", *, strategy: str = "AVG", instance: str = "java"
    ) -> None:
        """Have a member of a group consume a topic; an expression that begins with ``sql:`` is SQL92."""
        await self.call("join", group, topic, expression, strategy, instance)

    async def held(self, group: str, topic: str) -> set[int]:
        """Return the ids of the queues that the member of a group holds."""
        ((*queues,),) = await self.call("held", group, topic)
        return {int(queue_id) for queue_id in queues}

    async def leave(self, group: str) -> None:
        """Have the member of a group leave it."""
        await self.call("leave", group)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()
