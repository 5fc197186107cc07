"""Reads a store's topics from ``config/topics.json``, which FlintMQ and the Java broker write alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flintmq.config.rocketmq import system_topics as reserved
from flintmq.core.broker import perm
from flintmq.core.errors import JsonSyntaxError
from flintmq.core.io import fastjson
from flintmq.plugins.spark.options import ReadOptions


def topic_table(root: Path) -> Mapping[str, Any]:
    """Return the configurations of the created topics, keyed by name; empty if the store has no such file."""
    try:
        table = fastjson.loads((root / "config" / "topics.json").read_bytes())["topicConfigTable"]
    except (OSError, JsonSyntaxError, KeyError, TypeError):
        return {}  # A copy of a store may lack the file ``topics.json``.
    return table if isinstance(table, dict) else {}


def broker_name_of(root: Path, options: ReadOptions) -> str | None:
    """Return the name of the broker that wrote a store, from the option ``brokerName`` or else from the store's topics; None if
    the name is not certain.

    Every broker has a topic with its own name, one queue, and the permission to be inherited (TopicConfigManager). The topic
    with its cluster's name has 16 queues. After a broker was renamed, its store has two such topics.
    """
    if options.broker_name is not None:
        return options.broker_name
    names = [
        name
        for name, config in topic_table(root).items()
        if isinstance(config, dict)
        and name != reserved.AUTO_CREATE_TOPIC
        and int(config.get("perm") or 0) & perm.INHERIT
        and config.get("readQueueNums") == 1
    ]
    return names[0] if len(names) == 1 else None
