"""The module that the plugin's entry point names: the hook that registers the flush strategy ``adaptive_group_commit``."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import RegisterFlushStrategy, hookimpl
from flintmq.core.kernel.ports import FlushStrategy
from flintmq_adaptive_flush.service import AdaptiveGroupCommit, AdaptiveGroupCommitSection


@hookimpl
def flintmq_flush_services(register: RegisterFlushStrategy) -> None:
    register(
        FlushStrategy(
            "adaptive_group_commit",
            AdaptiveGroupCommit,
            settings_model=AdaptiveGroupCommitSection,
            synchronous=True,
        )
    )
