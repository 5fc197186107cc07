"""Raises alarms about consumer groups.

The causes are growing lags, members with contradictory subscriptions, members with the same client id, and messages in queues
that are not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.alarms import ALARMS_MAX, conflict
from flintmq.core.broker.conflicts import describe_conflicts, odd_members
from flintmq.core.broker.group_lag import member_count, positions, read_topics
from flintmq.core.broker.groups import is_system_group
from flintmq.core.broker.lag_watch import LagWatch
from flintmq.core.broker.unread_queues import queue_list, waiting_messages
from flintmq.core.io.clock import stopwatch_of
from flintmq.core.kernel.ports.alarm import WARNING, Alarm

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.io.clock import Scheduled

_NAMED_MAX: Final = 10
_SLICE_S: Final = 0.001
"""Longest time in seconds for which the check of all groups' lags occupies the event loop without a pause."""


class GroupAlarms:
    """The service ``group_alarms``, which checks the lag of every group again and again. Used only on the event loop's thread.

    A round of checks is divided into short slices, so that clients are served between two slices.

    A group's lag is defined by :mod:`flintmq.core.broker.group_lag`, whether the group has members or not. System topics and
    system groups are left out. A slave raises no alarms about lags, because its copy of the master's offsets is late.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._watch = self._new_watch()
        self._round: Iterator[None] | None = None
        self._lags: list[Alarm] = []
        self._conflicts: dict[str, tuple[object, int, Alarm]] = {}
        """Last alarm about contradictory subscriptions of a consumer group's members, keyed by group. A value has the consumer
        group, the group's revision at which the alarm was made, and the alarm."""

    def start(self) -> None:
        """Begin to check the lags of groups in rounds, for as long as this broker is a master and ``alarms.lag_messages`` is
        set."""
        if self._api.settings.current.alarms.lag_messages > 0:
            self._api.role.run_while(lambda: self._api.role.takes_writes, self._begin)

    def _begin(self) -> Callable[[], None]:
        """Begin the rounds that check the lags of groups; return the function that ends the rounds."""
        return partial(self._end, self._api.work.pace(self._watch.step_s, self.tick, "lag of groups", self._rest_s))

    def _end(self, timer: Scheduled) -> None:
        """Stop the rounds that check the lags of groups, and drop the measured lags. Called when this broker becomes a slave,
        which raises no alarms about lags, because its copy of the master's offsets is late."""
        timer.cancel()
        self._round = None
        self._watch = self._new_watch()
        self._lags = []

    def _new_watch(self) -> LagWatch:
        settings = self._api.settings.current.alarms
        return LagWatch(settings.lag_messages, settings.lag_window_ms / 1000)

    def stop(self) -> None:
        """Do nothing, because the broker has already ended this service's timer."""

    def _rest_s(self) -> float:
        return 0.0 if self._api.offsets or len(self._api.clients.consumers) or len(self._watch) else math.inf

    def tick(self) -> float:
        """Check the lags of groups for a short time. If no round of checks is under way, begin a round. Return the seconds
        until the next call."""
        if self._round is None:
            self._round = self._steps(self._api.clock.monotonic_s())
        now_s = stopwatch_of(self._api.clock)
        until_s = now_s() + _SLICE_S
        for _ in self._round:
            if now_s() >= until_s:
                return 0.0
        self._round = None
        return self._watch.step_s

    def _steps(self, at_s: float) -> Iterator[None]:
        """Record the lag of each group in each topic, and then renew the alarms about lags."""
        api, watch = self._api, self._watch
        for topic, group in read_topics(api):
            if not api.topics.is_system_topic(topic) and not is_system_group(group):
                watch.note(at_s, group, topic, sum(position.lag for position in positions(api, group, topic)))
            yield
        watch.forget_before(at_s)
        self._lags = list(islice(watch.alarms(lambda group: member_count(api, group)), ALARMS_MAX))

    def alarms(self) -> list[Alarm]:
        """Return the alarms about lags, conflicts, shared client ids and unread queues.

        The lags were measured in the last round; the other three kinds of alarms are computed by this call. A slave returns no
        alarms about unread queues.
        """
        shared = islice(self._api.clients.consumers.shared_ids(), ALARMS_MAX)
        unread = islice(_unread_alarms(self._api), ALARMS_MAX) if self._api.role.takes_writes else ()
        return [*self._lags, *self._contradictory(), *(client_id_shared(*one) for one in shared), *unread]

    def _contradictory(self) -> Iterator[Alarm]:
        """Yield the alarms about consumer groups whose members have contradictory subscriptions. An alarm's text is composed
        again only after a change of its group."""
        before, self._conflicts = self._conflicts, {}
        for info in islice(self._api.clients.consumers.contradictory(), ALARMS_MAX):
            group = info.group_name
            known = before.get(group)
            if known is None or known[:2] != (info, info.revision):
                found = info.conflicts()
                alarm = conflict(group, describe_conflicts(found), len(odd_members(found)))
                known = (info, info.revision, alarm)
            self._conflicts[group] = known
            yield known[2]


def client_id_shared(group: str, client_id: str, addresses: Sequence[str]) -> Alarm:
    """Return the alarm for members of a group that use one client id at the same time.

    Args:
        group: the consumer group.
        client_id: the id that they share.
        addresses: the addresses of their connections.
    """
    text = (
        f"client id {client_id} is used by {len(addresses)} members of group {group}, which therefore get the same messages: "
        f"{', '.join(addresses[:_NAMED_MAX])}. Give each process a different instance name or client id"
    )
    return Alarm("client.id_shared", WARNING, client_id, text, len(addresses), "members")


def _unread_alarms(api: BrokerApi) -> Iterator[Alarm]:
    """Yield an alarm for each user topic in which messages wait in queues that consumers do not read."""
    for config, unread in api.topics.widths:
        topic = config.topic_name
        if api.topics.is_system_topic(topic) or topic in api.topics.holding_topics:
            continue
        waiting: dict[int, int] = {}
        behind: dict[str, int] = {}
        for queue_id in unread:
            by_group = waiting_messages(api, topic, queue_id)
            if by_group:
                waiting[queue_id] = max(by_group.values())
            for group, messages in by_group.items():
                behind[group] = behind.get(group, 0) + messages
        if waiting:
            worst = max(behind, key=lambda group: (behind[group], group))
            yield _unread_queues(topic, waiting, worst, read_queues=config.read_queue_nums)


def _unread_queues(topic: str, waiting: Mapping[int, int], group: str, *, read_queues: int) -> Alarm:
    """Return the alarm for messages in queues whose ids are beyond the topic's read queues.

    Args:
        topic: the topic of the queues.
        waiting: number of waiting messages, keyed by queue id.
        group: the group that has most of these messages left to consume; empty if no group has ever read these queues.
        read_queues: the topic's number of read queues.
    """
    messages = sum(waiting.values())
    whom = f"group {group} has not consumed them" if group else "no group has ever read them"
    text = (
        f"{messages:,} messages wait in queues of topic {topic} that nobody reads, {queue_list(waiting)}: it has {read_queues} "
        f"read queues, and {whom}. Let them be read until they are consumed (flintmq topics create {topic} --queues "
        f"{max(waiting) + 1})"
    )
    return Alarm("topic.unread_queues", WARNING, topic, text, messages, "messages")
