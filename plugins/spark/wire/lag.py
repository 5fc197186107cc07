"""The lag of a read from brokers, in messages, bytes and time, and the age of each broker's last answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.errors import SparkPluginError
from flintmq.plugins.spark.wire.client import WireClient
from flintmq.plugins.spark.wire.contacts import Contacts
from flintmq.plugins.spark.wire.pulling import Puller, batches
from flintmq.plugins.spark.wire.ranges import QueueRange

LOOKED_AT: Final = 8
"""Maximum number of queues whose oldest unread message is fetched to find the message's age. The queues with the most unread
messages are chosen."""


def lag_of(
    unread: Sequence[QueueRange],
    message_bytes: Callable[[Sequence[QueueRange]], int],
    client: WireClient,
    contacts: Contacts,
) -> dict[str, Any]:
    """Return the objects ``lag`` and ``brokers`` that :meth:`MessageTransport.reported` adds to the JSON of a query's offset,
    which Spark displays. ``lag`` has the number of unread messages, their size in bytes, and the age in ms of the oldest unread
    message. ``brokers`` has the time in ms since each broker's last answer.

    Args:
        unread: the unread range of each queue.
        message_bytes: function that returns the average size in bytes of a record in the given ranges.
        client: the client that fetches the oldest unread messages.
        contacts: the times of the brokers' last answers.
    """
    messages = sum(one.rows for one in unread)
    return {
        "lag": {
            "messages": messages,
            "bytes": messages * message_bytes(unread) if messages else 0,
            "ms": _waited_ms(unread, client, contacts) if messages else 0,
        },
        "brokers": {name: {"contactAgeMs": age_ms} for name, age_ms in contacts.ages_ms().items()},
    }


def _waited_ms(unread: Sequence[QueueRange], client: WireClient, contacts: Contacts) -> int | None:
    """Return the age in ms of the oldest message that a query has not read; None if no broker answers."""
    here = sorted((one for one in unread if one.queue.broker_name not in contacts.away), key=lambda one: -one.rows)
    first = [QueueRange(one.queue, one.start, one.start + 1) for one in here[:LOOKED_AT]]
    puller = Puller(client, fail_on_data_loss=False)
    decoder = Decoder(("storeTimestamp",), RowFilter())
    try:
        found = list(batches(puller.pull(first), decoder, 1_000, 1 << 20))
    except SparkPluginError:
        return None
    stored = [at.timestamp() for batch in found for at in batch.column("storeTimestamp").to_pylist()]
    return max(0, int((time.time() - min(stored)) * 1000)) if stored else None
