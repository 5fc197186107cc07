#!/usr/bin/env python3
"""Runs servers under mixed load for a while, and compares the resources that they use at the end with those at the beginning.

    tools/soak.py [--minutes 60] [--names 4000] [--folder DIR] [--json]

A name server, a master and its slave run as separate processes on loopback, with small log files and with retention. Producers
and consumers use topics that exist during the whole soak test. At the same time, other topics and groups are created, used,
deleted and created again under their old names. The slave is killed and paused. Peers that break the protocol's rules send
broken frames, register filters and groups that do not exist, and do not read their answers. At the end, all created topics and
groups are deleted, and the processes are measured again. The exit code is 1 if an acknowledged message was not delivered, if a
message of a deleted topic was delivered, if ``store verify`` finds damage, or if a process uses more descriptors, maps, files,
offsets or memory than at the beginning, by more than a bound.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs

from flintmq.client import (
    AdminClient,
    Consumer,
    ConsumerSettings,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    TransactionProducer,
)
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.errors import FlintError
from flintmq.core.io import fastjson
from flintmq.remoting.client.consumer_settings import FROM_FIRST, ConsumeResult
from flintmq.remoting.client.transaction_producer import TransactionState
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import encode_command, request

LASTING_TOPICS: Final = 4
RUDE_GROUPS: Final = 2_000
"""Number of different names of groups that badly behaved clients use. Heartbeats and pulls create these groups, and the groups
are deleted before each measurement."""
WARM_UP_SHARE: Final = 0.1
"""Share of the soak test's duration after which the first measurement is made, when allocators and caches are warm."""
SETTLE_S: Final = 90.0
"""Time in seconds that the soak test waits before a measurement, so that deleted topics and groups disappear from all servers.
A slave asks its master for changes each second."""
BOUNDS: Final = {"descriptors": 12, "maps": 16, "queue_folders": 4, "files": 4, "groups": 0, "offsets": 4, "threads": 4}
"""Maximum growth of each figure from the beginning to the end of the soak test, keyed by figure. Growth is allowed because
connections are opened and closed all the time."""
DATA_FOLDERS: Final = ("commitlog", "consumequeue", "index")
"""The folders of a store that contain messages. Files and memory maps of these folders are not counted, because their number
depends on retention."""
MEMORY_SHARE_MAX: Final = 1.25
MEMORY_MORE_MAX_KB: Final = 16_384
"""Growth of anonymous memory in KiB that is allowed even if it is more than a quarter of the memory at the first measurement.
Growth is allowed because the allocator keeps some of the freed memory."""


_runs = itertools.count()


@attrs.define
class Seen:
    """The messages and errors that the clients of the soak test saw."""

    acknowledged: dict[bytes, float] = attrs.Factory(dict)
    delivered: Counter[bytes] = attrs.Factory(Counter)
    wrong: list[str] = attrs.Factory(list)
    counts: Counter[str] = attrs.Factory(Counter)
    examples: dict[str, str] = attrs.Factory(dict)
    """Text of the first error of each kind that clients reported, keyed by the kind of error."""


