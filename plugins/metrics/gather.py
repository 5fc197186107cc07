"""Reads the figures of a broker. Loop thread; a little at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.metrics.snapshot import Samples


class Gatherer:
    """Gathers every figure that docs/metrics.md names.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        broker = api.config.broker
        self.node = (broker.cluster, "broker", broker.name)

    def steps(self, samples: Samples) -> Iterator[None]:
        """Fill in the figures, by the names of the metrics; other work of the loop may come at each step."""
        self._store(samples)
        yield
        self._traffic(samples)

    def _store(self, samples: Samples) -> None:
        store = self._api.store
        marks, node = store.watermarks, self.node
        samples["flintmq_fenced"] = [(node, int(marks.fence_reason is not None))]
        samples["flintmq_watermark_bytes"] = [
            ((*node, name), float(position))
            for name, position in (
                ("first", store.commit_log.min_offset_bytes),
                ("wrote", marks.wrote),
                ("committed", marks.committed),
                ("flushed", marks.flushed),
                ("readable", marks.readable),
                ("dispatched", marks.dispatched),
            )
        ]

    def _traffic(self, samples: Samples) -> None:
        stats, node = self._api.stats, self.node
        for name, value in (
            ("flintmq_put_messages_total", stats.put_messages),
            ("flintmq_put_bytes_total", stats.put_bytes),
            ("flintmq_refused_messages_total", stats.put_failed),
            ("flintmq_get_messages_total", stats.get_messages),
            ("flintmq_get_bytes_total", stats.get_bytes),
            ("flintmq_held_pulls", len(self._api.hold)),
        ):
            samples[name] = [(node, value)]
