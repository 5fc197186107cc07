"""Fetches the details of a topic, group or broker on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

import attrs

from flintmq.core.broker.conflicts import describe_conflicts
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.programs.cluster_view.group_state import state_of
from flintmq.programs.cluster_view.members import Asked, ask_members, conflicts_of, subscriptions_of
from flintmq.programs.cluster_view.memory import NOBODY, BrokerMemory, Connected
from flintmq.programs.cluster_view.progress import advance, lag_of
from flintmq.programs.cluster_view.rows import group_rows
from flintmq.programs.cluster_view.values import (
    BrokerView,
    GroupQueue,
    GroupView,
    Member,
    QueueView,
    Setting,
    TopicView,
)
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.wire.bodies import Connection, ConsumerConnection, ConsumeStats
from flintmq.remoting.wire.broker_report import BrokerReport
from flintmq.remoting.wire.codes import version_name

T = TypeVar("T")

MEMBERS_MAX: Final = 200
"""Maximum number of a group's members that are asked for details. Further members are only listed."""
TOPICS_MAX: Final = 32
"""Maximum number of requests for a group's progress in single topics. One request is needed for each topic to which the group
subscribes and in which the group has no offset."""


async def ask_each(
    brokers: Sequence[BrokerMemory], ask: Callable[[BrokerMemory], Awaitable[T]], *missing: int
) -> tuple[list[tuple[BrokerMemory, T]], tuple[str, ...]]:
    """Ask several brokers at the same time, and collect their answers and errors.

    Args:
        brokers: the brokers to ask.
        ask: asks one broker.
        missing: response codes with which a broker says that it lacks the topic or group.

    Returns:
        The brokers that answered with their answers, and error texts of the other brokers.
    """
    answers = await asyncio.gather(*(ask(broker) for broker in brokers), return_exceptions=True)
    found, errors = [], []
    for broker, answer in zip(brokers, answers, strict=True):
        if isinstance(answer, RefusedError) and answer.code in missing:
            continue
        if isinstance(answer, FlintError):
            errors.append(f"{broker.name}: {answer}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append((broker, answer))
    return found, tuple(errors)


async def broker_detail(admin: AdminClient, row: BrokerView) -> BrokerView:
    """Return a broker with its settings. For a FlintMQ broker, also return the settings' origins, the last start and the
    quarantine.

    The origins, the last start and the quarantine are left out if the broker does not report them.
    """
    try:
        report = await report_of(admin, row.address) if row.is_flintmq else None
        if report is not None:
            settings = [
                Setting(name=one.key, value=one.value, origin=one.origin, rocketmq=one.rocketmq)
                for one in report.settings
            ]
        else:
            told = await admin.broker_config(row.address)
            settings = [Setting(name=name, value=value, origin="") for name, value in sorted(told.items())]
    except FlintError as error:
        return attrs.evolve(row, error=row.error or str(error))
    return attrs.evolve(row, config=tuple(settings), report=report)


async def report_of(admin: AdminClient, address: str) -> BrokerReport | None:
    """Return a broker's report; None if the broker's version does not support the request for a report."""
    try:
        return await admin.broker_report(address)
    except RefusedError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return None


async def topic_detail(admin: AdminClient, row: TopicView, brokers: Sequence[BrokerMemory]) -> TopicView:
    """Return a topic with its queues and all groups that subscribe to it."""
    (stats, errors), (groups, _) = await asyncio.gather(
        ask_each(brokers, lambda broker: admin.topic_stats_at(row.name, broker.address), ResponseCode.TOPIC_NOT_EXIST),
        ask_each(brokers, lambda broker: admin.topic_groups(row.name, broker.address)),
    )
    queues = [
        QueueView(
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            min_queue_offset=ends.min_queue_offset,
            max_queue_offset=ends.max_queue_offset,
            last_write_ms=ends.last_update_timestamp_ms,
        )
        for _, table in stats
        for queue, ends in sorted(table.items())
    ]
    return attrs.evolve(
        row,
        queues=tuple(queues),
        groups=tuple(sorted({*row.groups, *(group for _, told in groups for group in told)})),
        messages=sum(queue.max_queue_offset - queue.min_queue_offset for queue in queues),
        last_write_ms=max((queue.last_write_ms for queue in queues), default=0),
        errors=errors,
    )


async def group_detail(
    admin: AdminClient, row: GroupView, brokers: Sequence[BrokerMemory], topic: str = ""
) -> GroupView:
    """Return a group with its queues and their owners, its members, and their conflicts.

    Args:
        admin: the administration client.
        row: the group's row in a list of groups. The result is a copy of the row with the details.
        brokers: the brokers that know the group.
        topic: the only topic to show, even if the group does not read it; empty for all topics of the group.
    """
    connected, errors = await ask_each(
        brokers, lambda broker: admin.connected_group(row.name, broker.address), ResponseCode.CONSUMER_NOT_ONLINE
    )
    wanted = {name for _, (found, _) in connected for name in found.subscription_table}
    stats, more_errors = await ask_each(brokers, lambda broker: _progress(admin, row.name, broker, wanted, topic))
    connections = {one.client_id: one for _, (found, _) in connected for one in found.connection_set}
    addresses = {one.client_id: broker.address for broker, (found, _) in connected for one in found.connection_set}
    asked = await ask_members(admin, row.name, addresses, MEMBERS_MAX)
    holders = {
        queue: one.client_id
        for one in asked
        if one.info is not None
        for queue, held in one.info.mq_table.items()
        if not held.dropped
    }
    told = [advance(None, [found], 0.0) for _, found in stats]
    known = [_connected(found, words) for _, (found, words) in connected]
    state = state_of(told, known if known or errors else [Connected(*NOBODY, 0.0)])
    queues = [
        GroupQueue(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            consumer_offset=figures.consumer_offset,
            max_queue_offset=figures.broker_queue_offset,
            lag=lag_of(figures),
            last_timestamp_ms=figures.last_timestamp_ms,
            client_id=holders.get(queue),
        )
        for one in state.progress
        for queue, figures in sorted(one.queues.items(), key=lambda entry: (entry[0].topic, entry[0]))
    ]
    members = tuple(_member(connections[one.client_id], one, queues) for one in asked)
    found_conflicts = conflicts_of(asked)
    words = next((words for _, (_, words) in connected if words), "")
    return attrs.evolve(
        row,
        queues=tuple(queues),
        member_list=members,
        state=state.state,
        members=state.members if state.members is not None else row.members,
        consume_type=state.online.consume_type if state.online is not None else "",
        message_model=state.online.message_model if state.online is not None else "",
        topics=tuple(sorted({queue.topic for queue in queues if not queue.topic.startswith(RETRY_PREFIX)})),
        conflicts=found_conflicts,
        conflict=words or describe_conflicts(found_conflicts),
        lag=state.lag,
        retry_lag=state.retry_lag,
        get_per_s=state.get_per_s,
        stuck=tuple(
            attrs.evolve(one, client_id=holders.get(MessageQueue(one.broker, one.queue_id, one.topic)))
            for one in (row.stuck if state.state == "online" else ())
        ),
        errors=tuple(dict.fromkeys((*errors, *more_errors))),
    )


def _connected(found: ConsumerConnection, words: str) -> Connected:
    client_ids = tuple(sorted({one.client_id for one in found.connection_set}))
    return Connected(client_ids, found.consume_type, found.message_model, words, 0.0)


async def _progress(
    admin: AdminClient, group: str, broker: BrokerMemory, wanted: Collection[str], topic: str
) -> ConsumeStats:
    """Return a group's progress at a broker, including topics to which the group only subscribes."""
    found = await admin.consume_stats_at(group, broker.address, topic)
    known = {queue.topic for queue in found.offset_table}
    missing = sorted(one for one in wanted if one not in known) if not topic else []
    for one in missing[:TOPICS_MAX]:
        found.offset_table |= (await admin.consume_stats_at(group, broker.address, one)).offset_table
    return found


async def find_group(
    admin: AdminClient, name: str, brokers: Sequence[BrokerMemory], topic: str = ""
) -> GroupView | None:
    """Return a group with its queues and their owners, its members, and their conflicts; None if no broker knows the group.

    The function :func:`group_detail` returns the same details, but needs the group's row from a list of groups as an argument.
    This function makes the row from ``brokers``.

    Args:
        admin: the administration client.
        name: the group's name.
        brokers: answering brokers, one of each broker set; their ``groups`` show which brokers know the group.
        topic: the only topic to show, even if the group does not read it; empty for all topics of the group.
    """
    knowing = [broker for broker in brokers if name in broker.groups]
    if not knowing:
        return None
    return await group_detail(admin, group_rows(knowing, 0.0, 0.0)[name], knowing, topic)


def _member(connection: Connection, asked: Asked, queues: Sequence[GroupQueue]) -> Member:
    info = asked.info
    mine = [queue for queue in queues if queue.client_id == connection.client_id]
    rates = info.status_table.values() if info is not None else ()
    return Member(
        client_id=connection.client_id,
        address=connection.client_addr,
        language=connection.language,
        version=version_name(connection.version),
        subscriptions=subscriptions_of(info) if info is not None else None,
        queues=sum(not held.dropped for held in info.mq_table.values()) if info is not None else None,
        lag=sum(queue.lag for queue in mine) if info is not None else None,
        consume_ok_per_s=sum(one.consume_ok_tps for one in rates) if info is not None else None,
        consume_failed_per_s=sum(one.consume_failed_tps for one in rates) if info is not None else None,
        error=asked.error,
    )
