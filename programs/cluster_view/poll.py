"""Polls brokers in the background. The requests take less than half a percent of a core of each broker.

The costs of requests to a FlintMQ broker were measured: runtime figures 0.9 ms; an entry of a table 6 µs; a group's queue 5 to
10 µs; a request for one topic or group 0.1 ms. The intervals grow with the numbers of entries.
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
"""Maximum number of a group's members that the view asks for their subscriptions in the background. A detail view asks more
members."""
BEGINNING_MAX: Final = 8
"""Maximum number of background requests for a group's progress in single topics. One request is needed for each topic to which
the group subscribes and in which the group has no offset."""


@attrs.frozen(kw_only=True)
class Pace:
    """The intervals of requests to brokers and further limits of a view, in seconds."""

    figures_s: float = 2.0
    """Interval, in seconds, at which a broker's runtime figures and the list of brokers are read."""
    tables_s: float = 5.0
    """Interval, in seconds, at which a broker's topics and groups are read. If the broker has many topics and groups, the
    interval is longer: 5 ms per topic and group."""
    progress_s: float = 5.0
    """Interval, in seconds, at which all groups' offsets at a broker are read. If the groups have many queues, the interval is
    longer: 4 ms per queue of a group."""
    lookups_per_s: float = 10.0
    """Maximum number of look-ups per second at a broker. A look-up reads the queue offsets of one topic, or the members of one
    group. Half of the look-ups are for topics, and half for groups."""
    lookup_s: float = 10.0
    """Minimum interval, in seconds, between two look-ups of the same topic or group."""
    stuck_s: float = 60.0
    """Seconds after which a queue with waiting messages counts as stuck if the group's offset in the queue has not moved."""
    idle_s: float = 60.0
    """Seconds after which a cluster view that nobody uses stops its requests in the background."""
    forget_s: float = 600.0
    """Seconds for which a broker that no name server lists any more is still shown."""
    retry_max_s: float = 20.0
    """Maximum pause, in seconds, before a broker that does not answer is asked again. The pauses are 1, 2, 4, … seconds."""

    def tables_due_s(self, broker: BrokerMemory) -> float:
        """Return the interval between two requests for the tables of a broker, in seconds."""
        return max(self.tables_s, 0.005 * (len(broker.topics) + len(broker.groups)))

    def progress_due_s(self, broker: BrokerMemory) -> float:
        """Return the interval between two requests for the groups' progress at a broker, in seconds."""
        return max(self.progress_s, 0.004 * broker.queue_count)


class Poller:
    """Sends requests to one broker at a time. A request is sent when the interval of its kind has passed. For the loop thread
    only.

    Args:
        admin: the administration client.
        pace: the intervals.
    """

    def __init__(self, admin: AdminClient, pace: Pace) -> None:
        self._admin = admin
        self._pace = pace

    async def poll(self, broker: BrokerMemory, *, speaks: bool, all_due: bool = False) -> None:
        """Send a broker all requests whose intervals have passed. If a request fails, store the error text in ``broker.error``.

        Args:
            broker: the broker, whose state is updated.
            speaks: whether this broker is also asked for the figures of topics and groups.
            all_due: whether to send requests before their intervals have passed. This does not apply to requests about a single
                topic or group.
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
        """Fetch a broker's figures, topics and groups once, without the offsets of topics.

        Args:
            broker: the broker, whose state is updated.
            wanted: returns whether to fetch the members of a group.

        Raises:
            RefusedError: the account lacks the permission.
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
        """Ask a broker about single topics and groups in turn, as many as the allowed rate of requests permits."""
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
        except RefusedError:
            # If the topic was just deleted, or the request is not permitted, the topic's queues are shown as unknown.
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
            # Group members are asked for their subscriptions, because RocketMQ's broker does not report conflicts.
            addresses = dict.fromkeys(client_ids, broker.address)
            asked = await ask_members(self._admin, group, addresses, MEMBERS_ASKED_MAX) if len(client_ids) > 1 else []
            words = describe_conflicts(conflicts_of(asked))
        broker.connected[group] = Connected(client_ids, found.consume_type, found.message_model, words, self._now_s())

    async def _look_up_beginning(self, broker: BrokerMemory, group: str, found: ConsumerConnection) -> None:
        """Fetch a group's progress in topics to which the group subscribes but in which it has no offset yet. The answer to the
        request for the progress of all groups does not contain these topics."""
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
                # If the topic was just deleted, or the request is not permitted, the group's progress in it is left out.
                continue
        broker.beginning[group] = advance(broker.beginning.get(group), stats, self._now_s())


def _note_lags(broker: BrokerMemory, now_s: float) -> None:
    """Record the lag of users' groups in each topic, to detect a growing lag."""
    for group in {*broker.progress, *broker.beginning}:
        if kind_of_group(group) == "user":
            for progress in remembered_state(group, [broker]).progress:
                for topic, lag in progress.lag_by_topic().items():
                    broker.lags.note(now_s, group, topic, lag)
    broker.lags.forget_before(now_s)


def is_flintmq(broker: BrokerMemory) -> bool:
    """Return whether a broker's figures are those of FlintMQ."""
    return "pluginErrors" in broker.info
