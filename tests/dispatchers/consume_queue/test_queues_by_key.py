"""The queues of one topic are found without a look at the others, however queues come and go."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from flintmq.dispatchers.consume_queue.queues_by_key import QueuesByKey

KEYS = st.tuples(st.sampled_from("TUV"), st.integers(0, 3))


@given(st.lists(st.tuples(KEYS, st.booleans())))
def test_the_queue_ids_of_a_topic_include_added_queues_and_exclude_removed_queues(
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
