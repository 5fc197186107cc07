"""RocketMQ's strategies that divide the queues of a topic among the members of a group, with the same results as in RocketMQ.

All members of a group must use the same strategy, also members in other languages: each member computes its own share. A
strategy is a function of a client id, all members and all queues. A program can use a strategy of this module or write its own.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import InvalidArgumentError

AllocateStrategy = Callable[[str, Sequence[str], Sequence[MessageQueue]], list[MessageQueue]]
"""A function that returns the queues of one member of a group. Its arguments are the member's client id, the ids of all members
and all queues."""
ROOM_SEPARATOR = "@"


def allocate_averagely(client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Return an equal, contiguous share of the sorted queues: RocketMQ's default (AllocateMessageQueueAveragely).

    If the queues do not divide evenly, each of the first members gets one more queue. Members and queues are sorted first. A
    client that is not a member gets no queues.
    """
    found = _place(client_id, members)
    if found is None:
        return []
    index, count = found
    share, rest = divmod(len(queues), count)
    start = index * share + min(index, rest)
    return _ordered(queues)[start : start + share + (index < rest)]


def allocate_by_circle(client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Return every n-th queue of the sorted queues, for a group of n members (AllocateMessageQueueAveragelyByCircle)."""
    found = _place(client_id, members)
    return [] if found is None else _ordered(queues)[found[0] :: found[1]]


def allocate_by_config(own: Iterable[MessageQueue]) -> AllocateStrategy:
    """Return a strategy that gives this client exactly the queues of ``own`` (AllocateMessageQueueByConfig).

    The configuration of all members must assign every queue to exactly one member.
    """
    mine = frozenset(own)

    def allocate(_client_id: str, _members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        return [queue for queue in _ordered(queues) if queue in mine]

    return allocate


def allocate_by_machine_room(rooms: Collection[str]) -> AllocateStrategy:
    """Return a strategy that divides only the queues of some machine rooms (AllocateMessageQueueByMachineRoom).

    Args:
        rooms: the names of the machine rooms. Brokers must have names of the form ``ROOM@NAME``.
    """

    def allocate(client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        found = _place(client_id, members)
        if found is None:
            return []
        index, count = found
        chosen = [queue for queue in _ordered(queues) if _room(queue) in rooms]
        share = len(chosen) // count
        rest = chosen[index + share * count : index + share * count + 1]
        return chosen[share * index : share * (index + 1)] + rest

    return allocate


def _room(queue: MessageQueue) -> str | None:
    parts = queue.broker_name.split(ROOM_SEPARATOR)
    return parts[0] if len(parts) == 2 else None


def allocate_nearby(
    room_of_broker: Callable[[MessageQueue], str],
    room_of_member: Callable[[str], str],
    within: AllocateStrategy = allocate_averagely,
) -> AllocateStrategy:
    """Return a strategy by which members consume the queues in their machine room (AllocateMachineRoomNearby).

    The queues of a machine room without members are divided among all members.

    Args:
        room_of_broker: returns the room of a queue.
        room_of_member: returns the room of a client id.
        within: the strategy that divides the queues of a room among its members, and the queues of rooms without members among
            all members.
    """

    def allocate(client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        mine = room_of_member(client_id)
        neighbours = [member for member in members if room_of_member(member) == mine]
        found = within(client_id, neighbours, [queue for queue in queues if room_of_broker(queue) == mine])
        inhabited = {room_of_member(member) for member in members}
        for room in sorted({room_of_broker(queue) for queue in queues} - inhabited):
            found += within(client_id, members, [queue for queue in queues if room_of_broker(queue) == room])
        return found

    return allocate


def allocate_by_consistent_hash(virtual_nodes: int = 10) -> AllocateStrategy:
    """Return a strategy that reassigns few queues if a member joins or leaves (AllocateMessageQueueConsistentHash).

    Members and queues have positions on a hash ring; a queue belongs to the member at the next position. The members' shares
    are uneven. A position is the first four bytes of an MD5 hash, as in RocketMQ.

    Args:
        virtual_nodes: the number of positions of each member on the hash ring.

    Raises:
        ValueError: ``virtual_nodes`` is less than 1.
    """
    if virtual_nodes < 1:
        raise InvalidArgumentError(
            f"virtual_nodes is {virtual_nodes}, and must be at least 1: a member needs a place on the ring"
        )

    def allocate(client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        ring = {_on_ring(f"{member}-{number}"): member for member in sorted(members) for number in range(virtual_nodes)}
        places = sorted(ring)
        found = []
        for queue in _ordered(queues):
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            at = bisect.bisect_left(places, _on_ring(text))
            if ring and ring[places[at % len(places)]] == client_id:
                found.append(queue)
        return found

    return allocate


def _on_ring(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def _place(client_id: str, members: Sequence[str]) -> tuple[int, int] | None:
    """Return the index of a client among the sorted members, and the number of members; None if the client is not a member."""
    ordered = sorted(members)
    return (ordered.index(client_id), len(ordered)) if client_id in ordered else None


def _ordered(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    return sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
