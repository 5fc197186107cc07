"""RocketMQ's ``flushDiskType`` and ``transientStorePoolEnable``, which together correspond to ``flush.strategy``.

* SYNC_FLUSH with any ``transientStorePoolEnable`` is ``group_commit``.
* ASYNC_FLUSH with ``transientStorePoolEnable: false`` is ``flush_real_time``.
* ASYNC_FLUSH with ``transientStorePoolEnable: true`` is ``commit_real_time``.
"""

from __future__ import annotations

import attrs

from flintmq.config.errors import nearest
from flintmq.config.fields import NO_SPEC
from flintmq.config.loading.binding import bind_value
from flintmq.config.loading.raw import RawNode
from flintmq.config.loading.schema import FLUSH_DISK_TYPE, TRANSIENT_POOL

SYNC = "SYNC_FLUSH"
ASYNC = "ASYNC_FLUSH"


@attrs.frozen
class FlushType:
    """Values of RocketMQ's ``flushDiskType`` and ``transientStorePoolEnable``, which together correspond to a flush
    strategy."""

    sync: bool = False
    """Whether RocketMQ's ``flushDiskType`` is SYNC_FLUSH."""
    pool: bool = False
    """Value of RocketMQ's ``transientStorePoolEnable``."""

    @classmethod
    def of_strategy(cls, strategy: str) -> FlushType:
        """Return RocketMQ's ``flushDiskType`` and ``transientStorePoolEnable`` for a flush strategy. A plugin's strategy, for
        which RocketMQ has no value, counts as asynchronous."""
        return cls(sync=strategy == "group_commit", pool=strategy == "commit_real_time")

    @property
    def strategy(self) -> str:
        """Return the name of the flush strategy to which this pair of ``flushDiskType`` and ``transientStorePoolEnable``
        corresponds."""
        if self.sync:
            return "group_commit"
        return "commit_real_time" if self.pool else "flush_real_time"

    def with_composite(self, name: str, node: RawNode, spelling: str) -> FlushType:
        """Return the pair of ``flushDiskType`` and ``transientStorePoolEnable`` with one of the two settings replaced.

        Args:
            name: RocketMQ's name of the setting.
            node: the new value as written.
            spelling: the name as written, for the error.

        Raises:
            ConfigError: RocketMQ does not know the value.
        """
        if name == TRANSIENT_POOL:
            return attrs.evolve(self, pool=bind_value(node, bool, NO_SPEC, spelling))
        text = bind_value(node, str, NO_SPEC, spelling).strip()
        if text not in (SYNC, ASYNC):
            raise node.origin.error(
                f"'{spelling}' must be {SYNC} or {ASYNC}, not '{text[:80]}'",
                key=spelling,
                suggestion=nearest(text, (SYNC, ASYNC)),
            )
        return attrs.evolve(self, sync=text == SYNC)

    def as_properties(self) -> dict[str, str]:
        """Return ``flushDiskType`` and ``transientStorePoolEnable``, keyed by name, with RocketMQ's values."""
        return {FLUSH_DISK_TYPE: SYNC if self.sync else ASYNC, TRANSIENT_POOL: "true" if self.pool else "false"}
