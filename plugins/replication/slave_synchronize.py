"""Copies a master's topics, groups and offsets to its slave at intervals (RocketMQ: ``SlaveSynchronize``).

Offsets of consumers, delay levels, timers and transactions refer to the master's log. A slave must not apply offsets before its
own log has the messages before these offsets. Otherwise, a slave that becomes the master
may treat messages as delivered although it never received them. The slave therefore requests first the offsets, and then the
physical offset at which the master's log ends. It applies the offsets when its own log has reached this physical offset.
RocketMQ's slave applies offsets at once.

Groups, offsets, counters and queues that the master has deleted are removed from the slave, too, even if the slave was not
connected at that time. The slave copies tables only from a master whose log it receives, because another broker may have
another store, or an empty store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.log_copy import LogCopy, MasterTables
from flintmq.core.errors import FlintError, JsonSyntaxError
from flintmq.core.io import fastjson
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.io.typed_json import read_as
from flintmq.core.kernel.ports import SupportsFollowing
from flintmq.core.log_events import event_log
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.processors.answers import sliced
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request

log = event_log("flintmq.ha")

TIMEOUT_MS = 5_000
FIRST_WAIT_S = 0.5
REST_S = 0.1
"""Shortest pause in seconds between two rounds that copy the master's tables. The pause is needed because a table may have
thousands of topics."""
_REST: Final = 10
"""Length of the pause after a round that copies the master's tables, as a multiple of the round's duration."""


@attrs.frozen
class _Offsets:
    """Offsets that a master sent, and the physical offset at which the master's log ended just afterwards.

    The slave applies the offsets when its own log has reached this physical offset.
    """

    end_offset_bytes: int
    offsets: dict[str, Any] | None
    delays: dict[str, Any] | None


class SlaveSynchronize:
    """Copies the master's tables to the slave at an interval; RocketMQ's SlaveSynchronize. Used only on the event loop's
    thread.

    Args:
        api: the slave's broker.
        client: sends the requests to the master.
        master_address: returns the master's address for clients; empty if it is unknown.
        interval_s: the interval in seconds.
        is_following: returns whether the log of that master is received now.
    """

    def __init__(
        self,
        api: BrokerApi,
        client: RemotingClient,
        master_address: Callable[[], str],
        interval_s: float,
        is_following: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api = api
        self._tables = api.part(MasterTables)
        self._copy = api.part(LogCopy)
        self._client = client
        self._master_address = master_address
        self._interval_s = interval_s
        self._is_following = is_following
        self._task: asyncio.Task[None] | None = None
        self._told = ""
        self._wanted = asyncio.Event()
        self._held: _Offsets | None = None
        """Consumer offsets and delay offsets that the master has sent and the slave has not applied yet; None if all offsets
        are applied. The slave applies the offsets when its log has reached the physical offset that is stored with them."""
        self._deleted: set[str] = set()
        """Topics whose deletion the slave has read in the log since it last requested the master's offsets."""
        self._may_be_left = True
        """Whether the slave may have queues of topics that the master's table of topics lacks."""
        self.rounds = 0
        """Number of rounds that have copied all tables of the master."""

    def start(self) -> None:
        """Start the task that copies the master's tables."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Copy the table of topics before the interval ends, because the log has a topic that the slave does not know.

        The other tables are still copied once in an interval.
        """
        self._wanted.set()

    def forget_topic(self, topic: str) -> None:
        """Remove a topic and all offsets in it, because its deletion by the master was found in the log.

        The table of topics is copied soon after, in case the master has created the topic again. If the disk fails, the error
        is logged. The next copies of the master's tables replace the tables of topics and of offsets anyway.
        """
        api = self._api
        self._deleted.add(topic)
        with self._told_once(self._master_address()):
            api.offsets.remove_topic(topic)
            api.figures.counts.forget_topic(topic)
            api.topics.delete(topic)
        self.wake()

    def unknown_arrived(self) -> None:
        """Record that a message has arrived whose topic is missing in the last copy of the master's table of topics."""
        self._may_be_left = True

    def halt(self) -> None:
        """Stop copying the master's tables; the task that copies them ends soon after. Idempotent."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Stop copying the master's tables, and wait until the task that copies them has ended. Idempotent."""
        self.halt()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            address, began_s = self._master_address(), loop.time()
            is_due = began_s >= due_s
            is_following = bool(address) and self._is_following()
            if is_following:
                await self._round(address, topics_only=not is_due)
            is_usual = is_following and self.rounds
            interval_s = self._interval_s if is_usual else min(FIRST_WAIT_S, self._interval_s)
            if is_due:
                due_s = loop.time() + interval_s
            await asyncio.sleep(min(max(REST_S, _REST * (loop.time() - began_s)), interval_s))
            while (left_s := due_s - loop.time()) > 0 and not self._wanted.is_set():
                with self._told_once(address):
                    self._take_over_reached()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, REST_S) if self._held is not None else left_s):
                        await self._wanted.wait()
            self._wanted.clear()

    async def _round(self, address: str, *, topics_only: bool) -> None:
        with self._told_once(address):
            await self.synchronize(address, topics_only=topics_only)
            self.rounds += not topics_only
            self._told = ""

    @contextlib.contextmanager
    def _told_once(self, address: str) -> Iterator[None]:
        """Log an error of a ``with`` block that copies the master's tables. An expected error is not logged twice in a row."""
        try:
            yield
        except FlintError as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning(
                    "replication.tables_missing",
                    "topics, groups and offsets of the master at %(master)s: %(error)s",
                    master=address,
                    error=error,
                )
        except (ValueError, TypeError, AttributeError) as error:
            # If the master has sent tables with an unexpected structure, the error is logged and not raised.
            log.exception(
                "replication.tables_wrong",
                "the tables of the master at %(master)s cannot be taken over: %(error)s",
                master=address,
                error=error,
            )

    async def synchronize(self, address: str, *, topics_only: bool = False) -> None:
        """Copy the master's tables once.

        Args:
            address: the master's address for clients.
            topics_only: whether only the table of topics is copied.

        Raises:
            RemotingError: the master does not answer.
            StoreError: a table could not be written to disk.
        """
        api, tables = self._api, self._tables
        end_before_bytes = api.log.marks.wrote
        topics = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        if topics is not None and (tables.learned_topics or _version_of(topics) != api.topics.file.data_version):
            tables.replace_topics(topics)
            await api.topics.file.compact()
            api.topics.changed.publish()
            self._may_be_left = True
        if topics is not None and self._may_be_left:
            await self._remove_left(end_before_bytes)
        if topics_only:
            return
        if self._held is None:
            self._deleted.clear()
            offsets = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
            delays = await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET)
            self._held = _Offsets(await self._log_end(address), offsets, delays)
        self._take_over_reached()
        groups = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        if groups is not None and _version_of(groups) != api.groups.file.data_version:
            tables.replace_groups(groups)
            await api.groups.file.compact()

    async def _remove_left(self, end_before_bytes: int) -> None:
        """Remove the queues of topics that are not in the master's table.

        The master may have created a topic after it sent its table, and the slave may already have messages of this topic. Such
        messages are in the part of the log that arrived after the request for the table. A queue with such a message is kept
        until the next table is copied.

        Args:
            end_before_bytes: physical offset at which the slave's log ended before the request for the table.
        """
        api, queues = self._api, self._api.log.queues
        self._may_be_left = False
        removed: Counter[str] = Counter()
        async for key in sliced(list(queues)):
            topic = key[0]
            if topic in api.topics or api.topics.is_system_topic(topic) or (queue := queues.get(key)) is None:
                continue
            if queue.max_physical_offset_bytes > end_before_bytes:
                self._may_be_left = True
                continue
            self._copy.delete_queue(*key)
            removed[topic] += 1
        for topic in removed:
            if topic not in api.topics:
                api.offsets.remove_topic(topic)
                api.figures.counts.forget_topic(topic)
        if removed:
            log.info(
                "replication.queues_removed",
                "%(queues)d queues of %(topics)d topics that the master does not have are removed, such as %(topic)s",
                queues=removed.total(),
                topics=len(removed),
                topic=next(iter(removed)),
            )

    async def _log_end(self, address: str) -> int:
        """Return the physical offset of the end of the master's log; 0 if the master does not report this offset."""
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = (answer or {}).get("table")
        return int(table.get("commitLogMaxOffset", 0)) if isinstance(table, dict) else 0

    def _take_over_reached(self) -> None:
        """Apply the offsets that the master sent, if the slave's log is long enough. It must have reached the end that the
        master's log had just after the master sent the offsets."""
        api, held = self._api, self._held
        if held is None or not self._is_following() or api.log.marks.wrote < held.end_offset_bytes:
            return
        self._held = None
        if held.offsets is not None:
            self._tables.replace_offsets(held.offsets)
            for topic in self._deleted:
                # Offsets of a deleted topic are removed, because the master may have sent them before it deleted the topic.
                api.offsets.remove_topic(topic)
        if held.delays is not None:
            for service in api.parts(SupportsFollowing):  # type: ignore[type-abstract]
                service.follow(held.delays)

    async def _ask(self, address: str, code: RequestCode) -> dict[str, Any] | None:
        """Return a table of the master; None if the master has no such table (code 1) or lacks the feature to which the table
        belongs."""
        answer = await self._client.invoke(address, request(code, language="JAVA"), TIMEOUT_MS)
        if answer.code != 0:
            if answer.code not in (1, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
                raise FlintError(f"{code.name} is refused: {answer.remark}")
            return None
        try:
            table = fastjson.loads(answer.body)
        except JsonSyntaxError as error:
            raise FlintError(f"{code.name}: {error}") from error
        if not isinstance(table, dict):
            raise FlintError(f"{code.name}: the body of the answer is not a JSON object")
        return table


def _version_of(table: Mapping[str, Any]) -> DataVersion:
    return read_as(table.get("dataVersion") or {}, DataVersion)
