"""Message stores for tests: small files, a manual clock, and a flush that happens at once and on the caller's thread.

::

    with opened(tmp_path) as store:
        store.put([message("orders", body=b"1")])
        store.dispatch()
        assert store.reader.max_queue_offset("orders", 0) == 1
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config.sections.models import BrokerConfig, IndexSection
from flintmq.core.errors import StoreFencedError
from flintmq.core.io.clock import Clock
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import (
    CommitLogDispatcher,
    FlushContext,
    FlushStatistics,
    FlushStatus,
    FlushStrategy,
    TagsCodesFactory,
    TransientStorePool,
)
from flintmq.core.record import properties as props
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.host import pack_host
from flintmq.core.record.properties import AlikeProperties, properties_to_string
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.store import message_store
from flintmq.core.store.message_store import MessageStore as MessageStore
from flintmq.core.store.opened_store import StoreSpec
from flintmq.core.waiters import DONE, FENCED, CompletedWaiter
from flintmq.dispatchers.consume_queue.consume_queue_table import make_consume_queues
from flintmq.dispatchers.index.index_service import make_index
from flintmq.testing.clock import ManualClock

TAGS_CODES: Final[dict[str, TagsCodesFactory]] = {}
"""Factories of tags codes for the stores that this module opens, keyed by topic. The tests of a feature can add factories for
the feature's topics."""
_HOST: Final = pack_host("127.0.0.1", 10911)


class ImmediateFlush:
    """A flush service without a thread: ``submit`` commits and syncs before it returns."""

    def __init__(self, context: FlushContext[object]) -> None:
        self._log = context.log
        self._submits = 0
        self._syncs = 0
        self._synced_bytes = 0

    def start(self) -> None:
        """Do nothing: the flush service has no thread to start."""

    def stop(self) -> None:
        # StoreFencedError is ignored, because the store has already noticed that the log is fenced.
        with contextlib.suppress(StoreFencedError):
            self.sync(self._log.wrote_offset_bytes)

    def submit(self, end_offset_bytes: int) -> CompletedWaiter:
        self._submits += 1
        try:
            self.sync(end_offset_bytes)
        except StoreFencedError:
            return FENCED
        done = self._log.flushed_offset_bytes >= end_offset_bytes
        return DONE if done else CompletedWaiter(FlushStatus.TIMEOUT)

    def sync(self, end_offset_bytes: int) -> None:
        """Commit and sync the log up to a position, or until a call makes no progress. Raises StoreFencedError."""
        before = -1
        while before < self._log.committed_offset_bytes < end_offset_bytes:
            before = self._log.committed_offset_bytes
            self._log.commit(0)
        before = -1
        while before < self._log.flushed_offset_bytes < end_offset_bytes:
            before = self._log.flushed_offset_bytes
            self._synced_bytes += self._log.flush(0) - before
            self._syncs += 1

    def statistics(self) -> FlushStatistics:
        return FlushStatistics(self._syncs, self._synced_bytes, self._submits, 0, 0.0)


class FlushByHand(ImmediateFlush):
    """A flush service whose ``submit`` does nothing: the test commits and flushes the commit log, or stops the store."""

    def submit(self, end_offset_bytes: int) -> CompletedWaiter:
        return DONE


IMMEDIATE: Final = FlushStrategy("immediate", ImmediateFlush, synchronous=True)
"""Flush strategy with which messages are durable when ``put`` returns, and cannot be read before they are durable."""
BY_HAND: Final = FlushStrategy("by_hand", FlushByHand)
"""Flush strategy with which messages are readable when ``put`` returns (with a transient store pool: after a commit), and
durable after a flush."""
BY_HAND_SYNCHRONOUS: Final = FlushStrategy("by_hand_synchronous", FlushByHand, synchronous=True)
"""Flush strategy with which messages become readable and durable only when the test flushes the log."""