class Server:
    """A process ``flintmq ROLE`` with a configuration file, which can be killed and started again."""

    def __init__(self, folder: Path, name: str, role: str, settings: dict[str, object]) -> None:
        self.folder, self.name, self.role = folder, name, role
        self.config = folder / f"{name}.yaml"
        self.config.write_text(json.dumps(settings))
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server's process and wait for its READY line.

        Raises:
            RuntimeError: the process ended without a READY line.
        """
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flintmq", self.role, "-c", str(self.config), "--log-level", "warning"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if b"READY" not in line:
            raise RuntimeError(f"{self.name} did not start: {self.log.read_text()[-2000:]}")

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to the server's process and wait until the process has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(60)
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def measures(self) -> dict[str, int]:
        """Return the numbers of the server's descriptors, memory maps and threads, its memory, and the numbers of files, queues
        and offsets in its store."""
        assert self.process is not None
        proc = Path("/proc") / str(self.process.pid)
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
        store = self.folder / self.name
        data = tuple(f"{store / folder}/" for folder in DATA_FOLDERS)
        mapped = [line.split(None, 5)[-1] for line in (proc / "maps").read_text().splitlines()]
        found = {
            "descriptors": len(list((proc / "fd").iterdir())),
            "maps": sum(not name.startswith(data) or name.endswith("(deleted)") for name in mapped),
            "threads": int(status["Threads"]),
            "memory_kb": int(status["RssAnon"].split()[0]),
        }
        if (store / "consumequeue").is_dir():
            found["queue_folders"] = sum(len(list(topic.iterdir())) for topic in (store / "consumequeue").iterdir())
            found["files"] = sum(len(files) for at, _, files in os.walk(store) if not f"{at}/".startswith(data))
            config = store / "config"
            found["offsets"] = _entries(config / "consumerOffset.json", "offsetTable")
            found["groups"] = _entries(config / "subscriptionGroup.json", "subscriptionGroupTable")
        return found


def _entries(path: Path, table: str) -> int:
    return len(fastjson.loads(path.read_text())[table]) if path.exists() else 0


def free_port(width: int) -> int:
    """Return a free port such that the ``width - 1`` ports after it and the port two below it are free, too."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.ExitStack() as stack:
            try:
                for each in (port - 2, *range(port, port + width)):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            return port


# --- clients that use the protocol as intended ---


async def send_for_ever(seen: Seen, address: str, number: int) -> None:
    """Send plain, delayed, batched and transactional messages to topics of the soak test until cancelled. Each message has a
    different body."""
    run, body_number = next(_runs), 0
    async with (
        Producer(f"soak-{number}", address) as plain,
        TransactionProducer(f"soak-t-{number}", address, check=lambda _: TransactionState.COMMIT) as two,
    ):
        while True:
            body = b"%d-%d-%d" % (run, number, body_number)
            body_number += 1
            topic = f"Lasting{body_number % LASTING_TOPICS}"
            with note_errors(seen, "send"):
                if body_number % 50 == 0:
                    await two.send_in_transaction(Message(topic, body), lambda *_: TransactionState.COMMIT)
                elif body_number % 50 == 25:
                    await plain.send(Message(topic, body, delay_level=random.randint(1, 3)))
                elif body_number % 50 == 35:
                    await plain.send_batch([Message(topic, body), Message(topic, body + b"b")])
                    seen.acknowledged[body + b"b"] = time.monotonic()
                else:
                    await plain.send(Message(topic, body, keys=body.decode(), tags=f"t{body_number % 3}"))
                seen.acknowledged[body] = time.monotonic()
            await asyncio.sleep(0.02)


@contextlib.contextmanager
def note_errors(seen: Seen, what: str):  # type: ignore[no-untyped-def]
    """Count an error of a client, and suppress its exception: errors are expected, because servers are killed during the soak
    test."""
    try:
        yield
        seen.counts[what] += 1
    except (FlintError, OSError, TimeoutError) as error:
        name = f"{what} failed: {type(error).__name__}"
        seen.counts[name] += 1
        seen.examples.setdefault(name, str(error))


async def consume_for_ever(seen: Seen, address: str, topic: str) -> None:
    """Consume a topic of the soak test until cancelled. Two per cent of the messages are sent back at the first delivery, and
    come again through the retry topic."""

    def listener(message: MessageExt) -> ConsumeResult:
        if message.reconsume_times == 0 and random.random() < 0.02:
            return ConsumeResult.LATER
        seen.delivered[bytes(message.body)] += 1
        return ConsumeResult.SUCCESS

    async with Consumer(
        f"readers-{topic}", address, listener, settings=ConsumerSettings(consume_from=FROM_FIRST)
    ) as consumer:
        await consumer.subscribe(topic)
        await asyncio.Event().wait()


