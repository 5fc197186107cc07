"""A TCP proxy between a slave and its master, which a test can cut: wholly, or in one direction only."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
from typing import Final

_POLL_S: Final = 0.02
_CHUNK: Final = 65_536
_GIVEN: Final[set[int]] = set()
_GIVING: Final = threading.Lock()


class LinkProxy:
    """Forwards connections to a port on loopback, from a thread of its own."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._stopping = threading.Event()
        self._cut = threading.Event()
        self._deaf_up = threading.Event()
        self._deaf_down = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Ends every connection, and takes no new one until :meth:`heal`."""
        self._cut.set()

    def stop_forwarding(self, *, up: bool = False, down: bool = False) -> None:
        """Connections stay, but nothing gets through any more: ``up`` towards the master, ``down`` towards the slave."""
        if up:
            self._deaf_up.set()
        if down:
            self._deaf_down.set()

    def heal(self) -> None:
        """Everything gets through again; connections that lost something are ended, as a real network's would be."""
        if self._deaf_up.is_set() or self._deaf_down.is_set():
            self._cut.set()
            while self._pairs and self._thread.is_alive():
                self._stopping.wait(_POLL_S)
        for flag in (self._cut, self._deaf_up, self._deaf_down):
            flag.clear()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        self._listener.setblocking(False)
        try:
            while not self._stopping.is_set():
                if self._cut.is_set():
                    self._drop_all()
                self._turn()
        finally:
            self._drop_all()
            self._listener.close()

    def _turn(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            for pair in self._pairs:
                for end in pair:
                    selector.register(end, selectors.EVENT_READ, pair)
            for key, _ in selector.select(_POLL_S):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data in self._pairs:
                    self._forward(key.fileobj, key.data)  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            slave, _ = self._listener.accept()
            if self._cut.is_set():
                slave.close()
                return
            try:
                master = socket.create_connection(("127.0.0.1", self._target_port), timeout=5)
            except OSError:
                slave.close()
                return
            self._pairs.append((slave, master))

    def _forward(self, end: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        slave, master = pair
        other, deaf = (master, self._deaf_up) if end is slave else (slave, self._deaf_down)
        try:
            data = end.recv(_CHUNK)
            if data and not deaf.is_set():
                other.settimeout(5)
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(pair)

    def _drop(self, pair: tuple[socket.socket, socket.socket]) -> None:
        for end in pair:
            end.close()
        if pair in self._pairs:
            self._pairs.remove(pair)

    def _drop_all(self) -> None:
        for pair in list(self._pairs):
            self._drop(pair)


def free_port() -> int:
    """A port that nobody listens at now, given to nobody else of this process, and below those that systems hand out."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)  # not by the seed that all processes of a test run share
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)), _GIVING:
            if port not in _GIVEN:
                _GIVEN.add(port)
                return port
