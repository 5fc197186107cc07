"""Storage of a consumer group's offsets: at the brokers, or in a local file for broadcasting groups."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import JsonSyntaxError
from flintmq.core.io.threads import background
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.remoting.client.callbacks import outcome_of
from flintmq.remoting.client.process_queue import ProcessQueue
from flintmq.remoting.wire.bodies import ResetOffsetBody


class OffsetStore(Protocol):
    """Stores, for each queue, the queue offset of the next message to consume. Used only on the event loop's thread."""

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of a queue, or None if none is stored."""
        ...

    async def save(self, offsets: dict[MessageQueue, int]) -> None:
        """Store the offsets of some queues; the stored offsets of other queues do not change.

        Raises ``RemotingError`` or ``OSError``.
        """
        ...


async def commit_offsets(store: OffsetStore, held_queues: Sequence[ProcessQueue]) -> None:
    """Store the offsets of the queues whose offset has changed since the last save. Raises the store's exceptions."""
    moved = {held.queue: held.commit_offset for held in held_queues if held.commit_offset != held.saved_offset}
    if not moved:
        return
    await outcome_of(store.save, moved)
    for held in held_queues:
        held.saved_offset = moved.get(held.queue, held.saved_offset)


class BrokerOffsetStore:
    """An offset store at the brokers, used by clustering consumers (``RemoteBrokerOffsetStore`` of RocketMQ)."""

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    async def load(self, queue: MessageQueue) -> int | None:
        return await self._api.committed(queue)

    async def save(self, offsets: dict[MessageQueue, int]) -> None:
        await self._api.commit_all(offsets, wait=False)


class FileOffsetStore:
    """An offset store in a JSON file of RocketMQ's format, used by broadcasting consumers (``LocalFileOffsetStore``).

    Args:
        path: the file. Each save replaces it atomically; missing folders are created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] | None = None
        self._writing = asyncio.Lock()

    async def load(self, queue: MessageQueue) -> int | None:
        return (await self._known()).get(queue)

    async def save(self, offsets: dict[MessageQueue, int]) -> None:
        async with self._writing:
            known = await self._known()
            known.update(offsets)
            data = ResetOffsetBody(known).encode()
            await background(self._write, data)

    async def _known(self) -> dict[MessageQueue, int]:
        if self._offsets is None:
            self._offsets = await background(self._read)
        return self._offsets

    def _read(self) -> dict[MessageQueue, int]:
        try:
            return ResetOffsetBody.decode(self._path.read_bytes()).offset_table
        except FileNotFoundError:
            return {}
        except JsonSyntaxError as failure:
            raise JsonSyntaxError(f"{self._path}: {failure}") from failure

    def _write(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # The temporary file's name is unique, because all members with the same client id write the same offset file.
        temporary = self._path.with_suffix(f".{os.getpid()}-{id(self):x}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
