"""Converts positions in a store's log to queue offsets and back. A query that has read from files can then continue to read
from brokers, and vice versa."""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.spark.errors import CheckpointError
from flintmq.plugins.spark.option_values import Place
from flintmq.plugins.spark.ports import Offset
from flintmq.plugins.spark.store.choices import Choice, unread
from flintmq.plugins.spark.store.places import StoreOffset
from flintmq.plugins.spark.store.queue_units import list_queues
from flintmq.plugins.spark.store.topic_table import broker_name_of
from flintmq.plugins.spark.store.transport import StoreTransport


def queues_at(transport: StoreTransport, offset: Offset) -> dict[MessageQueue, int]:
    """Convert the offset of a query that reads a store's files to queue offsets. The result has, for each queue that the query
    reads, the queue offset of the first message that is not yet read.

    Raises:
        CheckpointError: the store does not record its broker's name, the offset belongs to another store, or the query has not
            yet read all messages of topics that were added to it.
    """
    name = broker_name_of(transport.root, transport.options)
    if name is None:
        raise CheckpointError(
            f"{transport.root}: the store does not record its broker's name, which the names of queues need: give option "
            "brokerName"
        )
    at = StoreOffset.from_json(transport.checked(offset))
    if any(unread(at.stretches, Choice.of(transport.options))):
        raise CheckpointError(
            f"{transport.root}: the query has not yet read all messages of topics that were added to it: run the query until "
            "it has read them"
        )
    found = {}
    for queue in list_queues(transport.root, transport.places().rows):
        begun = at.queue_starts.get(queue.topic, {}).get(str(queue.queue_id), 0)
        found[MessageQueue(name, queue.queue_id, queue.topic)] = max(queue.first_at(at.physical_offset), begun)
    return found


def offset_at(transport: StoreTransport, queues: Mapping[MessageQueue, int]) -> Offset:
    """Return the position from which a query continues to read a store's files after it has read from brokers. At this
    position, each queue continues at the queue offset that ``queues`` contains for it.

    Raises:
        CheckpointError: a queue belongs to another broker, or does not exist in this store.
    """
    name = broker_name_of(transport.root, transport.options)
    others = sorted({queue.broker_name for queue in queues} - {name})
    if others:
        raise CheckpointError(
            f"{transport.root} is the store of broker {name or '(unknown: give option brokerName)'}; the checkpoint has queues "
            f"of {', '.join(others)} too, but a store has the files of only one broker"
        )
    place = Place(
        "queues", queue_offsets={(queue.topic, queue.broker_name, queue.queue_id): at for queue, at in queues.items()}
    )
    return transport.places().at_queues(place, "earliest").of(Choice.of(transport.options)).to_json()
