"""Checks that an index builder follows the rules of its interface, :class:`~flintmq.core.kernel.ports.IndexBuilder`.

From a test of your plugin::

    from flintmq.testing.index_kit import check_index_builder

    def test_the_index_passes_the_index_kit():
        check_index_builder(lambda: MyIndex(connect(":memory:")))

The module checks queries. It also runs the checks of :mod:`flintmq.testing.dispatcher_kit`, with a function ``observe`` that
returns the results of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Final

from flintmq.core.kernel.ports import DispatchRequest, IndexBuilder, RecordBatch, SupportsCommitted, SupportsTruncate
from flintmq.core.kernel.ports.index import SupportsCommittedBelow, SupportsQuerySteps
from flintmq.core.record.message_keys import index_keys
from flintmq.core.record.sys_flag import is_indexed
from flintmq.testing.dispatcher_kit import check_dispatcher, sample_requests
from flintmq.testing.failure import expect

Key = tuple[str, str]
"""Topic and key of a message. An index finds the message by this pair."""
_MANY: Final = 1_000
_END_MS: Final = 2**62
_HOUR_MS: Final = 3_600_000


def sample_keys(requests: Iterable[DispatchRequest]) -> dict[Key, list[int]]:
    """Return the physical offsets that a query of the index must find, newest first, keyed by topic and key. A key that only
    rolled-back messages have maps to an empty list.
    """
    found: dict[Key, list[int]] = {}
    for request in requests:
        for key in dict.fromkeys(index_keys(request)):
            offsets = found.setdefault((request.topic, key), [])
            if is_indexed(request.sys_flag):
                offsets.insert(0, request.commit_log_offset_bytes)
    return found


def check_index_builder(make: Callable[[], IndexBuilder]) -> None:
    """Run every check of an index builder.

    Args:
        make: returns a new index, with nothing dispatched yet.

    Raises:
        KitFailure: names the broken rule.
    """
    requests = sample_requests()
    keys = sample_keys(requests)
    _check_queries(make, requests, keys)
    _check_truncate(make, requests, keys)
    check_dispatcher(make, observe=lambda index: _found(index, keys))


def _check_queries(
    make: Callable[[], IndexBuilder], requests: Sequence[DispatchRequest], keys: Mapping[Key, list[int]]
) -> None:
    index = make()
    topic, key = next(iter(keys))
    expect(index.query(topic, key, _MANY, 0, _END_MS)[0] == [], "a new index finds nothing", topic)
    index.dispatch(RecordBatch.of_requests(requests))
    _check_found(index, keys)
    first_ms, last_ms = requests[0].store_timestamp_ms, requests[-1].store_timestamp_ms
    (topic, key), offsets = max(keys.items(), key=lambda item: len(item[1]))
    some = index.query(topic, key, 2, first_ms, last_ms)[0]
    expect(some == offsets[:2], "a query finds at most max_num records, the newest ones", some)
    for begin_ms, end_ms in ((last_ms + _HOUR_MS, _END_MS), (0, first_ms - _HOUR_MS)):
        outside = index.query(topic, key, _MANY, begin_ms, end_ms)[0]
        expect(outside == [], "a query finds nothing that was stored outside its times", outside)
    newest = max(
        request.commit_log_offset_bytes for request in requests if request.uniq_key and is_indexed(request.sys_flag)
    )
    times = {one.commit_log_offset_bytes: one.store_timestamp_ms for one in requests}
    _offsets, time_ms, offset = index.query(topic, key, _MANY, 0, _END_MS)
    known = offset >= newest and times.get(offset) == time_ms
    expect(known, "a query tells the store time and the physical offset of the newest record", (time_ms, offset))
    if isinstance(index, SupportsQuerySteps):
        for topic, key in keys:
            made = _result(index.query_steps(topic, key, _MANY, 0, _END_MS))
            expect(made == index.query(topic, key, _MANY, 0, _END_MS), "query_steps finds what query finds", made)
    returned: object = index.flush()  # type: ignore[func-returns-value]
    expect(returned is None, "flush returns nothing: it is called, not awaited", returned)
    _check_found(index, keys)
    index.close()


def _check_truncate(
    make: Callable[[], IndexBuilder], requests: Sequence[DispatchRequest], keys: Mapping[Key, list[int]]
) -> None:
    index = make()
    if isinstance(index, SupportsTruncate):
        index.dispatch(RecordBatch.of_requests(requests))
        index.flush()
        end_bytes = requests[len(requests) // 2].commit_log_offset_bytes
        foretold: int | None = None
        if isinstance(index, SupportsCommittedBelow):
            foretold = index.committed_below(end_bytes)
            _check_found(index, keys)
        index.truncate(end_bytes)
        behind = sorted(offset for found in _found(index, keys).values() for offset in found if offset >= end_bytes)
        expect(not behind, "truncate forgets records at or after the position", behind)
        newest = index.query(*next(iter(keys)), _MANY, 0, _END_MS)[2]
        expect(newest < end_bytes, "the newest record after a cut lies before the position", newest)
        committed = index.committed() if isinstance(index, SupportsCommitted) else None
        if isinstance(index, SupportsCommittedBelow):
            expect(
                foretold == committed, "committed_below says what committed says after the cut", (foretold, committed)
            )
        missing = [one for one in requests if one.commit_log_offset_bytes >= min(committed or 0, end_bytes)]
        index.dispatch(RecordBatch.of_requests(missing))
        _check_found(index, keys)
    index.close()


def _check_found(index: IndexBuilder, keys: Mapping[Key, list[int]]) -> None:
    for key, found in _found(index, keys).items():
        expect(found == keys[key], f"a record is found by its keys, newest first, unless rolled back: {key}", found)


def _found(index: IndexBuilder, keys: Iterable[Key]) -> dict[Key, list[int]]:
    return {(topic, key): index.query(topic, key, _MANY, 0, _END_MS)[0] for topic, key in keys}


def _result(steps: Generator[None, None, tuple[list[int], int, int]]) -> tuple[list[int], int, int]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: tuple[list[int], int, int] = end.value
            return value
