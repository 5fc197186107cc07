"""The keys under which the index finds a message: UNIQ_KEY, then each of KEYS, then the properties in :data:`MORE_KEYS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from flintmq.core.record.properties import KEY_SEPARATOR

MORE_KEYS: Final[tuple[str, ...]] = ()
"""Names of further properties whose value is one key of the index. RocketMQ indexes no such properties, so with a name in this
tuple the index differs from RocketMQ's."""


class Keyed(Protocol):
    """A stored message: a record, or its dispatch request."""

    @property
    def uniq_key(self) -> str: ...
    @property
    def keys(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, str]: ...


def index_keys(message: Keyed) -> list[str]:
    """Return the keys of a message in the order of its entries in the index; a key that occurs twice is there twice."""
    uniq_key, more = message.uniq_key, message.keys
    keys = [uniq_key] if uniq_key else []
    if more:
        keys += filter(None, more.split(KEY_SEPARATOR))
    if MORE_KEYS:
        keys += filter(None, map(message.properties.get, MORE_KEYS))
    return keys
