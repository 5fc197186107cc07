"""Runs a broker behind a proxy, in a separate process. Commands make the process cause faults for the broker's clients.

The process prints ``READY namesrv=HOST:PORT`` when the broker serves. Then it reads commands, one a line. ``trouble`` begins
the faults. ``calm`` ends the faults and restarts the broker; the answer is ``CALM`` and the count of each kind of fault, as
JSON. The process ends at the end of its input. The clients run in another process, because their memory, descriptors and
threads are measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import struct
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from flintmq.core.io.child_process import read_ready_words

QUIET_S: Final = (0.5, 2.5)
"""Shortest and longest time between two faults of the broker, in seconds."""
FAULT_S: Final = (0.2, 3.5)
"""Shortest and longest duration of a fault of the broker, in seconds."""
RESET: Final = struct.pack("ii", 1, 0)
"""Value of the socket option SO_LINGER with which closing a socket sends a TCP reset."""
SETTINGS: Final = (
    "store.commit_log_file_bytes=16MiB",
    "index.max_hash_slot_num=10000",
    "index.max_index_num=40000",
    "listen.vip=false",
    "transactions.timeout_ms=2000",
    "transactions.check_interval_ms=1000",
    "transactions.check_max=10000",
)


class Proxy:
    """A proxy that forwards connections to a port. The proxy can end connections, refuse new connections, delay bytes, and end
    a connection in the middle of a frame."""

    def __init__(self) -> None:
        self.target_port = 0
        """Port of the broker. It is 0 while the broker does not serve, because another process may listen at the broker's port
        during that time."""
        self.is_refusing = False
        self.is_tearing = False
        """Whether the proxy forwards only half of the next bytes and then ends the connection."""
        self.flows = asyncio.Event()
        self.flows.set()
        self._server: asyncio.Server | None = None
        self._ends: set[StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Start to listen for connections at a free port; return the port."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Stop the proxy from listening for connections."""
        assert self._server is not None
        self._server.close()

    def cut(self) -> None:
        """End every connection through the proxy by a reset."""
        for end in list(self._ends):
            self._reset(end)

    @staticmethod
    def _reset(end: StreamWriter) -> None:
        with contextlib.suppress(OSError):
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.transport.abort()

    async def _accepted(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self.is_refusing or not self.target_port:
            self._reset(writer)
            return
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            self._reset(writer)
            return
        for source, target in ((reader, there), (there_reader, writer)):
            task = asyncio.create_task(self._pump(source, target, writer, there))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: StreamReader, target: StreamWriter, *ends: StreamWriter) -> None:
        self._ends.update(ends)
        try:
            while some := await source.read(65_536):
                await self.flows.wait()
                if self.is_tearing:
                    target.write(some[: len(some) // 2])
                    await target.drain()
                    break
                target.write(some)
                await target.drain()
        except OSError:
            pass  # If one end of the proxied connection is closed, the other end is closed, too.
        finally:
            for end in ends:
                self._ends.discard(end)
                end.close()


class TroubledBroker:
    """A broker with a name server, a proxy in front of each of the two servers, and the faults that the soak test causes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._process: Process | None = None
        self._broker_proxy, self._name_server_proxy = Proxy(), Proxy()
        self._broker_port = self.namesrv_port = 0
        self.counts: Counter[str] = Counter()
        self._deck: list[str] = []
        self._is_calm = asyncio.Event()
        self._troubles: asyncio.Task[None] | None = None
        self._faults: dict[str, Callable[[], Awaitable[None]]] = {
            "killed": self._kill,
            "paused": self._pause,
            "cut": self._cut,
            "refused": self._refuse,
            "stalled": self._stall,
            "torn": self._tear,
            "name server stalled": self._stall_name_server,
        }

    async def start(self) -> None:
        """Start the broker with its name server, and the proxies in front of both servers."""
        self._broker_port = await self._broker_proxy.start()
        self.namesrv_port = await self._name_server_proxy.start()
        await self._start_broker()

    async def _start_broker(self) -> None:
        port, namesrv_port = free_port(), free_port()
        words = ["--store", str(self._folder / "store"), "--log-level", "warning"]
        # The broker's own port is chosen here, because the READY line names only the advertised port, which is the proxy's.
        words += ["--port", str(port), "--namesrv-port", str(namesrv_port)]
        advertised = ("listen.advertised_host=127.0.0.1", f"listen.advertised_port={self._broker_port}")
        for setting in (*SETTINGS, *advertised):
            words += ["--set", setting]
        with open(self._folder / "broker.log", "ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "flintmq", "run", *words, stdin=DEVNULL, stdout=PIPE, stderr=log
            )
        ready = await read_ready_words(self._process, lambda line: None)
        if not ready:
            raise RuntimeError(f"the broker did not start: see {self._folder / 'broker.log'}")
        self._broker_proxy.target_port, self._name_server_proxy.target_port = port, namesrv_port

    def begin_trouble(self) -> None:
        """Start to cause a fault of the broker every few seconds, until :meth:`calm`."""
        self._is_calm.clear()
        self._troubles = asyncio.create_task(self._make_trouble(), name="trouble")

    async def calm(self) -> None:
        """Stop causing faults, and restart the broker, so that the broker holds no lock of a client that has ended."""
        self._is_calm.set()
        if self._troubles is not None:
            await self._troubles
            self._troubles = None
            await self._kill()
            self._broker_proxy.cut()
            self._name_server_proxy.cut()

    async def end(self) -> None:
        """Stop causing faults, and end the broker and its proxies."""
        self._is_calm.set()
        await self.calm()
        self._signal(signal.SIGTERM)
        assert self._process is not None
        await self._process.wait()
        self._broker_proxy.close()
        self._name_server_proxy.close()

    async def _make_trouble(self) -> None:
        while not await self._is_calm_within(QUIET_S):
            # Each kind of fault occurs once before any kind is repeated.
            if not self._deck:
                self._deck = list(self._faults)
                self._chance.shuffle(self._deck)
            name = self._deck.pop()
            await self._faults[name]()
            self.counts[name] += 1

    async def _is_calm_within(self, seconds: tuple[float, float]) -> bool:
        try:
            async with asyncio.timeout(self._chance.uniform(*seconds)):
                await self._is_calm.wait()
        except TimeoutError:
            return False
        return True

    def _signal(self, number: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    async def _kill(self) -> None:
        self._broker_proxy.target_port = self._name_server_proxy.target_port = 0
        self._signal(signal.SIGKILL)
        assert self._process is not None
        await self._process.wait()
        await self._is_calm_within((0.0, 2.0))
        await self._start_broker()

    async def _pause(self) -> None:
        self._signal(signal.SIGSTOP)
        await self._is_calm_within(FAULT_S)
        self._signal(signal.SIGCONT)

    async def _cut(self) -> None:
        self._broker_proxy.cut()
        self._name_server_proxy.cut()

    async def _refuse(self) -> None:
        self._broker_proxy.is_refusing = True
        self._broker_proxy.cut()
        await self._is_calm_within(FAULT_S)
        self._broker_proxy.is_refusing = False

    async def _stall(self) -> None:
        await self._stalled(self._broker_proxy)

    async def _stall_name_server(self) -> None:
        await self._stalled(self._name_server_proxy)

    async def _stalled(self, proxy: Proxy) -> None:
        proxy.flows.clear()
        await self._is_calm_within(FAULT_S)
        # In half of the cases, the delayed bytes are lost; otherwise the bytes arrive late.
        if self._chance.random() < 0.5:
            proxy.cut()
        proxy.flows.set()

    async def _tear(self) -> None:
        self._broker_proxy.is_tearing = True
        await self._is_calm_within((0.2, 0.5))
        self._broker_proxy.is_tearing = False


def free_port() -> int:
    """Return a free port below the range of ephemeral ports. No outgoing connection can use the port before the broker binds
    it."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


async def serve(folder: Path, seed: int) -> None:
    """Run the broker with its proxies, and execute the commands on standard input until the end of the input."""
    words = StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    broker = TroubledBroker(folder, seed)
    await broker.start()
    print(f"READY namesrv=127.0.0.1:{broker.namesrv_port}", flush=True)
    try:
        while word := (await words.readline()).strip():
            if word == b"trouble":
                broker.begin_trouble()
            else:
                await broker.calm()
                print("CALM", json.dumps(broker.counts), flush=True)
    finally:
        await broker.end()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
