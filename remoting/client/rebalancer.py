"""Shares the queues of a group among its members, and begins and gives up those of one member (``RebalanceImpl``)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError
from flintmq.remoting.client.consume_service import Membership
from flintmq.remoting.client.consumer_settings import FROM_FIRST, FROM_TIMESTAMP
from flintmq.remoting.client.instance import log
from flintmq.remoting.client.offset_store import OffsetStore, commit_offsets
from flintmq.remoting.client.process_queue import CacheLimits, ProcessQueue


class Rebalancer:
    """The queues of one member. Loop thread only.

    Args:
        member: the member of the group.
        offsets: says where a queue begins, and keeps how far it was consumed when it is given up.
        pull: runs for each queue until it is given up.
    """

    def __init__(
        self, member: Membership, offsets: OffsetStore, pull: Callable[[ProcessQueue], Coroutine[Any, Any, None]]
    ) -> None:
        self._member = member
        self._settings = member.settings
        self._locks_queues = member.settings.orderly and member.is_clustering
        settings = member.settings
        span = sys.maxsize if settings.orderly else settings.max_span
        self._limits = CacheLimits(settings.max_cached_messages, settings.max_cached_bytes, span)
        self._offsets = offsets
        self._pull = pull
        self._lock = asyncio.Lock()
        self._members_changed = asyncio.Event()
        self._announced: tuple[object, ...] = ()
        self.process_queues: dict[MessageQueue, ProcessQueue] = {}
        """The queues that this member holds."""

    async def run(self) -> None:
        """Rebalance at every interval, and when :meth:`soon` asks for it."""
        while True:
            self._members_changed.clear()
            try:
                await self.rebalance()
            except FlintError as failure:
                log.warning("rebalance of %s failed: %s", self._member.group, failure)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.rebalance_interval_s):
                    await self._members_changed.wait()

    def soon(self) -> None:
        """Wake the task that rebalances."""
        self._members_changed.set()

    async def rebalance(self) -> None:
        """Compute which queues are this member's, begin those it gained and give up those it lost."""
        async with self._lock:
            await self._know_routes()
            announcement = (self._member.client.routes.broker_addresses(), tuple(self._member.subscriptions.values()))
            if announcement != self._announced:  # brokers must know a member before they count it
                await self._member.client.send_heartbeats()
                self._announced = announcement
            for topic in list(self._member.subscriptions):
                try:
                    await self._update(topic, await self._assigned(topic))
                except FlintError as failure:  # the assignment stays as it is
                    log.info("no rebalance of %s for %s: %s", topic, self._member.group, failure)

    async def _know_routes(self) -> None:
        for topic in list(self._member.subscriptions):
            try:
                await self._member.client.routes.route(topic)
            except FlintError as failure:
                log.info("no route of %s yet: %s", topic, failure)

    async def _assigned(self, topic: str) -> list[MessageQueue]:
        queues = (await self._member.client.routes.route(topic)).read_queues
        if not self._member.is_clustering:
            return list(queues)
        # Java's brokers name a member twice, for two minutes, that lost its connection and came back: half its queues would be
        # nobody's.
        members = list(dict.fromkeys(await self._member.api.members(topic)))
        namespace = self._member.client.namespace  # consistent hashes are of names as servers know them
        wrapped = list(map(namespace.wrap_queue, queues))
        share = self._settings.allocate(self._member.client.client_id, members, wrapped)
        return list(map(namespace.unwrap_queue, share))

    async def _update(self, topic: str, assigned: Sequence[MessageQueue]) -> None:
        wanted = set(assigned)
        for queue in [queue for queue in self.process_queues if queue.topic == topic and queue not in wanted]:
            await self._drop(self.process_queues[queue])
        gained = [queue for queue in assigned if queue not in self.process_queues]
        if gained and self._locks_queues:
            locked = await self._member.api.lock(gained)
            gained = [queue for queue in gained if queue in locked]
        for queue in gained:
            held = ProcessQueue(queue, await self._first_offset(queue), self._limits)
            self.process_queues[queue] = held
            held.task = self._member.client.start_task(self._pull(held), f"pull-{queue}")

    async def _first_offset(self, queue: MessageQueue) -> int:
        stored = await self._offsets.load(queue)
        if stored is not None:
            return stored
        if queue.topic.startswith(RETRY_PREFIX) or self._settings.consume_from == FROM_FIRST:
            return 0
        if self._settings.consume_from == FROM_TIMESTAMP:
            return await self._member.api.search_offset(queue, self._settings.consume_from_timestamp_ms)
        return await self._member.api.max_offset(queue)

    async def _drop(self, held: ProcessQueue, *, save: bool = True) -> None:
        """Give a queue up: no message of it is consumed from now on."""
        held.dropped = True
        self.process_queues.pop(held.queue, None)
        if held.task is not None:
            if held.pulling or not self._settings.orderly:
                held.task.cancel()
            await asyncio.gather(held.task, return_exceptions=True)
        if save:
            try:
                await commit_offsets(self._offsets, [held])
            except (FlintError, OSError) as failure:
                log.warning("%s is given up, its offset was not stored: %s", held.queue, failure)
        if self._locks_queues:
            try:
                await self._member.api.unlock([held.queue])
            except FlintError as failure:
                log.warning("%s is given up, it was not unlocked: %s", held.queue, failure)

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at other offsets in queues that are this member's; messages that were pulled of them are dropped."""
        async with self._lock:
            mine = {queue: offset for queue, offset in offsets.items() if queue in self.process_queues}
            for queue in mine:
                await self._drop(self.process_queues[queue], save=False)
            await self._offsets.save(mine)
        self.soon()

    async def renew_locks(self) -> None:
        """Renew this member's locks; a queue whose lock is lost is given up until the next rebalance."""
        queues = list(self.process_queues)
        if not queues:
            return
        locked = await self._member.api.lock(queues)
        for queue in queues:
            if queue not in locked and queue in self.process_queues:
                await self._drop(self.process_queues[queue], save=False)
                self.soon()

    async def drop_topic(self, topic: str) -> None:
        """Give up the queues of a topic."""
        for held in [held for queue, held in self.process_queues.items() if queue.topic == topic]:
            await self._drop(held)

    async def drop_all(self) -> None:
        """Give up every queue."""
        await asyncio.gather(*(self._drop(held) for held in list(self.process_queues.values())))
