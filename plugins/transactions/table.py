"""Records which half messages are done, and which transactions are open (docs/internals/algorithms.md, Transactions).

A half message is done in three cases: its transaction was committed or rolled back, a later copy replaced it, or the broker
gave it up because its producer never answered. A half message that is done needs no further check.

The table has a position in the half queue. All half messages before the position are done. Some half messages after it can be
done, too.

::

    half queue   … 7 8 9 | 10 11 12 13 14        position 10: all half messages before 10 are done
                              x     x            11 and 13 are done; 10 is not, so the position stays at 10

A transaction is open if its producer can still end it:

* A transaction that was given up is open as long as the broker remembers it.
* Any other transaction with copies is open until the newest copy is done.
* Any other transaction without copies is open until its half message is done.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from flintmq.config.rocketmq.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.core.record.properties import TRANSACTION_PREPARED_QUEUE_OFFSET
from flintmq.core.record.record import Record
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, transaction_type
from flintmq.plugins.transactions.half_message import Identity, identity_of, is_copy, offsets_of_op
from flintmq.plugins.transactions.store import TransactionStore

REMEMBERED_MAX: Final = 10_000
"""Maximum number of ended transactions that are kept in memory. The same maximum applies to transactions that were given up."""
_OPS_LOOKED_AT: Final = 10 * REMEMBERED_MAX


class TransactionTable:
    """The positions in the half and op queues, and the transactions after them. Used only on the event loop's thread.

    Memory grows with the number of open transactions, not with the number of ended transactions.

    Args:
        position: queue offset in the half queue. All half messages before it are done.
        op_position: queue offset in the op queue. All op records before it name only half messages before ``position``.
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
        """Return whether the transaction of a half message can still be ended."""
        if identity in self._ended:
            return False
        if identity in self._copies or identity in self._given_up:
            return True
        return half_queue_offset >= self.position and half_queue_offset not in self._done

    def is_done(self, half_queue_offset: int) -> bool:
        """Return whether a half message is done: committed, rolled back, replaced by a copy, or given up."""
        return half_queue_offset < self.position or half_queue_offset in self._done

    def open_before(self, end_queue_offset: int) -> int:
        """Return the number of half messages, including copies, before ``end_queue_offset`` that are not done."""
        return max(0, end_queue_offset - self.position - len(self._done))

    def is_replaced(self, identity: Identity, half_queue_offset: int) -> bool:
        """Return whether a newer copy has replaced this half message."""
        return self._copies.get(identity, -1) > half_queue_offset

    def newest_copy(self, identity: Identity) -> int:
        """Return the queue offset, in the half queue, of the newest copy of an open transaction's half message; -1 without a
        copy. The broker appends a copy of the half message each time it asks the producer about the transaction."""
        return self._copies.get(identity, -1)

    def was_ended(self, identity: Identity) -> bool:
        """Return whether a transaction has ended and is still remembered."""
        return identity in self._ended

    def offsets_to_end(self, identity: Identity, half_queue_offset: int) -> list[int]:
        """Return the half queue offsets for which op records must be written when a producer ends the transaction.

        When a broker asks a producer about a half message, it first appends a copy of the half message to the half queue. If
        the transaction has copies, the result contains the offset of the newest copy and ``half_queue_offset``. The op record
        for the newest copy ensures that no broker asks a producer about this copy again.
        """
        newest = self._copies.get(identity, half_queue_offset)
        return [half_queue_offset] if newest == half_queue_offset else [newest, half_queue_offset]

    # what happened

    def add_op(self, half_queue_offset: int) -> None:
        """Add the next record of the op queue, which names the half message at a queue offset."""
        self._ops.append(half_queue_offset)
        self._advance()

    def done(self, half_queue_offset: int) -> None:
        """Mark a half message as done, so that it needs no further check."""
        if half_queue_offset >= self.position:
            self._done.add(half_queue_offset)
            self._advance()

    def replaced(self, identity: Identity, half_queue_offset: int, copy_queue_offset: int) -> None:
        """Mark a half message as replaced by a copy."""
        self._given_up.pop(identity, None)
        self._copies[identity] = copy_queue_offset
        self.done(half_queue_offset)

    def gave_up(self, identity: Identity, half_queue_offset: int) -> None:
        """Mark a half message as given up, because its producer never answered."""
        self._copies.pop(identity, None)
        _remember(self._given_up, identity)
        self.done(half_queue_offset)

    def ended(self, identity: Identity, half_queue_offset: int) -> None:
        """Mark a transaction as committed or rolled back."""
        self._given_up.pop(identity, None)
        _remember(self._ended, identity)
        for queue_offset in self.offsets_to_end(identity, half_queue_offset):
            self.done(queue_offset)
        self._copies.pop(identity, None)

    def skip_to(self, half_queue_offset: int) -> None:
        """Drop the half messages below a queue offset, because the log does not contain them any more."""
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


