"""The queues of one topic are found without a look at the others, however queues come and go."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from flintmq.dispatchers.consume_queue.queues_by_key import QueuesByKey

KEYS = st.tuples(st.sampled_from("TUV"), st.integers(0, 3))


@given(st.lists(st.tuples(KEYS, st.booleans())))
def test_ids_of_returns_the_ids_of_the_added_and_not_yet_removed_queues_of_a_topic(
    steps: list[tuple[tuple[str, int], bool]],
) -> None:
    queues = QueuesByKey()
    for key, comes in steps:
        if comes:
            queues[key] = cast(Any, object())
        elif key in queues:
            del queues[key]
        for topic in "TUV":
            assert queues.ids_of(topic) == {queue_id for name, queue_id in queues if name == topic}
    queues.clear()
    assert not any(map(queues.ids_of, "TUV"))
