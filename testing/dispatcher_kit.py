"""Checks that a plugin's dispatcher obeys the rules of :class:`~flintmq.core.kernel.ports.CommitLogDispatcher`.

Call the checks from a test of the plugin::

    from flintmq.testing.dispatcher_kit import check_dispatcher

    def test_the_dispatcher_passes_the_dispatcher_kit():
        check_dispatcher(MyDispatcher, observe=lambda dispatcher: list(dispatcher.rows))

``observe`` returns the data that the dispatcher has derived from the records, comparable with ``==``. Without ``observe``, this
data is not checked. The checks then find out only whether dispatching raises an exception, whether the dispatcher changes its
input, and whether its method ``committed()`` returns a valid position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from flintmq.core.kernel.ports import (
    CommitLogDispatcher,
    DispatchRequest,
    RecordBatch,
    SupportsCatchUp,
    SupportsCommitted,
)
from flintmq.testing.failure import KitFailure, expect

D = TypeVar("D", bound=CommitLogDispatcher)

_PREPARED: Final = 0x4
_COMMIT: Final = 0x8
_ROLLBACK: Final = 0xC


def sample_requests(count: int = 40) -> list[DispatchRequest]:
    """Return records as a broker dispatches them, in two topics with two queues each, with tags, keys, delays and transactions.

    The records are in the order of the log. Their physical offsets have a gap in the middle, as at the end of a log file. The
    queue offsets of each queue have no gaps.
    """
    requests = []
    physical = 0
    queue_offsets: dict[tuple[str, int], int] = {}
    for number in range(count):
        topic = "Orders" if number % 3 else "Заказы-1"
        queue_id = number % 2
        sys_flag = {7: _PREPARED, 8: _COMMIT, 9: _ROLLBACK}.get(number % 10, 0)
        visible = not sys_flag & _PREPARED
        queue_offset = queue_offsets.get((topic, queue_id), 0) if visible else 0
        if visible:
            queue_offsets[topic, queue_id] = queue_offset + 1
        properties: Mapping[str, str] = {"TAGS": "TagA", "UNIQ_KEY": f"7F0000010{number:023X}"} if number % 4 else {}
        requests.append(
            DispatchRequest(
                topic=topic,
                queue_id=queue_id,
                commit_log_offset_bytes=physical,
                message_size_bytes=200 + number,
                tags_code=2_598_919 if number % 4 else (1_700_000_000_000 + number if number % 8 else -5),
                store_timestamp_ms=1_700_000_000_000 + number // 3,
                queue_offset=queue_offset,
                keys="k1 k2" if number % 5 == 0 else "",
                uniq_key=properties.get("UNIQ_KEY", ""),
                sys_flag=sys_flag,
                prepared_transaction_offset_bytes=0,
                properties=properties,
            )
        )
        # After the middle record, 512 bytes are left free, because a log file may also have free bytes at its end.
        physical += 200 + number + (512 if number == count // 2 else 0)
    return requests


def sample_batch(count: int = 40) -> RecordBatch:
    """Return the records of :func:`sample_requests` as a batch, the argument of a dispatcher's ``dispatch``."""
    return RecordBatch.of_requests(sample_requests(count))


def check_dispatcher(factory: Callable[[], D], *, observe: Callable[[D], object] | None = None) -> None:
    """Run every check of a dispatcher.

    Args:
        factory: returns a new dispatcher, with nothing dispatched yet.
        observe: returns the data that a dispatcher has derived until now; None skips the checks of that data.

    Raises:
        KitFailure: the dispatcher breaks a rule; the error names the rule.
    """
    _check_input_untouched(factory)
    look: Callable[[D], object] = observe or (lambda _dispatcher: None)
    requests = sample_requests()
    whole = _made_by(factory, look, [requests])
    if observe is not None:
        expect(whole != look(factory()), "observe sees what was dispatched", whole)
    _check_empty(factory, look)
    _check_batches(factory, look, requests, whole)
    _check_idempotence(factory, look, requests, whole)
    _check_committed(factory, requests)


def _check_empty(factory: Callable[[], D], look: Callable[[D], object]) -> None:
    dispatcher = factory()
    before = look(dispatcher)
    _dispatch(dispatcher, [], "an empty batch")
    _dispatch(dispatcher, (), "an empty batch")
    expect(look(dispatcher) == before, "an empty batch changes nothing", look(dispatcher))
    _close(dispatcher)


