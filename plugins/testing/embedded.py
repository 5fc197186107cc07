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
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from flintmq.config import load_config
from flintmq.core.broker.sink import until_flushed
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import store_error_kind
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.os_disk import OsDisk
from flintmq.core.record.record import Record
from flintmq.core.testing.clock import VirtualClock
from flintmq.plugins.broker.broker import Broker
from flintmq.plugins.name_server.name_server import NameServer
from flintmq.remoting.client.message import MessageExt, message_of

if TYPE_CHECKING:
    from flintmq.plugins.broker.in_process import PutBatch, Puttable

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
"""Small files, of which none is made ahead; a pause in the debugger and a disk that others have filled do not matter; what
is appended is synced soon, so that retention may delete it as soon as it has expired."""
_TOPIC_KNOWN_S: Final = 5.0
_SYNCED_S: Final = 1.0
_POLL_S: Final = 0.001
_LOOK_S: Final = 0.1
_UNITS: Final = 1000


class UnsyncedDisk(OsDisk):
    """The file system, where the kernel decides when folders and small files get onto the disk.

    A store of a test need not outlive the machine, and a start waits for a dozen syncs otherwise. The log is synced as ever.
    """

    def make_folder(self, folder: Path) -> None:
        with _store_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """Do nothing."""

    def write_file(self, path: Path, data: bytes) -> None:
        with _store_errors(path):
            path.write_bytes(data)

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
        folder: for the store; None makes a temporary one, which is removed at the end.
        settings: ``key=value``, as ``--set`` takes them; they count before :data:`SETTINGS`.
        clock: the broker's time. The name server, like every client, lives in real time.
        plugins: plugin objects beyond those that are installed.

    Raises (at ``__enter__``):
        ConfigError, PluginError, StoreError, RemotingError: as :class:`~flintmq.plugins.broker.broker.Broker` does.
    """

    broker: Broker
    """What it is made of."""
    name_server: NameServer

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Iterable[str] = (),
        clock: Clock = SYSTEM_CLOCK,
        plugins: Iterable[object] = (),
    ) -> None:
        self._folder = folder
        self._settings = (*SETTINGS, *settings)
        self._plugins = tuple(plugins)
        self.clock = clock
        self._held = contextlib.ExitStack()
        self._arrived = threading.Event()
        self._runs = False

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            folder = self._folder
            if folder is None:
                folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-")))
            self.name_server = held.enter_context(NameServer(load_config(None, self._settings, {})))
            own = (f"store.path={folder}", f"namesrv.addresses={self.name_server.address}")
            config = load_config(None, (*own, *self._settings), {})
            self.broker = held.enter_context(
                Broker(config, plugins=self._plugins, clock=self.clock, disk=UnsyncedDisk())
            )
            held.callback(setattr, self, "_runs", False)
            self._held = held.pop_all()
        self._runs = True
        self.broker.state.store.reput.arrived.subscribe(self._tell_arrived)
        if isinstance(self.clock, VirtualClock):
            self.clock.advancing.subscribe(self._wait_until_synced)
            self.clock.advanced.subscribe(self._wait_until_visible)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    @property
    def address(self) -> str:
        """``host:port`` of the broker."""
        return self.broker.address

    @property
    def name_server_address(self) -> str:
        """``host:port`` of the name server, which clients are given."""
        return self.name_server.address

    def put(self, messages: Iterable[Puttable]) -> PutBatch:
        """Store messages without a client; see :meth:`flintmq.plugins.broker.broker.Broker.put`."""
        return self.broker.put(messages)

    def create_topic(self, name: str, queue_nums: int = 4) -> str:
        """Create a topic, and return its name when the name server knows it.

        Raises:
            RefusedError: the broker refuses it.
            TimeoutError: the name server did not learn of it within 5 s.
        """

        async def create() -> None:
            self.broker.state.topics.put(TopicConfig.with_queues(name, queue_nums))

        async def known() -> None:
            async with asyncio.timeout(_TOPIC_KNOWN_S):
                while self.name_server.routes.pick_up_topic_route_data(name) is None:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)

        self.broker.call(create)
        self.name_server.call(known)
        return name

    def messages(self, topic: str) -> list[MessageExt]:
        """Return the messages of a topic that consumers can see, in the order in which they were stored.

        Raises:
            CompressionError: a body is compressed in a way that cannot be undone here.
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
        """Wait, in real time, until consumers can see so many messages of a topic; return all that they can see then.

        Raises:
            TimeoutError: there are fewer after that time; says how many.
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
        """Wake those that wait for messages. On the broker's thread."""
        self._arrived.set()

    def _wait_until_synced(self) -> None:
        """Wait, before time moves, until the log is on disk as far as the flush strategy gets: what is not does not expire."""
        if not self._runs:
            return
        marks = self.broker.state.store.watermarks
        deadline_s = time.monotonic() + _SYNCED_S
        while marks.flushed < marks.wrote and marks.fence_reason is None and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        self._wait_until_visible()

    def _wait_until_visible(self) -> None:
        """Wait until what was stored is as durable as it must be to be read."""
        if not self._runs:
            return
        state = self.broker.state

        async def visible() -> None:
            await until_flushed(state.store.writer.promise())
            state.dispatch()

        self.broker.call(visible)
