"""A broker and its name server inside a test, with small files and free ports.

::

    class RemindersTest(unittest.TestCase):
        def setUp(self):
            self.clock = VirtualClock()
            self.broker = self.enterContext(EmbeddedBroker(clock=self.clock))
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from flintmq.config import load_config
from flintmq.core.broker.sink import until_flushed
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import StoreError, store_error_kind
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.os_disk import OsDisk
from flintmq.core.log_events import event_log
from flintmq.core.record.record import Record
from flintmq.programs.broker.broker import Broker
from flintmq.programs.name_server.name_server import NameServer
from flintmq.remoting.client.message import MessageExt, message_of
from flintmq.testing.clock import VirtualClock

if TYPE_CHECKING:
    from flintmq.core.io.disk import Disk
    from flintmq.programs.broker.in_process import PutBatch, Puttable
    from flintmq.testing.faults import Faults

log = event_log("flintmq.testing")

SETTINGS: Final = (
    "listen.port=0",
    "listen.vip=false",
    "listen.loop_blocked_warn_ms=0",
    "nameserver.port=0",
    "store.commit_log_file_bytes=8MiB",
    "store.consume_queue_file_bytes=20000",
    "store.preallocate=false",
    "store.disk_enough_free_bytes=64MiB",
    "store.clean_resource_interval_ms=1m",
    "index.max_hash_slot_num=1000",
    "index.max_index_num=4000",
    "flush.flush_real_time.timed=false",
    "flush.flush_real_time.least_pages=0",
    "flush.commit_real_time.pool_size=2",
    "flush.commit_real_time.interval_ms=5",
    "flush.commit_real_time.least_pages=0",
    "flush.commit_real_time.flush_interval_ms=5",
    "flush.commit_real_time.flush_least_pages=0",
)
"""Settings of each embedded broker. The broker's files are small, and no file is created in advance. The broker is not affected
by a pause in the debugger, nor by other programs that fill the disk. Appended bytes are synced soon, so that retention may
delete the bytes after their messages have expired."""
_TOPIC_KNOWN_S: Final = 5.0
_SYNCED_S: Final = 1.0
_POLL_S: Final = 0.001
_LOOK_S: Final = 0.1
_UNITS: Final = 1000


class UnsyncedDisk(OsDisk):
    """The file system for a test's store, without syncs of folders and small files: the operating system decides when folders
    and small files are written.

    A test's store need not survive a power cut, and a start would wait for about twelve such syncs. The log is synced.
    """

    def make_folder(self, folder: Path) -> None:
        with _store_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """Do nothing: the operating system decides when a folder of a test's store is written."""

    def write_file(self, path: Path, data: bytes) -> None:
        with _store_errors(path):
            path.write_bytes(data)

    def sync_content(self, path: Path) -> None:
        """Do nothing: the operating system decides when a small file of a test's store is written."""

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise store_error_kind(error)(f"{path}: cannot be written: {error.strerror}") from error


