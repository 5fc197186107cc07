"""One rule says which queues count for a group's lag, and from where."""

from __future__ import annotations

import pytest

from flintmq import Message
from flintmq.core.broker.group_lag import has_left, member_count, positions, read_topics
from flintmq.testing.embedded import EmbeddedBroker


@pytest.fixture
def broker() -> EmbeddedBroker:
    with EmbeddedBroker() as broker:
        broker.create_topic("T", 3)
        broker.put([Message("T", b"x") for _ in range(9)])
        yield broker


def test_the_lag_of_a_queue_without_a_committed_offset_includes_all_messages_of_the_queue(
    broker: EmbeddedBroker,
) -> None:
    """A group that has begun with one queue of three is behind in all of them; one that never came is behind in none."""

    async def look() -> None:
        state = broker.broker.state
        assert list(read_topics(state.api)) == []
        state.offsets.commit("T", "g", 1, 2)
        state.offsets.commit("Gone", "g", 0, 2)
        assert list(read_topics(state.api)) == [("T", "g")]
        found = list(positions(state.api, "g", "T"))
        assert [one.queue_id for one in found] == [0, 1, 2]
        assert sum(one.max_queue_offset for one in found) == 9
        assert [one.consumer_offset for one in found] == [0, 2, 0]
        assert sum(one.lag for one in found) == 9 - min(2, found[1].max_queue_offset)
        assert list(positions(state.api, "g", "Gone")) == []
        assert (has_left(state.api, "g", "T"), member_count(state.api, "g")) == (False, 0)

    broker.broker.call(look)