def rebuild(store: TransactionStore) -> tuple[TransactionTable, list[int]]:
    """Return the table of transactions, rebuilt from the half and op queues.

    Returns:
        The table, and the half queue offsets whose op records were lost in a crash. The caller appends these op records, and
        adds them with ``add_op``.
    """
    saved_half, saved_op = store.load_positions()
    position = _inside(store, TRANS_HALF_TOPIC, saved_half)
    table = TransactionTable(position, _inside(store, TRANS_OP_HALF_TOPIC, saved_op))
    ended: dict[Identity, list[str]] = {}
    _read_ops(store, table, ended)
    missing = _unfinished(store, table, ended)
    _read_halves(store, table, ended)
    _read_given_up(store, table)
    return table, missing


def half_at(store: TransactionStore, half_queue_offset: int) -> Record | None:
    return store.record(TRANS_HALF_TOPIC, half_queue_offset)


def _inside(store: TransactionStore, topic: str, saved: int) -> int:
    """Return a saved queue offset, limited to the offsets that the queue has now.

    The saved offset is too small if files of the queue were deleted, and too large if the log was truncated.
    """
    low, high = store.min_queue_offset(topic), store.max_queue_offset(topic)
    return max(low, min(saved, high))


def _read_ops(store: TransactionStore, table: TransactionTable, ended: dict[Identity, list[str]]) -> None:
    """End every transaction that an op record names. In the log, an op record always follows its half message."""
    for op_offset in range(table.op_position, store.max_queue_offset(TRANS_OP_HALF_TOPIC)):
        op = store.record(TRANS_OP_HALF_TOPIC, op_offset)
        last = -1
        for half_offset in offsets_of_op(op) if op is not None else ():
            half = half_at(store, half_offset)
            if half is not None and op is not None and half.commit_log_offset_bytes < op.commit_log_offset_bytes:
                identity = identity_of(half)
                table.ended(identity, half_offset)
                ended.setdefault(identity, []).append(str(half_offset))
                last = max(last, half_offset)
        table.add_op(last)


def _unfinished(store: TransactionStore, table: TransactionTable, ended: dict[Identity, list[str]]) -> list[int]:
    """Return the half queue offsets whose op records were lost in a crash.

    An op record directly follows the committed message, so only the last record of the log can lack its op record.
    """
    last = store.last_record()
    if last is None or transaction_type(last.sys_flag) != TRANSACTION_COMMIT:
        return []
    half = store.record_at(last.prepared_transaction_offset_bytes)
    if half is None or half.topic != TRANS_HALF_TOPIC:
        return []
    identity = identity_of(half)
    if identity in ended:
        return []
    table.ended(identity, half.queue_offset)
    ended[identity] = [str(half.queue_offset)]
    return [half.queue_offset]


def _read_halves(store: TransactionStore, table: TransactionTable, ended: dict[Identity, list[str]]) -> None:
    """Mark half messages as done. A half message is done if a later copy has replaced it, or if its transaction has ended.

    If an op record names one half message of a transaction, the transaction has ended, and all its half messages are done.
    """
    named = {half_offset for offsets in ended.values() for half_offset in offsets}
    seen: dict[Identity, int] = {}
    for half_offset in range(table.position, store.max_queue_offset(TRANS_HALF_TOPIC)):
        half = half_at(store, half_offset)
        if half is None:
            continue
        identity, properties = identity_of(half), half.properties
        if identity in ended or properties.get(TRANSACTION_PREPARED_QUEUE_OFFSET) in named:
            table.ended(identity, half_offset)
        elif identity in seen or is_copy(properties):
            table.replaced(identity, seen.get(identity, -1), half_offset)
        seen[identity] = half_offset


def _read_given_up(store: TransactionStore, table: TransactionTable) -> None:
    """Read the newest transactions that were given up, except transactions that have ended since then or have a newer copy."""
    high = store.max_queue_offset(TRANS_CHECK_MAX_TIME_TOPIC)
    low = max(store.min_queue_offset(TRANS_CHECK_MAX_TIME_TOPIC), high - REMEMBERED_MAX)
    records = [store.record(TRANS_CHECK_MAX_TIME_TOPIC, offset) for offset in range(low, high)]
    given_up = {identity_of(record): record for record in records if record is not None}
    if not given_up:
        return
    oldest = min(record.commit_log_offset_bytes for record in given_up.values())
    op_high = store.max_queue_offset(TRANS_OP_HALF_TOPIC)
    op_low = max(store.min_queue_offset(TRANS_OP_HALF_TOPIC), op_high - _OPS_LOOKED_AT)
    for op_offset in range(op_high - 1, op_low - 1, -1):
        op = store.record(TRANS_OP_HALF_TOPIC, op_offset)
        if op is None or op.commit_log_offset_bytes < oldest:
            break
        for half_offset in offsets_of_op(op):
            half = half_at(store, half_offset)
            if half is not None:
                given_up.pop(identity_of(half), None)
    for identity, record in given_up.items():
        newest = table.newest_copy(identity)
        half = half_at(store, newest) if newest >= 0 else None
        if half is None or half.commit_log_offset_bytes < record.commit_log_offset_bytes:
            table.gave_up(identity, newest)
