"""Rebuilds queues and index from the log with the broker's own code. The old queues and index are kept in the folder
``flint``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import StoreError, StoreFormatError
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import (
    CommitLogDispatcher,
    FlushContext,
    FlushStatistics,
    FlushStrategy,
    FlushWaiter,
    RecordBatch,
)
from flintmq.core.log.store_lock import StoreLock
from flintmq.core.log_events import event_log
from flintmq.core.record.log_walk import Kind
from flintmq.core.record.queue_unit import UNIT_BYTES
from flintmq.core.recovery.ends import EndsFile
from flintmq.core.store.message_store import MessageStore, open_store
from flintmq.core.store.opened_store import OpenedStore, StoreSpec
from flintmq.core.waiters import DONE
from flintmq.dispatchers.consume_queue.consume_queue_table import make_consume_queues
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS, DelayTagsCodes, tags_codes_with
from flintmq.dispatchers.index.index_service import make_index
from flintmq.programs.doctor.delays import delays_of
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.walk import walk

log = event_log("flintmq.store")

DERIVED = ("consumequeue", "consumequeue_ext", "index")
"""Names of the store's folders whose content can be rebuilt from the commit log."""


class _Idle:
    """A flush service that does nothing, for a store without appends."""

    def start(self) -> None:
        """Do nothing: this flush service has nothing to start."""

    def stop(self) -> None:
        """Do nothing: this flush service has nothing to stop."""

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        return DONE

    def statistics(self) -> FlushStatistics:
        return FlushStatistics(0, 0, 0, 0, 0.0)


def _idle(_context: FlushContext[object]) -> _Idle:
    return _Idle()


IDLE: Final = FlushStrategy("idle", _idle)
"""The flush strategy of a store to which nothing is appended."""


class _Progress:
    """Reports how many bytes of the log are dispatched while queues and index are rebuilt."""

    def __init__(self, store: OpenedStore, progress: Callable[[int], None]) -> None:
        self._store = store
        self._progress = progress

    def dispatch(self, batch: RecordBatch) -> None:
        self._progress(batch.end_offset_bytes - self._store.commit_log.min_offset_bytes)


def fitting(config: BrokerConfig, files: StoreFiles) -> BrokerConfig:
    """Return a configuration with the file sizes of a store, as far as its files show them.

    Raises:
        StoreFormatError: the files have sizes that no broker uses.
    """
    sizes: dict[str, Any] = {}
    if files.log_file_bytes:
        sizes["commit_log_file_bytes"] = files.log_file_bytes
    for topic, queue_id, parts in files.queues():
        size = max((part.size for part in parts), default=0)
        if size and size % UNIT_BYTES == 0:
            sizes["consume_queue_file_bytes"] = size
            ext = files.ext_files(topic, queue_id)
            if ext and ext[0].size:
                sizes["consume_queue_ext_file_bytes"] = ext[0].size
            break
    index = config.index
    try:
        store = attrs.evolve(config.store, path=str(files.root), **sizes)
        for path in files.index_paths():
            with contextlib.suppress(StoreError):
                _file, geometry = files.index_file(path)
                index = attrs.evolve(index, max_hash_slot_num=geometry.slots, max_index_num=geometry.entries)
                break
    except ConfigError as error:
        raise StoreFormatError(f"{files.root}: its files have sizes that no broker creates: {error}") from error
    return attrs.evolve(config, store=store, index=index)


def log_folders(config: BrokerConfig) -> list[Path]:
    """Return the folders of the commit log if it has several folders; empty if it has only one."""
    return [Path(path) for path in (*config.store.commit_log_paths, *config.store.read_only_commit_log_paths)]


def warn_of_guessed_delays(store: MessageStore) -> None:
    """Log a warning about delay levels whose delays are unknown: the rebuilt queues give the messages of these levels
    RocketMQ's default delays."""
    rule = store.commit_log.tags_codes[SCHEDULE_TOPIC]
    assert isinstance(rule, DelayTagsCodes)
    times = rule.times
    guessed = sorted(
        queue.queue_id + 1
        for queue in store.consume_queues.queues.values()
        if queue.topic == SCHEDULE_TOPIC and not times.levels.get(queue.queue_id + 1)
    )
    if guessed:
        log.warning(
            "delay.levels_guessed",
            "messages of delay levels %(levels)s are due by RocketMQ's own levels now: the store does not say which "
            "its broker had; if others, do it again with --set delay.levels=… as the broker's (messageDelayLevel)",
            levels=", ".join(map(str, guessed)),
        )


