"""The client's transport for callers without an event loop: the loop runs in a daemon thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from flintmq.remoting.client.transport import RemotingClient, RequestHandler, RpcHook
from flintmq.remoting.wire.command import RemotingCommand

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread. Thread-safe."""

    def __init__(self, name: str = "flintmq-client") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result. Never call it on the loop's own thread."""
        return self.start(work).result()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def is_stopped(self) -> bool:
        return self._loop.is_closed()

    def stop(self) -> None:
        """End the loop and its thread. Idempotent."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingRemotingClient:
    """:class:`RemotingClient` for synchronous callers. Thread-safe; use it in a ``with`` statement.

    Args:
        options: as for :class:`RemotingClient`.
    """

    def __init__(self, **options: Any) -> None:
        self._thread = LoopThread()
        try:
            self._client = self._thread.run(self._make(options))
        except BaseException:
            self._thread.stop()
            raise

    @staticmethod
    async def _make(options: dict[str, Any]) -> RemotingClient:
        return RemotingClient(**options)

    def invoke(self, address: str, command: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """See :meth:`RemotingClient.invoke`."""
        return self._thread.run(self._client.invoke(address, command, timeout_ms))

    def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: float = 3_000) -> None:
        """See :meth:`RemotingClient.invoke_oneway`."""
        self._thread.run(self._client.invoke_oneway(address, command, timeout_ms))

    def register_processor(self, code: int, handler: RequestHandler) -> None:
        """See :meth:`RemotingClient.register_processor`; the handler runs on the loop's thread."""
        self._client.register_processor(code, handler)

    def add_hook(self, hook: RpcHook) -> None:
        """See :meth:`RemotingClient.add_hook`."""
        self._client.add_hook(hook)

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        if self._thread.is_stopped:
            return
        self._thread.run(self._client.close())
        self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
