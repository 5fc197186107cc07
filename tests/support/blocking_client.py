"""The client's transport for tests without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flintmq.remoting.client.blocking import LoopThread
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.command import RemotingCommand


class BlockingClient:
    """Asks over connections of its own, and waits for the answers."""

    def __init__(self, thread: LoopThread, client: RemotingClient) -> None:
        self._thread = thread
        self._client = client

    def invoke(self, address: str, command: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        return self._thread.run(self._client.invoke(address, command, timeout_ms))


@contextmanager
def blocking_client() -> Iterator[BlockingClient]:
    """A client and the thread of its loop; both end with the ``with`` statement."""

    async def make() -> RemotingClient:
        return RemotingClient()

    thread = LoopThread()
    try:
        client = thread.run(make())
        try:
            yield BlockingClient(thread, client)
        finally:
            thread.run(client.close())
    finally:
        thread.stop()
