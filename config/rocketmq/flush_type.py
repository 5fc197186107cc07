"""RocketMQ's ``flushDiskType`` and ``transientStorePoolEnable``, which together say what ``flush.strategy`` says here.

==============  ========================  ==================
flushDiskType   transientStorePoolEnable  flush.strategy
==============  ========================  ==================
SYNC_FLUSH      either                    group_commit
ASYNC_FLUSH     false                     flush_real_time
ASYNC_FLUSH     true                      commit_real_time
==============  ========================  ==================
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
    """The pair of RocketMQ's settings."""

    sync: bool = False
    """``flushDiskType`` is SYNC_FLUSH."""
    pool: bool = False
    """``transientStorePoolEnable``."""

    @classmethod
    def of_strategy(cls, strategy: str) -> FlushType:
        """Return the pair a strategy stands for. A plugin's strategy counts as asynchronous: RocketMQ has no word for it."""
        return cls(sync=strategy == "group_commit", pool=strategy == "commit_real_time")

    @property
    def strategy(self) -> str:
        """Return the strategy the pair stands for."""
        if self.sync:
            return "group_commit"
        return "commit_real_time" if self.pool else "flush_real_time"

    def with_composite(self, name: str, node: RawNode, spelling: str) -> FlushType:
        """Return the pair with one of its settings replaced.

        Raises:
            ConfigError: the value is not one of RocketMQ's.
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
        """Return both settings as RocketMQ writes them."""
        return {FLUSH_DISK_TYPE: SYNC if self.sync else ASYNC, TRANSIENT_POOL: "true" if self.pool else "false"}
