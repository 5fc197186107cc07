"""Copies a master's topics, groups and offsets to its slave at intervals (RocketMQ: ``SlaveSynchronize``).

Offsets of consumers, delay levels, timers and transactions stand for what is in the master's log. A slave that had them before
it has that log would lose messages when it becomes the master: it would take messages for delivered whose copies it never got.
So they are held back until its log ends where the master's did after it had said them. RocketMQ's slave does not wait.

What the master does not have any more goes here, too, whether it was deleted while this slave followed or while it was away:
groups, offsets, counters, and the queues of topics. Tables of a master whose log is not followed are not taken over: they may
be of another store, and empty.
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
"""At least between two rounds that were asked for: a table may have thousands of topics."""
_REST: Final = 10
"""How often as long as a round took it is rested after it."""


@attrs.frozen
class _Offsets:
    """The offsets of a master, with the end of its log in bytes after it had sent them."""

    end_offset_bytes: int
    offsets: dict[str, Any] | None
    delays: dict[str, Any] | None


class SlaveSynchronize:
    """Asks the master at every interval. Loop thread.

    Args:
        api: the slave's broker.
        client: speaks to the master.
        master_address: where clients reach the master; empty while that is unknown.
        interval_s: how often.
        is_following: whether the log of that master is followed now.
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
        """Offsets that stand for more than this broker's log holds yet."""
        self._deleted: set[str] = set()
        """Topics whose deletion was met in the log since the master was last asked for its offsets."""
        self._may_be_left = True
        """Whether there may be queues of topics that the master does not have."""
        self.rounds = 0
        """Rounds in which everything was taken over."""

    def start(self) -> None:
        """Begin to ask."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Ask for topics soon, whatever the interval, because one has come that is not known here. All tables are asked for
        once in an interval, however many topics come."""
        self._wanted.set()

    def forget_topic(self, topic: str) -> None:
        """Forget a topic and all offsets in it: the log says that the master deleted it.

        The master is asked soon whether it has made the topic again. A disk that refuses the tables is told of; both are
        replaced by the master's then.
        """
        api = self._api
        self._deleted.add(topic)
        with self._told_once(self._master_address()):
            api.offsets.remove_topic(topic)
            api.figures.counts.forget_topic(topic)
            api.topics.delete(topic)
        self.wake()

    def unknown_arrived(self) -> None:
        """Take note that there are messages of a topic that is not in the master's table, or was not the last time."""
        self._may_be_left = True

    def halt(self) -> None:
        """Take over nothing more; the task ends soon. Idempotent."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Stop asking. Idempotent."""
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
        """Log a failure to read a master's tables; the next round tries again."""
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
        except (ValueError, TypeError, AttributeError) as error:  # tables of another shape than expected
            log.exception(
                "replication.tables_wrong",
                "the tables of the master at %(master)s cannot be taken over: %(error)s",
                master=address,
                error=error,
            )

    async def synchronize(self, address: str, *, topics_only: bool = False) -> None:
        """Copy all tables once.

        Args:
            topics_only: leave the others: messages of a topic have come that is not known here.

        Raises:
            RemotingError: the master does not answer.
            StoreError: the disk refused a table.
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

        A topic may have come to the master after it had told its table, and its first messages may be here already. They lie
        behind the end that this log had before the table was asked for: a queue with such a message stays, until the next table
        says what it is.

        Args:
            end_before_bytes: that end.
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
        """Return the end of the master's log in bytes; 0 where the master does not say it."""
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = (answer or {}).get("table")
        return int(table.get("commitLogMaxOffset", 0)) if isinstance(table, dict) else 0

    def _take_over_reached(self) -> None:
        """Take over the offsets that are held back, once this broker's log holds what they stand for."""
        api, held = self._api, self._held
        if held is None or not self._is_following() or api.log.marks.wrote < held.end_offset_bytes:
            return
        self._held = None
        if held.offsets is not None:
            self._tables.replace_offsets(held.offsets)
            for topic in self._deleted:  # the master may have told of them before it deleted it
                api.offsets.remove_topic(topic)
        if held.delays is not None:
            for service in api.parts(SupportsFollowing):  # type: ignore[type-abstract]
                service.follow(held.delays)

    async def _ask(self, address: str, code: RequestCode) -> dict[str, Any] | None:
        """Return a table; None where the master has none (code 1), or none of the features that it is of."""
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
            raise FlintError(f"{code.name}: the answer is not a table")
        return table


def _version_of(table: Mapping[str, Any]) -> DataVersion:
    return read_as(table.get("dataVersion") or {}, DataVersion)