class EmbeddedBroker:
    """A broker and a name server, each in a thread of this process, from ``__enter__`` to ``__exit__``. Thread-safe.

    Args:
        folder: the store's folder; None makes a temporary one, which is removed at the end.
        settings: ``key=value``, as ``--set`` takes them; they override :data:`SETTINGS`.
        clock: the broker's clock. The name server and all clients use real time.
        plugins: plugin objects besides the installed ones.
        with_faults: keep the store in memory, and route clients through a connection that :attr:`faults` can cut.
        name_server: the running name server of a cluster, to register with; None starts a new one.
        master: the master that this broker copies, if it is a slave. A slave also needs the setting ``broker.role=slave``.

    Raises (at ``__enter__``):
        ConfigError, PluginError, StoreError, RemotingError: as :class:`~flintmq.programs.broker.broker.Broker` does.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Iterable[str] = (),
        clock: Clock = SYSTEM_CLOCK,
        plugins: Iterable[object] = (),
        with_faults: bool = False,
        name_server: NameServer | None = None,
        master: EmbeddedBroker | None = None,
    ) -> None:
        self._folder = folder
        self._settings = (*SETTINGS, *settings)
        self._plugins = tuple(plugins)
        self.clock = clock
        self._with_faults = with_faults
        self._name_server = name_server
        self._master = master
        self._broker: Broker | None = None
        self._faults: Faults | None = None
        self._kept_ports: tuple[str, ...] = ()
        """Settings with the ports that the broker got at its first start. At each later start, the broker listens at these
        ports again."""
        self._held = contextlib.ExitStack()
        self._arrived = threading.Event()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            if self._folder is None:
                self._folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-")))
                held.callback(setattr, self, "_folder", None)
            if self._name_server is None:
                self._name_server = held.enter_context(NameServer(load_config(None, self._settings, {})))
                held.callback(setattr, self, "_name_server", None)
            if self._with_faults:
                from flintmq.testing.faults import Faults

                self._faults = held.enter_context(contextlib.closing(Faults(self)))
            held.callback(self.stop)
            self.start()
            self._held = held.pop_all()
        if isinstance(self.clock, VirtualClock):
            self.clock.advancing.subscribe(self._wait_until_synced)
            self.clock.advanced.subscribe(self._wait_until_visible)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._held.__exit__(*exception)

    def start(self) -> None:
        """Start the broker after :meth:`stop`, at the same address as before. Does nothing while it runs.

        Raises:
            ConfigError, PluginError, StoreError, RemotingError: the broker does not start.
        """
        if self._broker is not None:
            return
        own = [f"store.path={self._folder}", f"namesrv.addresses={self.name_server.address}"]
        disk: Disk = UnsyncedDisk()
        if self._faults is not None:
            disk = self._faults.disk
            own.append(f"listen.advertised_port={self._faults.wire.port}")
            if self._master is not None:
                link = self._faults.master_wire("127.0.0.1", self._master.broker.ha_port)
                own.append(f"ha.master_address=127.0.0.1:{link.port}")
        config = load_config(None, [*own, *self._settings, *self._kept_ports], {})
        broker = Broker(config, plugins=self._plugins, clock=self.clock, disk=disk).__enter__()
        self._kept_ports = (f"listen.port={broker.port}", f"listen.ha_port={broker.ha_port}")
        if self._faults is not None:
            self._faults.wire.target = (config.config.listen.host, broker.port)
        broker.state.store.reput.arrived.subscribe(self._tell_arrived)
        self._broker = broker

    def stop(self) -> None:
        """Stop the broker in good order; the name server keeps running. Does nothing while the broker is stopped."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.__exit__(None, None, None)

    def abandon(self) -> None:
        """Stop the broker after a simulated power cut of its disk. The stop raises a StoreError, which is logged."""
        try:
            self.stop()
        except StoreError as error:
            log.info("testing.broker_ended", "a broker without a disk has ended: %(error)s", error=error)

    @property
    def runs(self) -> bool:
        """Whether the embedded broker runs."""
        return self._broker is not None

    @property
    def broker(self) -> Broker:
        """The running broker, which is another object after each :meth:`start`. Raises ``RuntimeError`` while the broker does
        not run."""
        if self._broker is None:
            raise RuntimeError("the broker does not run: use it in a with statement, and not after stop()")
        return self._broker

    @property
    def name_server(self) -> NameServer:
        """The embedded broker's name server. Raises ``RuntimeError`` outside the ``with`` statement."""
        if self._name_server is None:
            raise RuntimeError("the name server does not run: use it in a with statement")
        return self._name_server

    @property
    def faults(self) -> Faults:
        """The faults of the embedded broker that a test can script. Raises ``RuntimeError`` without ``with_faults=True``."""
        if self._faults is None:
            raise RuntimeError("this broker has no faults: make it with EmbeddedBroker(with_faults=True)")
        return self._faults

    @property
    def address(self) -> str:
        """The address ``host:port`` of the embedded broker."""
        return self.broker.address

    @property
    def name_server_address(self) -> str:
        """The address ``host:port`` of the embedded broker's name server, for clients."""
        return self.name_server.address

    def put(self, messages: Iterable[Puttable]) -> PutBatch:
        """Store messages in the embedded broker without a client; see :meth:`flintmq.programs.broker.broker.Broker.put`."""
        return self.broker.put(messages)

    def create_topic(self, name: str, queue_nums: int = 4) -> str:
        """Create a topic, and return the topic's name once the name server knows the topic.

        Raises:
            RefusedError: the broker refuses the topic.
            TimeoutError: the name server did not learn of the topic within 5 s.
        """

        async def create() -> None:
            self.broker.state.topics.put(TopicConfig.with_queues(name, queue_nums))

        broker_name = self.broker.config.broker.name

        async def known() -> None:
            async with asyncio.timeout(_TOPIC_KNOWN_S):
                while not self._serves(name, broker_name):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)

        self.broker.call(create)
        self.name_server.call(known)
        return name

    def _serves(self, topic: str, broker_name: str) -> bool:
        """Return whether the name server knows that a broker has a topic. Runs on the name server's thread."""
        route = self.name_server.routes.pick_up_topic_route_data(topic)
        return route is not None and any(queues.broker_name == broker_name for queues in route.queue_datas)

    def messages(self, topic: str) -> list[MessageExt]:
        """Return the messages of a topic that consumers can see, in the order in which they were stored.

        Raises:
            CompressionError: a body is compressed in a way that FlintMQ cannot decompress.
        """

        async def read() -> list[MessageExt]:
            return [message_of(record, self.broker.config.broker.name) for record in self._records(topic)]

        return self.broker.call(read)

    def _records(self, topic: str) -> list[Record]:
        store = self.broker.state.store
        places: list[int] = []
        for (name, _queue_id), queue in list(store.consume_queues.queues.items()):
            queue_offset, end = queue.min_queue_offset, queue.max_queue_offset
            while name == topic and queue_offset < end:
                found = [physical for physical, _size, _code in queue.units(queue_offset, _UNITS)]
                if not found:
                    break
                places += found
                queue_offset += len(found)
        records = map(store.reader.message_at, sorted(places))
        return [record for record in records if record is not None and record.topic == topic]

    def wait_for_messages(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[MessageExt]:
        """Wait, in real time, until consumers can see ``count`` messages of a topic; return all messages that consumers can see
        then.

        Raises:
            TimeoutError: consumers see fewer messages after ``timeout_s``; the error says how many.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._arrived.clear()
            found = self.messages(topic)
            left_s = deadline_s - time.monotonic()
            if len(found) >= count:
                return found
            if left_s <= 0:
                raise TimeoutError(f"{topic} has {len(found)} messages after {timeout_s:g} s, not {count}")
            self._arrived.wait(min(left_s, _LOOK_S))

    def _tell_arrived(self, _batch: object) -> None:
        """Wake the threads that wait for messages of the embedded broker. Runs on the broker's thread."""
        self._arrived.set()

    def _wait_until_synced(self) -> None:
        """Wait until the flush strategy has synced the log. Called before a test moves the time, because messages that are not
        synced do not expire."""
        if self._broker is not None:
            marks = self._broker.state.store.watermarks
            self._wait_while(lambda: marks.flushed < marks.wrote)
            self._wait_until_visible()

    def _wait_until_visible(self) -> None:
        """Wait until all stored bytes have left the transient store pool, and are durable enough for consumers to read them."""
        if self._broker is None:
            return
        state = self._broker.state
        marks = state.store.watermarks
        self._wait_while(lambda: marks.committed < marks.wrote)

        async def visible() -> None:
            await until_flushed(state.store.writer.promise())
            state.dispatch()

        self._broker.call(visible)

    def _wait_while(self, behind: Callable[[], bool]) -> None:
        """Wait as long as ``behind`` returns true, but for at most 1 s. ``behind`` returns whether the flush strategy still has
        bytes to write. The time is limited because a fault may have stopped the flush strategy."""
        assert self._broker is not None
        marks = self._broker.state.store.watermarks
        deadline_s = time.monotonic() + _SYNCED_S
        while behind() and marks.fence_reason is None and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
