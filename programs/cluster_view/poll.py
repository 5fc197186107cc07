"""Asks brokers in the background, so seldom that it costs each of them less than half a percent of a core.

What a request costs a FlintMQ broker was measured: runtime figures 0.9 ms; an entry of a table
6 µs; a group's queue 5 to 10 µs; a topic's or a group's own request 0.1 ms. Intervals grow with what there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from flintmq.core.broker.conflicts import CLUSTERING, describe_conflicts
from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.programs.cluster_view.group_state import remembered_state
from flintmq.programs.cluster_view.members import ask_members, conflicts_of
from flintmq.programs.cluster_view.memory import NEVER, NOBODY, BrokerMemory, Connected, TopicEnds
from flintmq.programs.cluster_view.names import kind_of_group
from flintmq.programs.cluster_view.progress import advance, ends_by_topic
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.wire.bodies import ConsumerConnection

FIGURES: Final = "figures"
TABLES: Final = "tables"
PROGRESS: Final = "progress"
MEMBERS_ASKED_MAX: Final = 16
"""Of a group, in the background; a detail view asks more."""
BEGINNING_MAX: Final = 8
"""Topics of a group that are looked up one by one."""


@attrs.frozen(kw_only=True)
class Pace:
    """How often what is asked, and when what is seen counts. In seconds."""

    figures_s: float = 2.0
    """Runtime figures of a broker, and the list of brokers."""
    tables_s: float = 5.0
    """Topics and groups of a broker; longer where 5 ms for each of them is longer."""
    progress_s: float = 5.0
    """All groups' offsets at a broker; longer where 4 ms for each of their queues is longer."""
    lookups_per_s: float = 10.0
    """Topics and groups that are looked up in turns: their queues' ends, their members."""
    lookup_s: float = 10.0
    """One topic or group is looked up no more often."""
    stuck_s: float = 60.0
    """A queue whose offset has not moved for so long although messages wait is stuck."""
    idle_s: float = 60.0
    """Nothing is asked in the background when nobody has looked for so long."""
    forget_s: float = 600.0
    """A broker that no name server names any longer is shown for so long."""
    retry_max_s: float = 20.0
    """A broker that does not answer is tried again after 1, 2, 4, … and at most so many seconds."""

    def tables_due_s(self, broker: BrokerMemory) -> float:
        """Return how long the tables of a broker are good."""
        return max(self.tables_s, 0.005 * (len(broker.topics) + len(broker.groups)))

    def progress_due_s(self, broker: BrokerMemory) -> float:
        """Return how long the groups' progress at a broker is good."""
        return max(self.progress_s, 0.004 * broker.queue_count)


