"""Bent requests to whole servers: accepted, refused, or the connection is closed; never an accident, never for long.

The servers have no sockets here, so that hundreds of thousands of requests fit into a test: each goes through the frame
decoder, the header and body decoders, access control where it is on, the processors and the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from faults import watched_log
from mutants import Mutants
from seeds import Seed, seeds
from wireless import Link

import flintmq
from flintmq.config import LoadedConfig, load_config
from flintmq.remoting.server.server import RemotingServer
from flintmq.remoting.wire.command import JSON, decode_json_header

ROUNDS = 5
"""Servers live for a round: what one leaves behind in the process is seen in the next ones."""
TURN = 64
"""Requests between two turns of the loop."""
SLOW_S = 0.050
RETRIES = 5
"""A request that took long is asked again: the machine may have been busy with something else, such as a page fault."""
GROWTH_BYTES = 4 * 1024 * 1024
"""What most rounds may add, 100 bytes a frame: a leak adds to each. One round alone may need more than those before it, for the
table of a topic with 65,536 queues, say, and the allocator keeps that."""
ALL_BYTES = 256 * 1024 * 1024
ADMIN = "fuzz-admin"


def config_of(folder: Path, *overrides: str) -> LoadedConfig:
    settings = [
        "listen.port=0", "listen.vip=false", "nameserver.port=0", "store.commit_log_file_bytes=16MiB",
        "store.consume_queue_file_bytes=20000", "index.max_hash_slot_num=1000", "index.max_index_num=4000",
        "pull.property_filter=true", f"store.path={folder}", "groups.auto_create=true", *overrides,
    ]  # fmt: skip
    return load_config(None, settings, {})


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """The collector's walks through everything that pytest has loaded are not the servers' time."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Fuzzer:
    """Feeds one server and judges what it does. Used only on the event loop's thread."""

    def __init__(self, server: RemotingServer, mutants: Mutants) -> None:
        self._server = server
        self._mutants = mutants
        self._link = Link(server)
        self.outcomes: Counter[str] = Counter()
        self.slow: list[tuple[float, bytes]] = []
        self.slowest_s = 0.0

    async def run(self, count: int) -> None:
        """Sends so many frames, some in one read with others."""
        for number in range(count):
            frame = self._mutants.frame()
            seconds = self._timed(frame)
            await until_served(self._server)
            self._judge(frame, seconds)
            if number % TURN == 0:
                begin_s = time.thread_time()
                await asyncio.sleep(0)
                self._note(time.thread_time() - begin_s, b"a turn of the loop")
        self._link.close()
        await asyncio.sleep(0)

    def _timed(self, frame: bytes) -> float:
        if not self._link.is_open or self._link.is_waiting:
            self._link.close()
            self._link = Link(self._server)
        begin_s = time.thread_time()
        self._link.feed(frame)
        return time.thread_time() - begin_s

    def _judge(self, frame: bytes, seconds: float) -> None:
        answers = self._link.written()
        if not self._link.is_open:
            self.outcomes["closed"] += 1
        elif self._link.is_waiting:
            self.outcomes["unfinished"] += 1
        for answer in answers:
            if answer.is_response:
                self.outcomes["accepted" if answer.code == 0 else "refused"] += 1
            else:
                self.outcomes["told"] += 1
        if not answers and self._link.is_open and not self._link.is_waiting:
            self.outcomes["silent"] += 1
        if seconds > SLOW_S:
            seconds = min(seconds, *(self._timed(frame) for _ in range(RETRIES)))
            self._link.written()
        self._note(seconds, frame)

    def _note(self, seconds: float, frame: bytes) -> None:
        if seconds > SLOW_S:
            self.slow.append((seconds, frame))
        self.slowest_s = max(self.slowest_s, seconds)


@contextlib.asynccontextmanager
async def servers(folder: Path, *, closed: bool) -> AsyncIterator[list[RemotingServer]]:
    """A broker and a name server; closed ones have access control, which the mutants do not pass."""
    overrides = ["namesrv.addresses="]
    if closed:
        file = folder / "acl.yml"
        folder.mkdir(parents=True)
        file.write_text(f"accounts:\n- {{accessKey: {ADMIN}, secretKey: a secret of ours, admin: true}}\n")
        file.chmod(0o600)
        overrides += ["acl.enable=true", "nameserver.acl_enable=true", f"acl.file={file}"]
    config = config_of(folder / "store", *overrides)
    async with flintmq.NameServer(config) as names, flintmq.Broker(config) as broker:
        yield [broker.server, names.server]
        await asyncio.sleep(0)
        assert not broker.server.connections.channels
        assert not names.server.connections.channels
        state = broker.state
        assert not len(state.consumers), "connections that are gone leave members behind"
        assert not len(state.producers)
        assert not len(state.outlet.held), "connections that are gone leave held pulls behind"


