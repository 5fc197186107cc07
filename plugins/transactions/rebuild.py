"""Make the table of transactions again from the queues when the broker starts (docs/internals/algorithms.md, Transactions).

A Java broker may have written them: it may have ended a transaction at its first half message while a copy waited to be asked
about; a crash may have set the saved positions back, or cut an op record off its final record.
"""

from __future__ import annotations

from typing import Final

from flintmq.config.rocketmq.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.core.record.properties import TRANSACTION_PREPARED_QUEUE_OFFSET
from flintmq.core.record.record import Record
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, transaction_type
from flintmq.plugins.transactions.half_message import (
    Identity,
    identity_of,
    is_copy,
    offsets_of_op,
)
from flintmq.plugins.transactions.ports import TransactionStore
from flintmq.plugins.transactions.table import REMEMBERED_MAX, TransactionTable

_OPS_LOOKED_AT: Final = 10 * REMEMBERED_MAX


def rebuild(store: TransactionStore) -> tuple[TransactionTable, list[int]]:
    """The table as the queues tell it.

    Returns:
        The table, and half queue offsets whose op record is missing: the crash came between the two. The caller appends
        them, and adds them with ``add_op``.
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
    """A saved position, moved into the queue: it may have been cut at either end."""
    low, high = store.min_queue_offset(topic), store.max_queue_offset(topic)
    return max(low, min(saved, high))


def _read_ops(store: TransactionStore, table: TransactionTable, ended: dict[Identity, list[str]]) -> None:
    """Ends every transaction that an op record names. An op record always lies behind its half message in the log."""
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
    """A final record is followed by its op record at once. Only the log's last record can lack it."""
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
    """Finds the copies among what is open, and what was ended at another half message of the same transaction."""
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
    """The newest of those given up can still be ended, unless they were since, or are asked about again."""
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
