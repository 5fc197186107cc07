"""How far a read over the wire is behind: in messages, bytes and time, and when each broker answered last."""

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
"""So many queues, those with the most unread messages, are asked how old their first unread one is."""


def lag_of(
    unread: Sequence[QueueRange],
    message_bytes: Callable[[Sequence[QueueRange]], int],
    client: WireClient,
    contacts: Contacts,
) -> dict[str, Any]:
    """Return ``lag`` and ``brokers``, as :meth:`MessageTransport.reported` has them.

    Args:
        unread: of each queue what is not read yet.
        message_bytes: how large a record of such ranges is, on average.
        client: asks for the first messages.
        contacts: when brokers answered.
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
    """Return how long the oldest unread message has waited; None when no broker tells."""
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
