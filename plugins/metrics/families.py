"""What is told: every metric with its kind, its labels and its meaning, in one place.

The exposition, docs/metrics.md and the tests that compare with RocketMQ's names are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs

Kind = Literal["counter", "gauge", "histogram"]


@attrs.frozen
class Family:
    """One metric: all its samples have these labels."""

    name: str
    kind: Kind
    meaning: str
    """A sentence; it is the exposition's HELP, too."""
    labels: tuple[str, ...] = ()
    """Beyond those of the group that it belongs to."""


@attrs.frozen
class Group:
    """Metrics that came from one place, and have labels in common."""

    title: str
    about: str
    """A sentence or two about all of them."""
    common: tuple[str, ...]
    """The labels that each of them has."""
    families: tuple[Family, ...]


NODE: Final = ("cluster", "node_type", "node_id")
"""The labels that RocketMQ 5 gives to everything: ``node_id`` is the broker's name."""

FLINTMQ: Final = Group(
    "FlintMQ's own",
    "What only FlintMQ has, or counts in another way.",
    NODE,
    (
        Family(
            "flintmq_fenced",
            "gauge",
            "1 where the store is fenced after a failed sync, so that nothing is acknowledged.",
        ),
        Family(
            "flintmq_watermark_bytes",
            "gauge",
            "How far the commit log is written, committed, flushed, dispatched and readable, and where it begins.",
            ("watermark",),
        ),
        Family("flintmq_put_messages_total", "counter", "Messages stored."),
        Family("flintmq_put_bytes_total", "counter", "Bytes of the records stored."),
        Family("flintmq_refused_messages_total", "counter", "Messages refused after their request was understood."),
        Family("flintmq_get_messages_total", "counter", "Messages handed out to consumers."),
        Family("flintmq_get_bytes_total", "counter", "Bytes of the records handed out to consumers."),
        Family("flintmq_held_pulls", "gauge", "Pulls that wait for a message."),
    ),
)
GROUPS: Final = (FLINTMQ,)
FAMILIES: Final[Mapping[str, Family]] = {one.name: one for group in GROUPS for one in group.families}
"""By name."""