class Poller:
    """Asks one broker at a time what is due. Loop thread only.

    Args:
        admin: asks.
        pace: how often.
    """

    def __init__(self, admin: AdminClient, pace: Pace) -> None:
        self._admin = admin
        self._pace = pace

    async def poll(self, broker: BrokerMemory, *, speaks: bool, all_due: bool = False) -> None:
        """Ask what is due; what goes wrong stands in ``broker.error``.

        Args:
            broker: is asked, and remembers.
            speaks: whether it is the one of its set that tells of topics and groups.
            all_due: ask everything but the lookups, however new it is.
        """
        now_s = self._now_s()
        if broker.failures and not all_due:
            wait_s = min(self._pace.retry_max_s, 2.0 ** (broker.failures - 1))
            if not broker.due("failure", now_s, wait_s):
                return
        try:
            if all_due or broker.failures or broker.due(FIGURES, now_s, self._pace.figures_s):
                broker.info = await self._admin.runtime_info(broker.address)
                broker.asked_s[FIGURES] = self._now_s()
            if speaks:
                await self._poll_tables(broker, all_due=all_due)
                await self._look_up(broker)
        except FlintError as error:
            broker.error = str(error)
            broker.failures += 1
            broker.asked_s["failure"] = self._now_s()
        else:
            broker.error, broker.failures = "", 0

    def _now_s(self) -> float:
        return self._admin.client.clock.monotonic_s()

    async def look(self, broker: BrokerMemory, wanted: Callable[[str], bool]) -> None:
        """Ask for everything about topics and groups, but for the ends of topics, for a look that comes once.

        Args:
            broker: is asked, and remembers.
            wanted: which groups are asked for their members.

        Raises:
            RefusedError: the account may not see that.
            RemotingError: the broker does not answer.
        """
        broker.info = await self._admin.runtime_info(broker.address)
        await self._poll_tables(broker, all_due=True)
        for group in filter(wanted, broker.groups):
            await self._look_up_group(broker, group)

    async def _poll_tables(self, broker: BrokerMemory, *, all_due: bool) -> None:
        now_s, pace = self._now_s(), self._pace
        if all_due or broker.due(TABLES, now_s, pace.tables_due_s(broker)):
            broker.topics = (await self._admin.topic_configs(broker.address)).topic_config_table
            broker.groups = await self._admin.group_configs(broker.address)
            broker.asked_s[TABLES] = self._now_s()
            broker.topic_rates.keep(broker.topics)
            broker.ends = {topic: ends for topic, ends in broker.ends.items() if topic in broker.topics}
            broker.connected = {group: one for group, one in broker.connected.items() if group in broker.groups}
        if all_due or broker.due(PROGRESS, now_s, pace.progress_due_s(broker)):
            found = await self._admin.all_consume_stats(broker.address)
            now_s = broker.asked_s[PROGRESS] = self._now_s()
            told = {group: stats for entry in found.consume_stats_list for group, stats in entry.items()}
            broker.progress = {
                group: advance(broker.progress.get(group), stats, now_s) for group, stats in told.items()
            }
            for group, begun in list(broker.beginning.items()):
                known = broker.progress.get(group)
                if group not in broker.groups or (known is not None and not set(begun.topics).isdisjoint(known.topics)):
                    del broker.beginning[group]
            if not is_flintmq(broker):
                _note_lags(broker, now_s)
            ends = ends_by_topic(broker.progress)
            broker.consumed_rates.keep(ends)
            for topic, total in ends.items():
                broker.consumed_rates.note(topic, total, now_s)

    async def _look_up(self, broker: BrokerMemory) -> None:
        """Look up topics and groups in turns, as many as the time since the last turn allows."""
        now_s = self._now_s()
        since_s = min(now_s - broker.asked_s.get("lookup", NEVER), 5.0)
        budget = round(since_s * self._pace.lookups_per_s)
        if budget < 2:
            return
        broker.asked_s["lookup"] = now_s
        topics, groups = list(broker.topics), list(broker.groups)
        for _ in range(min(budget // 2, len(topics))):
            topic = topics[broker.next_topic % len(topics)]
            broker.next_topic += 1
            ends = broker.ends.get(topic)
            if ends is None or now_s - ends.at_s >= self._pace.lookup_s:
                await self._look_up_topic(broker, topic)
        for _ in range(min(budget // 2, len(groups))):
            group = groups[broker.next_group % len(groups)]
            broker.next_group += 1
            connected = broker.connected.get(group)
            if connected is None or now_s - connected.at_s >= self._pace.lookup_s:
                await self._look_up_group(broker, group)

    async def _look_up_topic(self, broker: BrokerMemory, topic: str) -> None:
        try:
            queues = await self._admin.topic_stats_at(topic, broker.address)
        except RefusedError:  # deleted a moment ago, or not ours to see: the list says that it is not known
            broker.ends.pop(topic, None)
            return
        now_s = self._now_s()
        broker.ends[topic] = TopicEnds(queues, now_s)
        broker.topic_rates.note(topic, sum(queue.max_queue_offset for queue in queues.values()), now_s)

    async def _look_up_group(self, broker: BrokerMemory, group: str) -> None:
        try:
            found, words = await self._admin.connected_group(group, broker.address)
        except RefusedError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                broker.connected[group] = Connected(*NOBODY, self._now_s())
                broker.beginning.pop(group, None)
            else:
                broker.connected.pop(group, None)
            return
        client_ids = tuple(sorted({one.client_id for one in found.connection_set}))
        await self._look_up_beginning(broker, group, found)
        if not words and not is_flintmq(broker):
            # RocketMQ's broker does not know: the members themselves are asked.
            addresses = dict.fromkeys(client_ids, broker.address)
            asked = await ask_members(self._admin, group, addresses, MEMBERS_ASKED_MAX) if len(client_ids) > 1 else []
            words = describe_conflicts(conflicts_of(asked))
        broker.connected[group] = Connected(client_ids, found.consume_type, found.message_model, words, self._now_s())

    async def _look_up_beginning(self, broker: BrokerMemory, group: str, found: ConsumerConnection) -> None:
        """Look up the topics that a group subscribes to and has no offset in: the request for all groups leaves them out."""
        known = broker.progress.get(group)
        without = {
            topic
            for topic in found.subscription_table
            if topic in broker.topics and not (known and topic in known.topics)
        }
        if not without or found.message_model != CLUSTERING:
            broker.beginning.pop(group, None)
            return
        stats = []
        for topic in sorted(without)[:BEGINNING_MAX]:
            try:
                stats.append(await self._admin.consume_stats_at(group, broker.address, topic))
            except RefusedError:
                continue  # deleted a moment ago, or not ours to see
        broker.beginning[group] = advance(broker.beginning.get(group), stats, self._now_s())


def _note_lags(broker: BrokerMemory, now_s: float) -> None:
    """Note how far users' groups are behind in each topic, so that a lag that grows is seen."""
    for group in {*broker.progress, *broker.beginning}:
        if kind_of_group(group) == "user":
            for progress in remembered_state(group, [broker]).progress:
                for topic, lag in progress.lag_by_topic().items():
                    broker.lags.note(now_s, group, topic, lag)
    broker.lags.forget_before(now_s)


def is_flintmq(broker: BrokerMemory) -> bool:
    """Return whether a broker's figures are FlintMQ's."""
    return "pluginErrors" in broker.info
