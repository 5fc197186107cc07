"""Every member computes the same shares as RocketMQ's Java client does: one that differs would consume what is another's.

``allocations_4.9.7.json`` holds shares as the classes of rocketmq-client 4.9.7 computed them for random groups, in places of
the list of queues.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.allocation import (
    AllocateStrategy,
    allocate_averagely,
    allocate_by_circle,
    allocate_by_config,
    allocate_by_consistent_hash,
    allocate_by_machine_room,
    allocate_nearby,
)

CASES = json.loads(Path(__file__).with_name("allocations_4.9.7.json").read_text())


def room_of_broker(queue: MessageQueue) -> str:
    return queue.broker_name.split("@")[0]


def room_of_member(client_id: str) -> str:
    return client_id.split("-")[0]


STRATEGIES: dict[str, AllocateStrategy] = {
    "averagely": allocate_averagely,
    "by_circle": allocate_by_circle,
    "by_machine_room": allocate_by_machine_room({"room0", "room2"}),
    "nearby": allocate_nearby(room_of_broker, room_of_member),
    "by_consistent_hash": allocate_by_consistent_hash(),
    "by_consistent_hash_3": allocate_by_consistent_hash(3),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_allocation_strategy_selects_the_same_queues_in_flintmq_and_in_the_java_client(name: str) -> None:
    """Nearby, RocketMQ goes through other rooms in the order of a hash map: the share is the same, its order is not."""
    order = (lambda found: sorted(found, key=str)) if name == "nearby" else list
    for case in CASES:
        queues = [MessageQueue(broker_name, queue_id, "Topic") for broker_name, queue_id in case["queues"]]
        for member, places in zip(case["members"], case["shares"][name], strict=True):
            found = STRATEGIES[name](member, case["members"][::-1], queues[::-1])
            assert order(found) == order([queues[place] for place in places])


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "by_machine_room"])
@given(members=st.integers(1, 9), queues=st.integers(0, 30), shuffle=st.randoms(use_true_random=False))
def test_every_allocation_strategy_gives_each_queue_to_exactly_one_member(
    name: str, members: int, queues: int, shuffle: Any
) -> None:
    """Whatever the order in which a member hears of the others and of the queues."""
    ids = [f"room{number % 3}-c{number}" for number in range(members)]
    every = [MessageQueue(f"room{number % 4}@b", number, "T") for number in range(queues)]
    found = []
    for client_id in ids:
        seen_ids, seen_queues = list(ids), list(every)
        shuffle.shuffle(seen_ids)
        shuffle.shuffle(seen_queues)
        found.append(STRATEGIES[name](client_id, seen_ids, seen_queues))
    assert sorted((queue for share in found for queue in share), key=str) == sorted(every, key=str)
    if name in {"averagely", "by_circle"}:
        assert max(map(len, found)) - min(map(len, found)) <= 1
    assert STRATEGIES[name]("room9-stranger", ids, every) == []


def test_consistent_hash_allocation_moves_queues_only_to_the_new_member_after_a_member_joins() -> None:
    """The reason for a consistent hash: nobody but the new one gains."""
    every = [MessageQueue("b", number, "T") for number in range(64)]
    allocate = allocate_by_consistent_hash()
    before = {queue: member for member in "abc" for queue in allocate(member, "abc", every)}
    after = {queue: member for member in "abcd" for queue in allocate(member, "abcd", every)}
    assert {after[queue] for queue in every if after[queue] != before[queue]} == {"d"}


def test_allocate_by_config_returns_the_configured_queues_that_exist() -> None:
    """Those of them that there are, in order."""
    every = [MessageQueue("b", number, "T") for number in range(3)]
    allocate = allocate_by_config([every[2], every[0], MessageQueue("b", 9, "T")])
    assert allocate("anybody", [], every) == [every[0], every[2]]


def test_a_consistent_hash_without_virtual_nodes_is_refused() -> None:
    """The refusal names the argument."""
    with pytest.raises(ValueError, match="virtual_nodes"):
        allocate_by_consistent_hash(0)