async def use_names(seen: Seen, address: str, worker: int, names: int) -> None:
    """Create, use and delete topics and groups until cancelled. New topics and groups get the names of deleted ones."""
    life = 0
    async with AdminClient(address) as admin, Producer(f"names-{worker}", address, retries=0) as producer:
        kept: list[tuple[str, str]] = []
        try:
            while True:
                life += 1
                topic, group = f"Name{worker}-{life % names}", f"group{worker}-{life % names}"
                with note_errors(seen, "name"):
                    # Topics and groups are recorded before their creation, because even a cancelled call may create them.
                    kept.append((topic, group))
                    await admin.create_topic(topic, queues=2)
                    await admin.create_group(SubscriptionGroupConfig(group_name=group))
                    for _ in range(10):
                        with contextlib.suppress(FlintError):
                            await producer.queues(topic)
                            break
                        await asyncio.sleep(0.1)
                    for _ in range(3):
                        await producer.send(Message(topic, b"life %d" % life))
                    if life % 5 == 0:
                        await read_one_life(seen, address, group, topic, life)
                if len(kept) > names // 2:
                    await drop(seen, admin, kept.pop(0))
                await asyncio.sleep(0.01)
        finally:
            for pair in kept:
                await drop(seen, admin, pair)


async def drop(seen: Seen, admin: AdminClient, pair: tuple[str, str]) -> None:
    for _ in range(5):
        with note_errors(seen, "drop"):
            await admin.delete_topic(pair[0])
            await admin.delete_group(pair[1])
            return
        await asyncio.sleep(1)


async def read_one_life(seen: Seen, address: str, group: str, topic: str, life: int) -> None:
    """Read a topic from its beginning, and commit the consumer offsets. Earlier topics with the same name were deleted, so each
    message of an earlier topic that is read is recorded as a fault."""
    async with PullConsumer(group, address) as consumer:
        await consumer.assign(topic, consume_from=FROM_FIRST)
        found: list[bytes] = []
        for _ in range(4):
            found += [bytes(message.body) for message in await consumer.poll(500)]
            if len(found) >= 3:
                break
        await consumer.commit()
        for body in found:
            if body != b"life %d" % life:
                seen.wrong.append(f"{topic} gave {body!r} in life {life}")


async def trouble_the_slave(seen: Seen, slave: Server) -> None:
    """Pause the slave for five seconds each minute, and kill it every four minutes."""
    round_number = 0
    while True:
        await asyncio.sleep(60)
        round_number += 1
        if round_number % 4 == 0:
            slave.end(signal.SIGKILL)
            await asyncio.sleep(3)
            await asyncio.to_thread(slave.start)
            seen.counts["slave killed"] += 1
        else:
            slave.send(signal.SIGSTOP)
            await asyncio.sleep(5)
            slave.send(signal.SIGCONT)
            seen.counts["slave paused"] += 1


# --- peers that send broken or excessive requests ---


async def rude_peer(seen: Seen, port: int, number: int) -> None:
    """Open connections to a server, and send a malformed or excessive request on each. Connections are aborted in any state."""
    chance = random.Random(number)
    acts: list[Callable[[asyncio.StreamWriter, random.Random], None]] = [
        _garbage, _half_a_frame, _filters, _offsets, _many_pulls, _huge_length,
    ]  # fmt: skip
    open_ones: list[asyncio.StreamWriter] = []
    try:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                chance.choice(acts)(writer, chance)
                seen.counts["rude"] += 1
                open_ones.append(writer)
            if len(open_ones) > 10:
                open_ones.pop(0).transport.abort()
            await asyncio.sleep(0.2)
    finally:
        for writer in open_ones:
            writer.transport.abort()


def _frame(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    return encode_command(request(code, fields, body, language="JAVA", version=407))


def _garbage(writer: asyncio.StreamWriter, chance: random.Random) -> None:
    writer.write(chance.randbytes(200))


def _half_a_frame(writer: asyncio.StreamWriter, chance: random.Random) -> None:
    writer.write(_frame(RequestCode.SEND_MESSAGE_V2, {"b": "Rude"}, bytes(1000))[: chance.randrange(1, 900)])


def _huge_length(writer: asyncio.StreamWriter, _chance: random.Random) -> None:
    writer.write(struct.pack(">II", 2**31 - 1, 12))


def _filters(writer: asyncio.StreamWriter, chance: random.Random) -> None:
    for _ in range(20):
        topic, group = f"Nothing{chance.randrange(10**6)}", f"rude{chance.randrange(RUDE_GROUPS)}"
        subscription = {"topic": topic, "subString": f"a > {chance.randrange(10**6)}", "expressionType": "SQL92",
                        "tagsSet": [], "codeSet": [], "subVersion": 1, "classFilterMode": False}  # fmt: skip
        consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                    "consumeFromWhere": FROM_FIRST, "subscriptionDataSet": [subscription], "unitMode": False}  # fmt: skip
        body = {"clientID": f"rude@{chance.randrange(10**6)}", "producerDataSet": [], "consumerDataSet": [consumer]}
        writer.write(_frame(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()))


