"""Which half messages are done with, and which transactions are open (docs/internals/algorithms.md, Transactions).

The half queue is done with up to ``position``; beyond it single messages may be, before those in front of them are.

::

    half queue   … 7 8 9 | 10 11 12 13 14        position 10: what lies before is done with
                             x     x             11 and 13 ended; 10 is open and holds the position back

    done with:   ended (an op record says so), replaced by a copy farther back, or given up

A transaction is open

* when it has copies: if the newest of them is not done with;
* else when its half message is not done with, or was given up and the broker still remembers that: a producer that decides
  late is heard as long as possible.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from flintmq.plugins.transactions.half_message import Identity

REMEMBERED_MAX: Final = 10_000
"""Ended transactions, and those given up, that are remembered beyond what the queues tell."""


class TransactionTable:
    """The positions and what lies beyond them. Loop thread; memory grows with what is open, not with what was ended.

    Args:
        position: queue offset of the first half message that may not be done with.
        op_position: queue offset of the first op record that may still tell something.
    """

    def __init__(self, position: int = 0, op_position: int = 0) -> None:
        self.position = position
        self.op_position = op_position
        self._done: set[int] = set()
        self._ops: deque[int] = deque()
        self._copies: dict[Identity, int] = {}
        self._ended: dict[Identity, None] = {}
        self._given_up: dict[Identity, None] = {}

    def is_open(self, identity: Identity, half_queue_offset: int) -> bool:
        """Whether the transaction of a half message can still be ended."""
        if identity in self._ended:
            return False
        if identity in self._copies or identity in self._given_up:
            return True
        return half_queue_offset >= self.position and half_queue_offset not in self._done

    def is_replaced(self, identity: Identity, half_queue_offset: int) -> bool:
        """Whether a newer copy stands for this half message."""
        return self._copies.get(identity, -1) > half_queue_offset

    def newest_copy(self, identity: Identity) -> int:
        """Half queue offset of the copy that stands for an open transaction; -1 without one."""
        return self._copies.get(identity, -1)

    def was_ended(self, identity: Identity) -> bool:
        """True while the broker remembers it."""
        return identity in self._ended

    def offsets_to_end(self, identity: Identity, half_queue_offset: int) -> list[int]:
        """The half queue offsets that op records must name when the transaction ends at one of its half messages.

        The newest copy is one of them: no producer may be asked about it again, by this broker or by the next one.
        """
        newest = self._copies.get(identity, half_queue_offset)
        return [half_queue_offset] if newest == half_queue_offset else [newest, half_queue_offset]

    # what happened

    def add_op(self, half_queue_offset: int) -> None:
        """An op record follows those known."""
        self._ops.append(half_queue_offset)
        self._advance()

    def done(self, half_queue_offset: int) -> None:
        """This half message is done with."""
        if half_queue_offset >= self.position:
            self._done.add(half_queue_offset)
            self._advance()

    def replaced(self, identity: Identity, half_queue_offset: int, copy_queue_offset: int) -> None:
        """A copy was put and stands for the transaction from now on."""
        self._given_up.pop(identity, None)
        self._copies[identity] = copy_queue_offset
        self.done(half_queue_offset)

    def gave_up(self, identity: Identity, half_queue_offset: int) -> None:
        """The half message was moved to those whose producer never answered."""
        self._copies.pop(identity, None)
        _remember(self._given_up, identity)
        self.done(half_queue_offset)

    def ended(self, identity: Identity, half_queue_offset: int) -> None:
        """The transaction was committed or rolled back."""
        self._given_up.pop(identity, None)
        _remember(self._ended, identity)
        for queue_offset in self.offsets_to_end(identity, half_queue_offset):
            self.done(queue_offset)
        self._copies.pop(identity, None)

    def skip_to(self, half_queue_offset: int) -> None:
        """Half messages before this one are no longer in the log."""
        if half_queue_offset > self.position:
            self.position = half_queue_offset
            self._done = {queue_offset for queue_offset in self._done if queue_offset >= half_queue_offset}
            self._copies = {key: newest for key, newest in self._copies.items() if newest >= half_queue_offset}
            self._advance()

    def _advance(self) -> None:
        done = self._done
        while self.position in done:
            done.remove(self.position)
            self.position += 1
        while self._ops and self._ops[0] < self.position:
            self._ops.popleft()
            self.op_position += 1


def _remember(known: dict[Identity, None], identity: Identity) -> None:
    known.pop(identity, None)
    known[identity] = None
    if len(known) > REMEMBERED_MAX:
        del known[next(iter(known))]