def has_damage(files: StoreFiles, config: BrokerConfig, progress: Callable[[int], None] | None = None) -> bool:
    """Return whether the log is damaged before its end.

    Raises:
        StoreFormatError: the log is damaged, and the configuration has ``compat: strict``, with which a broker's start would
            cut off the messages after the damage.
    """
    for piece in walk(files, progress):
        if piece.kind is Kind.DAMAGE:
            if config.store.compat == "strict":
                raise StoreFormatError(
                    f"commit log {piece.start}..{piece.end} is damaged ({piece.reason}), and messages follow the damage. "
                    "store.compat is strict, so the repair would remove these messages; flintmq store salvage copies them"
                )
            return True
    return False


def set_aside(root: Path) -> Path | None:
    """Move queues, index and checkpoint to ``flint/replaced/<time>``, and return that folder; None if the store has none of
    them."""
    there = [root / name for name in (*DERIVED, "checkpoint") if (root / name).exists()]
    if not there:
        return None
    kept = root / "flint" / "replaced" / time.strftime("%Y%m%d-%H%M%S")
    number = 0
    while kept.exists():
        number += 1
        kept = kept.with_name(f"{kept.name.partition('-r')[0]}-r{number}")
    kept.mkdir(parents=True)
    for path in there:
        path.rename(kept / path.name)
    return kept


def rebuild(
    root: Path,
    config: BrokerConfig,
    delay_level_ms: Mapping[int, int] | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    damaged: bool = False,
) -> tuple[int, Path | None]:
    """Recover the log, and rebuild queues and index.

    Args:
        root: the store; no broker may have it open.
        config: the configuration; see :func:`fitting`.
        delay_level_ms: milliseconds by delay level from the operator, for records whose delays the store's file of delay levels
            does not contain.
        progress: called with the number of bytes of the log that are done.
        damaged: the result of :func:`has_damage`. If true, all of the log is recovered, even after a clean stop.

    Returns:
        The physical offset of the log's end, and the folder with the old queues and index.

    Raises:
        StoreLockedError: a broker runs on the store; nothing has changed.
        StoreError: the log cannot be read, or the disk is full. Rebuild again after fixing the cause.
    """
    # The lock keeps a broker from starting on the store while the store's files are moved.
    lock = StoreLock(root)
    try:
        # The delay of each delay level is saved before set_aside() moves the consume queues away.
        # In a store that RocketMQ has written, only the consume queues of delayed messages show the delay of each level.
        delays_of(StoreFiles(root, log_folders=log_folders(config)), delay_level_ms).keep(root)
        # set_aside() also moves the checkpoint file away, because the file refers to the consume queues that are moved away.
        # Without a checkpoint file, a broker that starts after a crash reads the whole log and fills the new consume queues.
        kept = set_aside(root)
        if damaged:
            (root / "abort").touch()
        EndsFile(OS_DISK, root).accept()
    finally:
        lock.release()
    with opened(config, delay_level_ms, progress) as store:
        warn_of_guessed_delays(store)
        return store.watermarks.wrote, kept


@contextlib.contextmanager
def opened(
    config: BrokerConfig, delay_level_ms: Mapping[int, int] | None = None, progress: Callable[[int], None] | None = None
) -> Iterator[MessageStore]:
    """Open and start a store without a broker, with up-to-date queues and index. The store takes no appends.

    If neither the store's file of delay levels nor ``delay_level_ms`` contain a delay level, the level has RocketMQ's default
    delay.

    Raises:
        StoreError: the store cannot be opened, or its log cannot be read.
    """

    def dispatchers(found: OpenedStore) -> Iterator[CommitLogDispatcher]:
        yield found.consume_queues
        if config.index.enable:
            yield found.index
        if progress is not None:
            yield _Progress(found, progress)

    with contextlib.closing(open_store(spec_of(config, delay_level_ms), dispatchers)) as store:
        yield store


def spec_of(config: BrokerConfig, delay_level_ms: Mapping[int, int] | None = None, disk: Disk = OS_DISK) -> StoreSpec:
    """Return the specification of a store with the built-in queues and index, which takes no appends."""
    return StoreSpec(
        config=config,
        strategy=IDLE,
        tags_codes={SCHEDULE_TOPIC: partial(tags_codes_with, delay_level_ms or DELAY_LEVEL_MS)},
        make_queues=make_consume_queues,
        make_index=make_index,
        disk=disk,
    )