@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to measure memory")
def test_mutated_requests_to_every_processor_are_answered_or_refused(
    fuzz_frames: int, fuzz_seed: int, tmp_path: Path
) -> None:
    """Whatever arrives is answered, refused or ends its connection, within 50 ms of processor time; nobody's memory grows,
    nothing is left of who has gone, no line of the log is broken, and nothing is written outside of the store."""
    outcomes: Counter[str] = Counter()
    found = seeds()
    sizes: list[int] = []
    slow: list[tuple[float, bytes]] = []
    slowest_s = 0.0

    async def one_round(number: int, count: int) -> None:
        nonlocal slowest_s
        closed = number == 1
        async with servers(tmp_path / str(number), closed=closed) as both:
            for server, part in zip(both, (count * 4 // 5, count - count * 4 // 5), strict=True):
                fuzzer = Fuzzer(server, Mutants(fuzz_seed + number * 2 + (server is both[0]), found))
                await fuzzer.run(part)
                outcomes.update(fuzzer.outcomes)
                slow.extend(fuzzer.slow)
                slowest_s = max(slowest_s, fuzzer.slowest_s)

    begin_s = time.process_time()
    with watched_log(), no_collector():
        for number in range(ROUNDS):
            asyncio.run(one_round(number, fuzz_frames // ROUNDS))
            gc.collect()
            sizes.append(resident_bytes())
    spent_s = time.process_time() - begin_s
    print(
        f"{fuzz_frames} frames in {spent_s:.1f} s of processor time, slowest {slowest_s * 1000:.1f} ms, {dict(outcomes)}"
    )
    print("resident MiB after each round:", [size >> 20 for size in sizes])
    assert not slow, f"{len(slow)} slow ones, first {slow[0][0] * 1000:.0f} ms: {slow[0][1][:2000]!r}"
    assert statistics.median(after - before for before, after in pairwise(sizes)) < GROWTH_BYTES, sizes
    assert sizes[-1] - sizes[0] < ALL_BYTES, sizes
    for outcome in ("accepted", "refused", "closed"):
        assert outcomes[outcome] > fuzz_frames // 100, outcomes
    assert sorted(path.name for path in tmp_path.iterdir()) == [str(number) for number in range(ROUNDS)]
    assert all(path.name in ("store", "acl.yml") for folder in tmp_path.iterdir() for path in folder.iterdir())


def test_the_servers_accept_most_of_the_unmutated_fuzz_requests(tmp_path: Path) -> None:
    """A fuzzer whose seeds are refused at the door finds nothing: every code with a processor is sent, and most succeed."""
    sent: set[int] = set()
    accepted: list[set[int]] = []

    async def run() -> None:
        async with servers(tmp_path / "open", closed=False) as both:
            for server in both:
                accepted.append(set())
                link = Link(server)
                for seed in seeds():
                    if seed.codec == JSON:
                        code = decode_json_header(seed.header, b"").code
                        sent.add(code)
                        feed(link, seed)
                        await until_served(server)
                        accepted[-1] |= {code for answer in link.written() if answer.is_response and answer.code == 0}
                assert server.table.codes <= sent
                link.close()
                await asyncio.sleep(0)

    with watched_log():
        asyncio.run(run())
    of_broker, of_name_server = accepted
    assert len(of_broker) >= 25, sorted(of_broker)
    assert len(of_name_server) >= 12, sorted(of_name_server)


async def until_served(server: RemotingServer) -> None:
    """What comes in without a turn of the loop waits for one."""
    while len(server.postponed):  # noqa: ASYNC110
        await asyncio.sleep(0)


def feed(link: Link, seed: Seed) -> None:
    word = (seed.codec << 24 | len(seed.header)).to_bytes(4, "big")
    data = word + seed.header + seed.body
    link.feed(len(data).to_bytes(4, "big") + data)
