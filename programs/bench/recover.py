"""Measures how long brokers take to start on a store, and look-ups in it. The measurement works on copies, so the store is not
changed.

A broker is started on a copy four times: on a copy that is marked as crashed (``after_crash_s``), after ``kill -9``
(``after_kill_s``), after an orderly stop (``after_stop_s``), and after queues and index were deleted (``rebuild_s``). Then this
process opens the copy and measures look-ups.

After a *crash* it is not known whether the machine kept running, so all of the log after the checkpoint is walked. After a
*kill* within the same boot of the kernel, all written data is known to exist.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import StoreFormatError
from flintmq.core.store.message_store import MessageStore
from flintmq.programs.bench.machine import machine_facts
from flintmq.programs.cli.child import ServedChild
from flintmq.programs.doctor.export import Wanted, messages
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.rebuild import DERIVED, fitting, opened

LOOKUPS: Final = 300
START_TIMEOUT_S: Final = 600.0
_CHUNK: Final = bytes(1024 * 1024)
_SAMPLE: Final = 20_000
_ALL_TIME_MS: Final = 2**63 - 1


@attrs.frozen
class RecoverResult:
    """The result of one measurement of starts. Times are in seconds from the process's start to its READY line."""

    store: str
    log_bytes: int
    """Number of bytes from the start of the commit log to the end of its last record."""
    records: int
    log_files: int
    after_crash_s: float
    after_kill_s: float
    after_stop_s: float
    rebuild_s: float
    """Time in seconds of a start that rebuilds missing consume queues and a missing index."""
    rebuild_records_per_s: float
    """Number of records per second for which a start rebuilds queue units and index entries. The start that rebuilds takes
    :attr:`rebuild_s`. A start after a clean stop rebuilds nothing, and takes :attr:`after_stop_s`. The number of records is
    divided by the difference of these two times, which is the time of the rebuild alone."""
    index_lookup_us: float
    """Median duration in µs of a query by key, including reading and checking its messages; 0 if no message has a key."""
    offset_by_time_us: float
    """Median duration in µs of a search by time in a consume queue."""

    def as_json(self) -> dict[str, Any]:
        """Return the result of the measured starts as JSON."""
        return {"bench": "recover", **attrs.asdict(self), "machine": machine_facts()}


def bench_recover(store: Path, work: Path, config: BrokerConfig, delay_level_ms: dict[int, int]) -> RecoverResult:
    """Measure starts of brokers on copies of a store, and look-ups of messages in them.

    Args:
        store: the store; it is only read. No broker may run on it.
        work: a folder for one copy.
        config: settings of the measured broker; file sizes come from the store.
        delay_level_ms: milliseconds by delay level.

    Raises:
        StoreError: the store cannot be read.
        CommandError: a broker did not start on a copy.
    """
    copy = work / "store"
    config = fitting(config, StoreFiles(store))
    copy_sparse(store, copy)
    (copy / "abort").touch()
    (copy / "flint" / "boot").unlink(missing_ok=True)
    after_crash_s = _ready_s(copy, config, kill=True)
    after_kill_s = _ready_s(copy, config)
    after_stop_s = _ready_s(copy, config)
    for name in DERIVED:
        shutil.rmtree(copy / name, ignore_errors=True)
    rebuild_s = _ready_s(copy, config)
    fitted = fitting(config, StoreFiles(copy))
    with opened(fitted, delay_level_ms) as open_store:
        marks = open_store.watermarks
        log_start = open_store.commit_log.min_offset_bytes
        records = sum(1 for _ in open_store.commit_log.requests(log_start, marks.wrote))
        sample = _sample(copy)
        lookup_us = _lookup_us(open_store, sample)
        by_time_us = _by_time_us(open_store, sample)
        return RecoverResult(
            str(store),
            marks.wrote - log_start,
            records,
            len(open_store.commit_log.queue.files),
            after_crash_s,
            after_kill_s,
            after_stop_s,
            rebuild_s,
            round(records / max(rebuild_s - after_stop_s, 0.001), 1),
            lookup_us,
            by_time_us,
        )


def _ready_s(store: Path, config: BrokerConfig, *, kill: bool = False) -> float:
    """Start a broker on a store, then stop or kill the broker, and return the seconds until the broker printed READY."""
    sizes = {
        "store.commit_log_file_bytes": config.store.commit_log_file_bytes,
        "store.consume_queue_file_bytes": config.store.consume_queue_file_bytes,
        "index.max_hash_slot_num": config.index.max_hash_slot_num,
        "index.max_index_num": config.index.max_index_num,
    }
    words = [word for key, value in sizes.items() for word in ("--set", f"{key}={value}")]
    begin_s = time.perf_counter()
    child = ServedChild(
        ["--store", str(store), "--port", "0", "--namesrv-port", "0", *words], start_timeout_s=START_TIMEOUT_S
    )
    with child:
        taken_s = time.perf_counter() - begin_s
        if kill:
            os.kill(child.pid, signal.SIGKILL)
    return round(taken_s, 3)


def _sample(store: Path) -> list[tuple[str, int, str, int]]:
    """Return (topic, queue id, key or unique id, store time) of random messages among a store's first messages."""
    found = []
    for record in messages(StoreFiles(store), Wanted(limit=_SAMPLE)):
        properties = record.properties
        key = properties.get("KEYS", "").split(" ")[0] or properties.get("UNIQ_KEY", "")
        found.append((record.topic, record.queue_id, key, record.store_timestamp_ms))
    if not found:
        raise StoreFormatError(f"{store}: the store has no messages to measure with; name a store with messages")
    return random.Random(1).sample(found, min(LOOKUPS, len(found)))


def _lookup_us(store: MessageStore, sample: Sequence[tuple[str, int, str, int]]) -> float:
    keyed = [(topic, key) for topic, _queue_id, key, _stored_ms in sample if key]
    for topic, key in keyed:
        if not store.reader.query_message(topic, key, 32, 0, _ALL_TIME_MS)[0]:
            raise StoreFormatError(f"{store.root}: the rebuilt index lacks the key {key} of topic {topic}")
    return _median_us([partial(store.reader.query_message, topic, key, 32, 0, _ALL_TIME_MS) for topic, key in keyed])


def _by_time_us(store: MessageStore, sample: Sequence[tuple[str, int, str, int]]) -> float:
    places = [(topic, queue_id, stored_ms) for topic, queue_id, _key, stored_ms in sample]
    return _median_us([partial(store.reader.queue_offset_by_time, *place) for place in places])


def _median_us(calls: Sequence[Callable[[], object]]) -> float:
    taken = []
    for call in calls:
        begin_s = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin_s)
    return round(statistics.median(taken) * 1e6, 1) if taken else 0.0


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a folder of a store; chunks of zeros in its files become holes."""
    shutil.copytree(source, target, copy_function=_copy_sparse_file)


def _copy_sparse_file(source: str, target: str) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        while chunk := old.read(len(_CHUNK)):
            if chunk == _CHUNK:
                new.seek(len(chunk), os.SEEK_CUR)
            else:
                new.write(chunk)
        new.truncate(old.tell())
