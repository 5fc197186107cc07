"""The module that the entry point names: the hook that registers the pool ``huge_pages``."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import RegisterPool, hookimpl
from flintmq_huge_page_pool.pool import HugePagePool


@hookimpl
def flintmq_transient_store_pools(register: RegisterPool) -> None:
    register("huge_pages", lambda context: HugePagePool(context.buffers, context.size_bytes))
