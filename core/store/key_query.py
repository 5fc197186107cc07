"""Finds messages by key: candidates of the index, each checked against its record."""

from __future__ import annotations

from collections.abc import Generator

from flintmq.core.kernel.ports import IndexBuilder, SupportsQuerySteps
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.record.properties import KEYS, UNIQ_KEY


def find_by_key(
    commit_log: CommitLog,
    index: IndexBuilder,
    topic: str,
    key: str,
    max_num: int,
    begin_timestamp_ms: int,
    end_timestamp_ms: int,
) -> Generator[None, None, tuple[list[memoryview], int, int]]:
    """Find records of a topic with a key (KEYS or UNIQ_KEY) that were stored within a time range.

    It yields after some milliseconds of work, so that a server can do other things in between.

    Returns:
        The newest ``max_num`` candidates of the index that have the key, in the order of the log, as RocketMQ answers them; the
        store time in ms and the physical offset of the newest record that the index has.
    """
    args = (topic, key, max_num, begin_timestamp_ms, end_timestamp_ms)
    if isinstance(index, SupportsQuerySteps):
        found_at, index_time_ms, index_offset = yield from index.query_steps(*args)
    else:
        found_at, index_time_ms, index_offset = index.query(*args)
    found: list[memoryview] = []
    for physical in sorted(found_at):
        yield
        record = commit_log.record(physical)
        if record is None or record.topic != topic:
            continue
        if not begin_timestamp_ms <= record.store_timestamp_ms <= end_timestamp_ms:
            continue
        properties = record.properties
        if properties.get(UNIQ_KEY) != key and key not in properties.get(KEYS, "").split(" "):
            continue
        piece = commit_log.slice(physical, record.size_bytes)
        if piece is not None:
            found.append(piece)
    return found, index_time_ms, index_offset