def store_spec(
    path: Path,
    *,
    config: BrokerConfig | None = None,
    strategy: FlushStrategy[Any] = IMMEDIATE,
    disk: Disk = OS_DISK,
    clock: Clock | None = None,
    pool: TransientStorePool | None = None,
    settings: object = None,
    tags_codes: Mapping[str, TagsCodesFactory] = TAGS_CODES,
    commit_log_file_bytes: int = 4096,
    consume_queue_file_bytes: int = 200,
    max_hash_slot_num: int = 16,
    max_index_num: int = 64,
    takes_writes: Callable[[], bool] = lambda: True,
    **options: Any,
) -> StoreSpec:
    """Return the arguments for opening a store: with the built-in queues and index, and without files that are created in
    advance.

    A ``config`` replaces the arguments for sizes; ``path`` replaces the store's path in ``config``. ``options`` are further
    settings of the section ``store``.
    """
    section: dict[str, Any] = {"preallocate": False, **options, "path": str(path)}
    if config is None:
        section |= {
            "commit_log_file_bytes": commit_log_file_bytes,
            "consume_queue_file_bytes": consume_queue_file_bytes,
        }
        config = BrokerConfig(index=IndexSection(max_hash_slot_num=max_hash_slot_num, max_index_num=max_index_num))
    config = attrs.evolve(config, store=attrs.evolve(config.store, **section))
    return StoreSpec(
        config=config,
        strategy=strategy,
        tags_codes=tags_codes,
        make_queues=make_consume_queues,
        make_index=make_index,
        settings=settings,
        pool=pool,
        disk=disk,
        clock=clock if clock is not None else ManualClock(),
        takes_writes=takes_writes,
    )


def start_store(spec: StoreSpec, *more: CommitLogDispatcher) -> MessageStore:
    """Open a store with queues, index and further dispatchers. The caller closes the store."""
    return message_store.open_store(spec, lambda opened: [opened.consume_queues, opened.index, *more])


def open_store(path: Path, *more: CommitLogDispatcher, **arguments: Any) -> MessageStore:
    """Open a store with queues, index and further dispatchers (``more``) in the folder ``path``. ``arguments`` are the keyword
    arguments of :func:`store_spec`, such as file sizes and the flush strategy. The caller closes the store."""
    return start_store(store_spec(path, **arguments), *more)


@contextlib.contextmanager
def opened(path: Path, *more: CommitLogDispatcher, **arguments: Any) -> Iterator[MessageStore]:
    """Open a store as :func:`open_store` does, and close the store at the end of the ``with`` block, also after an error."""
    store = open_store(path, *more, **arguments)
    try:
        yield store
    finally:
        store.close()


def batch(members: Sequence[MessageExtBrokerInner]) -> MessageBatch:
    """Return a batch of messages of one topic and queue, as the broker makes it from a request to send a batch."""
    first = members[0]
    stored = [member.properties_bytes for member in members]
    return MessageBatch(
        first.topic,
        first.queue_id,
        [member.flag for member in members],
        [member.body for member in members],
        AlikeProperties.found_in(stored) or stored,
        first.born_timestamp_ms,
        first.born_host,
        first.store_host,
        first.sys_flag,
        wait=first.wait,
    )


def message(
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"",
    *,
    tags: str = "",
    keys: str = "",
    uniq_key: str = "",
    born_host: bytes = _HOST,
    store_host: bytes = _HOST,
    born_timestamp_ms: int = 1_700_000_000_000,
    flag: int = 0,
    sys_flag: int = 0,
    prepared_transaction_offset_bytes: int = 0,
    wait: bool = True,
    **properties: str,
) -> MessageExtBrokerInner:
    """Return a message that is ready to be put; ``properties`` are the message's properties besides tags and keys, by name."""
    named = {props.TAGS: tags, props.KEYS: keys, props.UNIQ_KEY: uniq_key, **properties}
    kept = {name: value for name, value in named.items() if value}
    return MessageExtBrokerInner(
        topic,
        queue_id,
        body,
        kept,
        properties_to_string(kept).encode(),
        born_timestamp_ms,
        born_host,
        store_host,
        flag,
        sys_flag,
        0,
        prepared_transaction_offset_bytes,
        wait,
    )


def snapshot(root: Path, *folders: str) -> dict[str, bytes]:
    """Return the content of every file below a folder, or below the named folders in it, keyed by the file's path relative to
    the folder."""
    tops = [root / folder for folder in folders] or [root]
    return {
        str(path.relative_to(root)): path.read_bytes()
        for top in tops
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }
