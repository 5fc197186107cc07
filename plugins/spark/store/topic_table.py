"""What a store's configuration says of its topics: ``config/topics.json``, of FlintMQ and of the Java broker alike."""

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
    """Return the topics that were created, with or without messages; none of a store without its configuration."""
    try:
        table = fastjson.loads((root / "config" / "topics.json").read_bytes())["topicConfigTable"]
    except (OSError, JsonSyntaxError, KeyError, TypeError):
        return {}  # a copy of a store need not have it
    return table if isinstance(table, dict) else {}


def broker_name_of(root: Path, options: ReadOptions) -> str | None:
    """Return the name of the broker that wrote a store: what the option says, else the store; None where it is not certain.

    Every broker has a topic of its own name, with one queue and the permission to be inherited (TopicConfigManager); its
    cluster's name has 16 queues. A store whose broker was renamed has two of them.
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
