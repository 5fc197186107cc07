"""A map from queues to figures, written piece by piece: tables of tens of thousands of queues are made between other work."""

from __future__ import annotations

import msgspec

from flintmq.core.broker.message_queue import MessageQueue
from flintmq.remoting.wire.bodies import OffsetWrapper, TopicOffset


class OffsetTable:
    """``{{"brokerName":"a","queueId":0,"topic":"T"}:{...},...}``, as RocketMQ writes it.

    See docs/internals/protocol.md, JSON dialect.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, queue: MessageQueue, figures: OffsetWrapper | TopicOffset) -> None:
        """Adds a queue."""
        self._parts.append(b"%b:%b" % (msgspec.json.encode(queue), msgspec.json.encode(figures)))

    def json(self) -> bytes:
        """The whole map."""
        return b"{%b}" % b",".join(self._parts)


def topic_stats(table: OffsetTable) -> bytes:
    """TopicStatsTable."""
    return b'{"offsetTable":%b}' % table.json()


def consume_stats(consume_tps: float, table: OffsetTable) -> bytes:
    """ConsumeStats."""
    return b'{"consumeTps":%b,"offsetTable":%b}' % (msgspec.json.encode(consume_tps), table.json())


def consume_stats_list(address: str, groups: list[tuple[str, list[bytes]]], total_diff: int) -> bytes:
    """ConsumeStatsList of a broker.

    Args:
        address: the broker's.
        groups: each with its :func:`consume_stats` by topic.
        total_diff: how many messages all of them are behind.
    """
    each = b",".join(b"{%b:[%b]}" % (msgspec.json.encode(group), b",".join(stats)) for group, stats in groups)
    return b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d}' % (
        msgspec.json.encode(address),
        each,
        total_diff,
    )