def _check_batches(
    factory: Callable[[], D], look: Callable[[D], object], requests: list[DispatchRequest], whole: object
) -> None:
    one_by_one = _made_by(factory, look, [[request] for request in requests])
    expect(one_by_one == whole, "one by one makes the same as one batch", (one_by_one, whole))
    pieces = [tuple(requests[:1]), tuple(requests[1:18]), tuple(requests[18:])]
    in_pieces = _made_by(factory, look, pieces)
    expect(in_pieces == whole, "any cut into batches, and any sequence type, makes the same", (in_pieces, whole))


def _check_idempotence(
    factory: Callable[[], D], look: Callable[[D], object], requests: list[DispatchRequest], whole: object
) -> None:
    again = _made_by(factory, look, [requests, requests])
    expect(again == whole, "a batch that comes again is ignored", (again, whole))
    overlapping = _made_by(factory, look, [requests[:20], requests[10:30], requests[25:]])
    expect(overlapping == whole, "batches that overlap are taken once", (overlapping, whole))
    from_the_start = _made_by(factory, look, [requests[:30], *([request] for request in requests)])
    expect(from_the_start == whole, "dispatch from the log's start after a crash changes nothing", from_the_start)


def _check_input_untouched(factory: Callable[[], CommitLogDispatcher]) -> None:
    """Check that a dispatcher changes only the field ``bit_map`` of the records. A dispatcher that computes this field sets the
    field for the dispatchers that get the records later."""
    batch = sample_requests()
    given = list(batch)
    dispatcher = factory()
    _dispatch(dispatcher, batch, "a batch")
    maps = [request.bit_map for request in given]
    expect(all(isinstance(one, bytes | None) for one in maps), "a bit map is bytes or None", maps)
    _dispatch(dispatcher, batch, "a batch")
    again = [request.bit_map for request in given]
    expect(again == maps, "a record that comes again gets the same bit map", (again, maps))
    for request in given:
        request.bit_map = None
    untouched = batch == given == sample_requests()
    expect(untouched, "a dispatcher lets its batch and the requests alone: others get them after it")
    _close(dispatcher)


def _check_committed(factory: Callable[[], CommitLogDispatcher], requests: list[DispatchRequest]) -> None:
    """Check the position that a dispatcher's ``committed()`` returns. A start dispatches records from this position on, so a
    position that is too high would lose records."""
    dispatcher = factory()
    if not isinstance(dispatcher, SupportsCommitted):
        _close(dispatcher)
        return
    before = dispatcher.committed()
    expect(before is None or before >= 0, "committed is a physical offset or None", before)
    boundaries = {0, *(request.commit_log_offset_bytes for request in requests)}
    for request in requests:
        _dispatch(dispatcher, [request], "a record")
        end = request.commit_log_offset_bytes + request.message_size_bytes
        boundaries.add(end)
        after = dispatcher.committed()
        expect(after is None or after <= end, "nothing is committed that was not dispatched", (after, end))
        expect(before is None or (after is not None and after >= before), "committed never goes back", (before, after))
        expect(after is None or after in boundaries, "committed is where a record begins or ends", after)
        before = after
    if isinstance(dispatcher, SupportsCatchUp):
        answer = dispatcher.catch_up(before or 0, requests[-1].commit_log_offset_bytes)
        expect(isinstance(answer, bool), "catch_up says whether it reads the log itself", answer)
    _close(dispatcher)


def _made_by(
    factory: Callable[[], D], look: Callable[[D], object], batches: Sequence[Sequence[DispatchRequest]]
) -> object:
    dispatcher = factory()
    for batch in batches:
        _dispatch(dispatcher, batch, f"a batch of {len(batch)}")
    made = look(dispatcher)
    _close(dispatcher)
    return made


def _dispatch(dispatcher: CommitLogDispatcher, requests: Sequence[DispatchRequest], what: str) -> None:
    try:
        result: Any = dispatcher.dispatch(RecordBatch.of_requests(requests))  # type: ignore[func-returns-value]
    except Exception as error:
        raise KitFailure(f"dispatch of {what} raised {type(error).__name__}: {error}") from error
    expect(result is None, "dispatch returns nothing: it is called, not awaited", result)


def _close(dispatcher: object) -> None:
    close = getattr(dispatcher, "close", None)
    if close is not None:
        close()