def _offsets(writer: asyncio.StreamWriter, chance: random.Random) -> None:
    for _ in range(20):
        fields = {"consumerGroup": f"rude{chance.randrange(RUDE_GROUPS)}", "topic": f"Nothing{chance.randrange(10**6)}",
                  "queueId": str(chance.randrange(100)), "commitOffset": "5"}  # fmt: skip
        writer.write(_frame(RequestCode.UPDATE_CONSUMER_OFFSET, fields))


def _many_pulls(writer: asyncio.StreamWriter, chance: random.Random) -> None:
    for _ in range(20):
        group, topic = f"rude{chance.randrange(RUDE_GROUPS)}", f"Lasting{chance.randrange(LASTING_TOPICS)}"
        fields = {"consumerGroup": group, "topic": topic,
                  "queueId": "0", "queueOffset": str(chance.choice([0, 5, 10**9, -1])), "maxMsgNums": "32", "sysFlag": "6",
                  "commitOffset": "0", "suspendTimeoutMillis": "60000", "subscription": "*", "subVersion": "0",
                  "expressionType": "TAG"}  # fmt: skip
        writer.write(_frame(RequestCode.PULL_MESSAGE, fields))


# --- one run of the soak test ---


async def soak(
    options: argparse.Namespace, folder: Path, servers: list[Server], ports: tuple[int, int]
) -> tuple[Seen, dict[str, dict[str, dict[str, int]]]]:
    """Run the soak test. Return the messages and errors that the clients saw, and the resources of each server at the beginning
    and at the end."""
    seen = Seen()
    _, _, slave = servers
    address = f"127.0.0.1:{ports[0]}"
    async with AdminClient(address) as admin:
        for number in range(LASTING_TOPICS):
            await admin.create_topic(f"Lasting{number}", queues=4)
    consumers = [asyncio.ensure_future(consume_for_ever(seen, address, f"Lasting{n}")) for n in range(LASTING_TOPICS)]
    loads: list[Callable[[], Awaitable[None]]] = [
        *(lambda n=n: send_for_ever(seen, address, n) for n in range(3)),  # type: ignore[misc]
        *(lambda n=n: use_names(seen, address, n, options.names // 4) for n in range(4)),  # type: ignore[misc]
        *(lambda n=n: rude_peer(seen, ports[1 - n % 2], n) for n in range(4)),  # type: ignore[misc]
        lambda: trouble_the_slave(seen, slave),
    ]

    async def work(seconds: float) -> None:
        tasks = [asyncio.ensure_future(load()) for load in loads]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in done:
            task.result()
        slave.send(signal.SIGCONT)

    whole_s = options.minutes * 60
    measures: dict[str, dict[str, dict[str, int]]] = {server.name: {} for server in servers}
    say(options, "warm-up")
    await work(whole_s * WARM_UP_SHARE)
    await delete_groups(seen, address, f"127.0.0.1:{ports[1]}")
    await settle(seen)
    for server in servers:
        measures[server.name]["beginning"] = server.measures()
    say(options, f"warm-up: {dict(seen.counts)} {seen.examples}")
    say(options, f"the beginning: {json.dumps({name: found['beginning'] for name, found in measures.items()})}")
    deadline = time.monotonic() + whole_s * (1 - WARM_UP_SHARE)
    while (left := deadline - time.monotonic()) > 1:
        await work(min(left, 600))
        say(
            options,
            f"{left / 60:.0f} minutes were left; {len(seen.acknowledged)} acknowledged; {dict(seen.counts)} {seen.examples}",
        )
    await delete_groups(seen, address, f"127.0.0.1:{ports[1]}")
    await settle(seen)
    for server in servers:
        measures[server.name]["end"] = server.measures()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.wait(consumers)
    return seen, measures


async def delete_groups(seen: Seen, address: str, master: str) -> None:
    """Delete the consumer groups that clients of the soak test have created, also groups that a pull created again after their
    deletion."""
    async with AdminClient(address) as admin:
        for group in await admin.group_configs(master):
            if group.startswith(("rude", "group")):
                with note_errors(seen, "drop"):
                    await admin.delete_group(group, remove_offset=True)


async def settle(seen: Seen) -> None:
    """Wait until every acknowledged message is delivered, but not longer than four times :data:`SETTLE_S`. Wait at least
    :data:`SETTLE_S`, so that servers close idle connections."""
    began = time.monotonic()
    while time.monotonic() < began + 4 * SETTLE_S and seen.acknowledged.keys() - seen.delivered.keys():  # noqa: ASYNC110 - for processes
        await asyncio.sleep(1)
    await asyncio.sleep(max(0.0, began + SETTLE_S - time.monotonic()))


def faults(seen: Seen, measures: dict[str, dict[str, dict[str, int]]]) -> list[str]:
    """Return a line of text for each fault that the soak test has found."""
    lost = seen.acknowledged.keys() - seen.delivered.keys()
    found = [f"acknowledged and not delivered: {len(lost)}, {sorted(lost)[:5]}"] if lost else []
    found += [f"wrong message: {text}" for text in seen.wrong[:10]]
    for name, both in measures.items():
        for measure, before in both["beginning"].items():
            after = both["end"][measure]
            limit = (
                max(before * MEMORY_SHARE_MAX, before + MEMORY_MORE_MAX_KB)
                if measure == "memory_kb"
                else before + BOUNDS[measure]
            )
            if after > limit:
                found.append(f"{name}: {measure} was {before} and is {after}")
    return found


def say(options: argparse.Namespace, text: str) -> None:
    if not options.json:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> int:
    """Run the soak test, and print its result; return 0 if it has found no fault, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--names", type=int, default=4000, help="number of names that are used in turn")
    parser.add_argument("--folder", type=Path, help="the folder for the stores (default: a temporary one)")
    parser.add_argument("--json", action="store_true", help="print one object instead of lines")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="flintmq-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    namesrv, master_port, slave_port = (free_port(3) for _ in range(3))

    def broker(name: str, port: int, **more: dict[str, object]) -> dict[str, object]:
        return {
            "broker": {"name": "soak", **more.pop("broker", {})},
            "listen": {"port": port},
            "namesrv": {"addresses": [f"127.0.0.1:{namesrv}"]},
            "ha": {"enable": True, "secret": "the secret of a soak", "sync_interval_ms": "1s", **more.pop("ha", {})},
            "store": {
                "path": str(folder / name),
                "commit_log_file_bytes": "8MiB",
                "retention_bytes": "64MiB",
                "consume_queue_file_bytes": 20_000,
            },
            "flush": {"strategy": "group_commit"},
        }

    followed: dict[str, object] = {"master_address": f"127.0.0.1:{master_port + 1}"}
    servers = [
        Server(folder, "namesrv", "namesrv", {"nameserver": {"port": namesrv}, "store": {"path": str(folder / "namesrv")}}),
        Server(folder, "master", "broker", broker("master", master_port, broker={"role": "async_master"})),
        Server(folder, "slave", "broker", broker("slave", slave_port, broker={"id": 1, "role": "slave"}, ha=followed)),
    ]  # fmt: skip
    try:
        for server in servers:
            server.start()
        seen, measures = asyncio.run(soak(options, folder, servers, (namesrv, master_port)))
    finally:
        for server in reversed(servers):
            server.end()
    found = faults(seen, measures)
    for name in ("master", "slave"):
        verified = subprocess.run(
            [sys.executable, "-m", "flintmq", "store", "verify", str(folder / name)],
            capture_output=True,
            text=True,
            check=False,
        )
        if verified.returncode:
            found.append(f"store verify of the {name}: {verified.stdout[-500:]}")
    answer = {
        "acknowledged": len(seen.acknowledged),
        "delivered": len(seen.delivered),
        "twice": sum(n > 1 for n in seen.delivered.values()),
        "counts": dict(seen.counts),
        "examples": seen.examples,
        "measures": measures,
        "faults": found,
    }
    print(json.dumps(answer, indent=None if options.json else 1))
    if options.folder is None and not found:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
