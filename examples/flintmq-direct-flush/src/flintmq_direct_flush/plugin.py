"""The module that the entry point names: the hook that registers the flush strategy ``direct_flush``."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import RegisterFlushStrategy, hookimpl
from flintmq.core.kernel.ports import FlushStrategy
from flintmq_direct_flush.service import DirectFlush, DirectFlushSection


@hookimpl
def flintmq_flush_services(register: RegisterFlushStrategy) -> None:
    register(
        FlushStrategy("direct_flush", DirectFlush, settings_model=DirectFlushSection, synchronous=True, uses_pool=True)
    )
