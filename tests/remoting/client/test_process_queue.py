"""What is held of a queue stays within its bounds, and what counts as consumed is never more than what was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.process_queue import CacheLimits, ProcessQueue

NO_LIMITS = CacheLimits(1_000_000, 1 << 40, 1_000_000)


def message(queue_offset: int, size_bytes: int = 1) -> MessageExt:
    made: dict[str, Any] = dict.fromkeys(MessageExt.__struct_fields__, 0)
    return MessageExt(**{**made, "queue_offset": queue_offset, "body": bytes(size_bytes)})


def held_queue(limits: CacheLimits) -> ProcessQueue:
    return ProcessQueue(MessageQueue("broker-a", 0, "T"), 0, limits)


def has_room(held: ProcessQueue) -> bool:
    async def look() -> bool:
        waiting = asyncio.ensure_future(held.has_room())
        await asyncio.sleep(0)
        waiting.cancel()
        return waiting.done()

    return asyncio.run(look())


@pytest.mark.parametrize(
    ("limits", "sizes", "kept"),
    [
        (CacheLimits(3, 1 << 40, 1_000), [1, 1, 1], 2),
        (CacheLimits(1_000, 300, 1_000), [100, 100, 100], 2),
        (CacheLimits(1_000, 300, 1_000), [400], 0),
    ],
)
def test_pulling_stops_when_any_cache_limit_is_reached_and_resumes_below_the_limit(
    limits: CacheLimits, sizes: list[int], kept: int
) -> None:
    """A slow listener must not have the whole topic in memory."""
    held = held_queue(limits)
    messages = [message(number, size) for number, size in enumerate(sizes)]
    held.put(messages[:-1])
    assert has_room(held)
    held.put(messages[-1:])
    assert not has_room(held)
    held.done(messages[kept:])
    assert has_room(held)


def test_pulling_stops_while_an_unfinished_message_is_too_far_behind_the_newest_message() -> None:
    """All that lies behind it comes again when the process dies, because it alone holds up what is committed."""
    held = held_queue(CacheLimits(1_000, 1 << 40, 10))
    messages = [message(number) for number in range(11)]
    held.put(messages)
    held.done(messages[1:])
    assert not has_room(held), "ten messages behind the first one"
    held.done(messages[:1])
    assert has_room(held)


@given(st.lists(st.integers(1, 5), max_size=30), st.randoms(use_true_random=False))
def test_the_committed_offset_is_below_every_unconsumed_message(gaps: list[int], random: Any) -> None:
    """Whatever the order in which messages are consumed, and whichever offsets a filter has left out."""
    held = held_queue(NO_LIMITS)
    waiting: dict[int, MessageExt] = {}
    last = 0
    for gap in gaps:
        last += gap
        waiting[last] = message(last)
        held.put([waiting[last]])
        held.pull_queue_offset = last + 1
        for queue_offset in random.sample(sorted(waiting), random.randrange(len(waiting) + 1)):
            held.done([waiting.pop(queue_offset)])
        assert held.commit_offset == min(waiting, default=held.pull_queue_offset)
        info = held.info(locked=False)
        assert (info.cached_msg_count, info.cached_msg_min_queue_offset) == (len(waiting), min(waiting, default=0))
    held.done([*waiting.values()])
    held.done([*waiting.values()])
    assert held.info(locked=False).cached_msg_count == 0
    assert held._size_bytes == 0
