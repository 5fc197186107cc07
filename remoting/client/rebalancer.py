"""Rebalancing: computes which of a group's queues a member consumes; starts and releases queues (``RebalanceImpl``)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError, RefusedError, RemotingError
from flintmq.remoting.client.callbacks import CANCEL_TIMEOUT_S, outcome_of, returned_by
from flintmq.remoting.client.consumer_settings import FROM_FIRST, FROM_TIMESTAMP
from flintmq.remoting.client.instance import log
from flintmq.remoting.client.membership import Membership
from flintmq.remoting.client.offset_store import OffsetStore, commit_offsets
from flintmq.remoting.client.process_queue import CacheLimits, ProcessQueue
from flintmq.remoting.wire.codes import ResponseCode

ORDERLY_END_S: Final = 30.0
"""Seconds that releasing a queue waits for the message that an orderly listener is consuming: half of the time until the
queue's lock expires."""


class Rebalancer:
    """Assigns queues to one member of a consumer group, and releases queues that the member loses.

    Used only on the event loop's thread.

    Args:
        member: the member of the group.
        offsets: the store of the group's offsets, read when a queue starts and written when it is released.
        pull: the coroutine function that pulls and consumes a queue until the queue is released.
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
        """The queues that this member consumes, each with its unconsumed messages."""
        self._releases: dict[MessageQueue, asyncio.Task[None]] = {}
        """Tasks that release queues, keyed by queue. A queue is assigned again only when the task that releases it has
        ended."""
        self._pulls: set[asyncio.Task[None]] = set()
        """Tasks that pull queues, including the tasks of released queues whose listener still runs."""
        self._is_closed = False

    async def run(self) -> None:
        """Rebalance the member's queues at each interval, and after each call of :meth:`soon`, until cancelled."""
        while True:
            self._members_changed.clear()
            try:
                await self.rebalance()
            except FlintError as failure:
                log.warning(
                    "client.rebalance_failed",
                    "rebalance of %(group)s failed: %(error)s",
                    group=self._member.group,
                    error=failure,
                )
            except Exception:
                # After an error, for example of an offset store, the member keeps its queues until the next rebalance.
                log.exception("client.rebalance_failed", "rebalance of %(group)s failed", group=self._member.group)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.rebalance_interval_s):
                    await self._members_changed.wait()

    def soon(self) -> None:
        """Make :meth:`run` rebalance the member's queues without waiting for the end of the interval."""
        self._members_changed.set()

    async def rebalance(self) -> None:
        """Compute which queues this member consumes; start to consume added queues, and release removed queues."""
        async with self._lock:
            await self._know_routes()
            announcement = (self._member.client.routes.broker_addresses(), tuple(self._member.subscriptions.values()))
            # After a change of the brokers or subscriptions, a heartbeat is sent before the group's members are requested.
            # A broker lists a member only after the member's heartbeat.
            if announcement != self._announced:
                await self._member.client.send_heartbeats()
                self._announced = announcement
            for topic in list(self._member.subscriptions):
                try:
                    await self._update(topic, await self._assigned(topic))
                except FlintError as failure:
                    # If the topic's route or the group's members are unknown, the topic's queues stay assigned as they are.
                    if self._is_news(topic, failure):
                        log.warning(
                            "client.not_rebalanced",
                            "no rebalance of %(topic)s for %(group)s: %(error)s",
                            topic=topic,
                            group=self._member.group,
                            error=failure,
                        )
                except Exception as failure:
                    # An error of the allocation strategy or of an offset store must not stop the rebalance of other topics.
                    if self._is_news(topic, failure):
                        log.exception(
                            "client.not_rebalanced",
                            "no rebalance of %(topic)s for %(group)s",
                            topic=topic,
                            group=self._member.group,
                        )
                else:
                    self._member.troubles.over(topic)

    def _is_news(self, topic: str, failure: Exception) -> bool:
        """Record the reason why a topic's queues could not be assigned, and return whether to log the reason.

        Failures of retry topics are ignored: such a topic exists only after the first retry. A broker that has just started, or
        just got this member's first heartbeat, refuses for a moment to list the members. This refusal is logged only if the
        broker refuses again.
        """
        may_pass = isinstance(failure, RefusedError) and failure.code != ResponseCode.TOPIC_NOT_EXIST
        return not topic.startswith(RETRY_PREFIX) and self._member.troubles.met(topic, failure, may_pass=may_pass)

    async def _know_routes(self) -> None:
        for topic in list(self._member.subscriptions):
            try:
                await self._member.client.routes.route(topic)
            except FlintError as failure:
                if self._is_news(topic, failure):
                    log.warning("client.no_route", "no route of %(topic)s yet: %(error)s", topic=topic, error=failure)

    async def _assigned(self, topic: str) -> list[MessageQueue]:
        queues = (await self._member.client.routes.route(topic)).read_queues
        if not self._member.is_clustering:
            return list(queues)
        # RocketMQ's brokers list a member twice for two minutes after the member has reconnected. Duplicates are removed.
        # A member that is listed twice would get two shares of the queues, and would consume only one share.
        members = list(dict.fromkeys(await self._member.api.members(topic)))
        # Consistent hashing depends on the queues' names. All members must hash the same names, which include the namespace.
        namespace = self._member.client.namespace
        wrapped = list(map(namespace.wrap_queue, queues))
        share = returned_by(self._settings.allocate, self._member.client.client_id, members, wrapped)
        return list(map(namespace.unwrap_queue, share))

    async def _update(self, topic: str, assigned: Sequence[MessageQueue]) -> None:
        wanted = set(assigned)
        for queue in [queue for queue in self.process_queues if queue.topic == topic and queue not in wanted]:
            self._release(self.process_queues[queue])
        gained = [queue for queue in assigned if self._may_begin(queue)]
        failures: dict[str, FlintError] = {}
        """Failures that keep queues from starting, keyed by broker name."""
        if gained and self._locks_queues:
            locked, failures = await self._member.api.lock(gained)
            gained = [queue for queue in gained if queue in locked]
        for queue in gained:
            if isinstance(failures.get(queue.broker_name), RemotingError):
                continue
            try:
                first = await self._first_offset(queue)
            except FlintError as failure:
                failures.setdefault(queue.broker_name, failure)
                continue
            except Exception:
                # An error of an offset store for one queue must not stop the other queues.
                log.exception(
                    "client.offset_not_loaded",
                    "no offset of %(queue)s was loaded for %(group)s",
                    queue=queue,
                    group=self._member.group,
                )
                continue
            # The consumer may have been closed or have unsubscribed while the offset was loaded, so _may_begin() checks both.
            if self._may_begin(queue):
                self._begin(ProcessQueue(queue, first, self._limits))
            elif self._locks_queues and queue not in self.process_queues and queue not in self._releases:
                await self._member.api.unlock([queue])
        if failures:
            raise next(iter(failures.values()))

    def _may_begin(self, queue: MessageQueue) -> bool:
        return not (
            self._is_closed
            or queue in self.process_queues
            or queue in self._releases
            or queue.topic not in self._member.subscriptions
        )

    def _begin(self, held: ProcessQueue) -> None:
        """Add a queue, and start the task that pulls its messages. If the pull task ends by itself, the queue is released."""
        self.process_queues[held.queue] = held
        held.task = self._member.client.start_task(self._pull(held), f"pull-{held.queue}")
        self._pulls.add(held.task)

        def ended(task: asyncio.Task[None]) -> None:
            self._pulls.discard(task)
            if not held.dropped:
                log.info(
                    "client.pull_ended",
                    "the pull task of %(queue)s has ended, the queue is released and may start again",
                    queue=held.queue,
                )
                self._release(held)

        held.task.add_done_callback(ended)

    async def _first_offset(self, queue: MessageQueue) -> int:
        stored = await outcome_of(self._offsets.load, queue)
        if type(stored) is int and stored >= 0:
            return stored
        if stored is not None:
            raise TypeError(f"an offset store must return an offset of at least 0, or None, not {stored!r}")
        if queue.topic.startswith(RETRY_PREFIX) or self._settings.consume_from == FROM_FIRST:
            return 0
        if self._settings.consume_from == FROM_TIMESTAMP:
            return await self._member.api.search_offset(queue, self._settings.consume_from_timestamp_ms)
        return await self._member.api.max_offset(queue)

    def _release(self, held: ProcessQueue, *, save: bool = True) -> asyncio.Task[None]:
        """Release a queue, so that none of its further messages is consumed; return the task that commits and unlocks it.

        The queue may start again only after that task, so that an old offset is never stored over a newer one.
        """
        if held.queue in self._releases:
            return self._releases[held.queue]
        held.dropped = True
        self.process_queues.pop(held.queue, None)
        releasing = asyncio.create_task(self._released(held, save), name=f"release-{held.queue}")
        self._releases[held.queue] = releasing

        def ended(task: asyncio.Task[None]) -> None:
            self._releases.pop(held.queue, None)
            if not task.cancelled() and (failure := task.exception()) is not None:
                log.error("client.not_released", "the release of %(queue)s failed", queue=held.queue, exc_info=failure)
            self.soon()

        releasing.add_done_callback(ended)
        return releasing

    async def _released(self, held: ProcessQueue, save: bool) -> None:
        """End a queue's pull task, commit the queue's offset and unlock the queue.

        If the listener is consuming an orderly message of the queue, the message is finished first, within a time limit.
        """
        is_finished = True
        if held.task is not None:
            if held.consuming and not await self._finished(held, held.task):
                log.warning(
                    "client.abandoned",
                    "a listener of %(group)s has not finished a message of %(queue)s in time; the queue is released without it",
                    group=self._member.group,
                    queue=held.queue,
                )
                is_finished = False
            held.task.cancel()
            _, going_on = await asyncio.wait([held.task], timeout=CANCEL_TIMEOUT_S)
            if going_on:
                log.warning(
                    "client.not_cancelled",
                    "a listener of %(group)s still runs for %(queue)s although it was cancelled",
                    group=self._member.group,
                    queue=held.queue,
                )
        if save:
            try:
                await commit_offsets(self._offsets, [held])
            except (FlintError, OSError) as failure:
                log.warning(
                    "client.offset_not_stored",
                    "%(queue)s is released, but its offset was not stored: %(error)s",
                    queue=held.queue,
                    error=failure,
                )
            except Exception:
                # After an error of an offset store, the queue must still be unlocked for other members.
                log.exception(
                    "client.offset_not_stored",
                    "%(queue)s is released, but the offset store has failed",
                    queue=held.queue,
                )
        # If the listener still runs, the queue stays locked until the broker lets the lock expire.
        if self._locks_queues and is_finished:
            try:
                await self._member.api.unlock([held.queue])
            except FlintError as failure:
                log.warning(
                    "client.not_unlocked",
                    "%(queue)s is released, but it was not unlocked: %(error)s",
                    queue=held.queue,
                    error=failure,
                )

    async def _finished(self, held: ProcessQueue, pull: asyncio.Task[None]) -> bool:
        """Wait until the listener has finished a queue's orderly message; return whether it finished in time.

        The lock of the queue is renewed during the wait.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + max(ORDERLY_END_S, self._settings.close_timeout_s)
        while not pull.done() and (left_s := ends_s - loop.time()) > 0:
            await asyncio.wait([pull], timeout=min(left_s, self._settings.lock_interval_s))
            if not pull.done() and self._locks_queues:
                _, failures = await self._member.api.lock([held.queue])
                for failure in failures.values():
                    log.warning(
                        "client.not_locked",
                        "the lock of %(queue)s was not renewed, while its listener still runs: %(error)s",
                        queue=held.queue,
                        error=failure,
                    )
        return pull.done()

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Set the offsets of queues that this member consumes, and restart these queues without their pulled messages."""
        async with self._lock:
            mine = {queue: offset for queue, offset in offsets.items() if queue in self.process_queues}
            releases = [self._release(self.process_queues[queue], save=False) for queue in mine]
            if releases:
                await asyncio.wait(releases)
            await self._offsets.save(mine)
        self.soon()

    async def commit(self) -> None:
        """Store each consumer offset that has changed since it was last stored. Raises ``FlintError``."""
        await commit_offsets(self._offsets, list(self.process_queues.values()))

    async def renew_locks(self) -> None:
        """Renew the locks of this member's queues. A queue whose lock is lost is released until the next rebalance.

        Raises:
            FlintError: a broker did not answer or refused; its queues are kept. Only the first such error is raised.
        """
        queues = list(self.process_queues)
        if not queues:
            return
        locked, failures = await self._member.api.lock(queues)
        for queue in queues:
            if queue not in locked and queue.broker_name not in failures and queue in self.process_queues:
                self._release(self.process_queues[queue], save=False)
        if failures:
            raise next(iter(failures.values()))

    async def drop_topic(self, topic: str) -> None:
        """Release the queues of a topic, and wait until they are released.

        The method does not wait for queues with an orderly message that the listener is consuming.
        """
        self._member.troubles.over(topic)
        held_queues = [held for queue, held in self.process_queues.items() if queue.topic == topic]
        releases = [(self._release(held), held) for held in held_queues]
        waited = [release for release, held in releases if not held.consuming]
        if waited:
            await asyncio.wait(waited)

    def has_task(self, task: asyncio.Task[Any]) -> bool:
        """Return whether a task pulls or releases queues of this member."""
        return task in self._pulls or task in self._releases.values()

    def begin(self) -> None:
        """Allow the member to consume queues again after :meth:`drop_all`."""
        self._is_closed = False

    async def drop_all(self) -> None:
        """Release every queue of the member, and wait until all are released. No queue is started until :meth:`begin`."""
        self._is_closed = True
        for held in list(self.process_queues.values()):
            self._release(held)
        if self._releases:
            await asyncio.wait(list(self._releases.values()))
