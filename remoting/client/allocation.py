"""How the members of a group share the queues of a topic: RocketMQ's strategies, with RocketMQ's results.

All members of a group must use the same one, whatever language they are written in: each computes all shares for itself and
takes its own. A strategy is a function of a client id, all members, and all queues; yours may be one of these or your own.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import InvalidArgumentError

AllocateStrategy = Callable[[str, Sequence[str], Sequence[MessageQueue]], list[MessageQueue]]
"""(client id, all members, all queues) → the queues of this client."""
ROOM_SEPARATOR = "@"


def allocate_averagely(client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Return neighbouring queues, evenly: RocketMQ's default (AllocateMessageQueueAveragely).

    The first members get one more when it does not come out even. Members and queues are put in order first. A client that
    is not a member gets nothing.
    """
    found = _place(client_id, members)
    if found is None:
        return []
    index, count = found
    share, rest = divmod(len(queues), count)
    start = index * share + min(index, rest)
    return _ordered(queues)[start : start + share + (index < rest)]


def allocate_by_circle(client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Return every n-th queue for n members (AllocateMessageQueueAveragelyByCircle)."""
    found = _place(client_id, members)
    return [] if found is None else _ordered(queues)[found[0] :: found[1]]


def allocate_by_config(own: Iterable[MessageQueue]) -> AllocateStrategy:
    """Return a strategy by which this client has exactly these queues (AllocateMessageQueueByConfig).

    That every queue is somebody's, and nobody else's, is up to those who configure the members.
    """
    mine = frozenset(own)

    def allocate(_client_id: str, _members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        return [queue for queue in _ordered(queues) if queue in mine]

    return allocate


def allocate_by_machine_room(rooms: Collection[str]) -> AllocateStrategy:
    """Return a strategy that shares the queues of some machine rooms only (AllocateMessageQueueByMachineRoom).

    Args:
        rooms: their names; a broker's name is then ``ROOM@NAME``.
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
    """Return a strategy by which queues are consumed in their own machine room (AllocateMachineRoomNearby).

    The queues of a room without members are shared by all members.

    Args:
        room_of_broker: says where a queue is.
        room_of_member: says where a client of an id is.
        within: shares the queues of a room among its members, and those of rooms without members among all.
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
    """Return a strategy by which few queues move when a member comes or goes (AllocateMessageQueueConsistentHash).

    Shares are uneven. Places on the ring are the first four bytes of MD5 hashes, as RocketMQ computes them.

    Args:
        virtual_nodes: places of each member on the ring.

    Raises:
        ValueError: fewer than one.
    """
    if virtual_nodes < 1:
        raise InvalidArgumentError(
            f"a member has one place on the ring or more, not {virtual_nodes}: change virtual_nodes"
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
    """Return a client's place among the members in order, and how many these are; None where it is not one of them."""
    ordered = sorted(members)
    return (ordered.index(client_id), len(ordered)) if client_id in ordered else None


def _ordered(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    return sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
