"""The bounded queues that requests to a broker wait in, by name."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from flintmq.remoting.server.handler_threads import HandlerThreads
from flintmq.remoting.server.pool import Pool

if TYPE_CHECKING:
    from flintmq.config.sections.service import AdmissionSection

THREADS_END_S: Final = 2.0
"""How long a stop waits for handlers that run in threads."""


class Pools:
    """Makes a queue the first time that something asks for its name. Loop thread.

    Args:
        admission: how many requests each of the broker's own queues takes.
        held: threads are ended with it.
    """

    def __init__(self, admission: AdmissionSection, held: AsyncExitStack) -> None:
        self._admission = admission
        self._held = held
        self.by_name: dict[str, Pool] = {}
        """The queues that there are."""

    def get(self, name: str, threads: int = 0) -> Pool:
        """Return the queue of a name.

        Args:
            name: one of the broker's own queues, or another one of a plugin, which has threads.
            threads: how many run its plain handlers; 0 for the loop.
        """
        if name not in self.by_name:
            capacity = getattr(self._admission, f"{name}_queue", None)
            if capacity is not None:
                self.by_name[name] = Pool(name, capacity)
            else:
                self.by_name[name] = Pool(name, self._admission.admin_queue, key="admission.admin_queue")
        pool = self.by_name[name]
        if threads:
            if pool.threads is None:
                pool.threads = HandlerThreads(name, threads)
                self._held.push_async_callback(pool.threads.close, THREADS_END_S)
            pool.threads.grow(threads)
        return pool
