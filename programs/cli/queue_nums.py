"""Removes queues from a topic without losing messages.

First the queues become read-only, then consumers consume the remaining messages, and then the queues are removed. The removal
waits for the consumers, because no consumer reads a removed queue.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable

import attrs
import click

from flintmq.core.broker.groups import is_system_group
from flintmq.core.broker.topic_config import MessageQueue, TopicConfig
from flintmq.core.broker.unread_queues import queue_list
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import safe
from flintmq.remoting.client.admin import AdminClient

MakeTopic = Callable[[int | None, int | None], Awaitable[None]]
"""Function that creates or changes a topic at a broker. Its arguments are the numbers of read queues and of write queues. None
as an argument keeps the topic's current number."""


@attrs.frozen
class Waiting:
    """The unconsumed messages of one queue."""

    broker: str
    queue_id: int
    messages: int
    group: str
    """The group that has the most unconsumed messages in the queue; empty if no group reads the topic."""


async def waiting_in(
    admin: AdminClient, topic: str, broker: str, address: str, queue_ids: Iterable[int]
) -> list[Waiting]:
    """Return the unconsumed messages in some current or former queues of a topic at a broker.

    A message is unconsumed if a user's group that subscribes to the topic, or has offsets in the topic, has not consumed it. If
    no such group exists, all messages are unconsumed.

    Raises:
        RefusedError: the account lacks the permission.
    """
    ends: dict[int, tuple[int, int]] = {}
    for queue_id in queue_ids:
        queue = MessageQueue(broker, queue_id, topic)
        end = await admin.max_offset(queue)
        begin = await admin.min_offset(queue) if end else 0
        if begin < end:
            ends[queue_id] = begin, end
    if not ends:
        return []
    groups = [group for group in await admin.topic_groups(topic, address) if not is_system_group(group)]
    found = {queue_id: ("", end - begin) for queue_id, (begin, end) in ends.items()} if not groups else {}
    for group in sorted(groups):
        told = await admin.consume_stats_at(group, address, topic)
        for queue, entry in told.offset_table.items():
            begin, end = ends.get(queue.queue_id, (0, 0))
            messages = end - max(begin, entry.consumer_offset)
            if messages > found.get(queue.queue_id, ("", 0))[1]:
                found[queue.queue_id] = group, messages
    return [Waiting(broker, queue_id, messages, group) for queue_id, (group, messages) in sorted(found.items())]


def in_words(waiting: list[Waiting]) -> str:
    """Return unconsumed messages in words: their number, their queues, and the groups that have not consumed them."""
    brokers = sorted({one.broker for one in waiting})
    queues = "; ".join(
        f"{name}:{queue_list(one.queue_id for one in waiting if one.broker == name)}" for name in brokers
    )
    groups = sorted({one.group for one in waiting if one.group})
    who = f"not consumed by {', '.join(groups)}" if groups else "which no group has ever read"
    messages = sum(one.messages for one in waiting)
    return f"{messages:,} message{'' if messages == 1 else 's'} in queues {queues}, {who}"


async def resize(
    admin: AdminClient,
    topic: str,
    queue_nums: int,
    brokers: dict[str, str],
    make: Callable[[str], MakeTopic],
    *,
    is_meant: bool,
    is_forced: bool,
) -> None:
    """Set the number of a topic's queues at some brokers. Surplus queues are removed without losing messages.

    Args:
        admin: the administration client.
        topic: the topic.
        queue_nums: the new number of queues.
        brokers: addresses, keyed by the broker's name.
        make: returns the function that changes the topic at an address.
        is_meant: whether to remove queues without asking.
        is_forced: whether to remove queues that have unconsumed messages.

    Raises:
        CommandError: the user declined, or queues have unconsumed messages. Those queues are then read-only.
    """
    had = {name: await admin.topic_config(topic, address) for name, address in brokers.items()}
    losing = {name: config for name, config in had.items() if config is not None and _widest(config) > queue_nums}
    if losing and not is_meant:
        _ask(topic, queue_nums, losing)
    left: list[Waiting] = []
    for name, address in brokers.items():
        put, config = make(address), losing.get(name)
        if config is None or config.read_queue_nums <= queue_nums:
            await put(queue_nums, queue_nums)
            continue
        await put(config.read_queue_nums, queue_nums)
        going = range(queue_nums, config.read_queue_nums)
        waiting = [] if is_forced else await waiting_in(admin, topic, name, address, going)
        if not waiting:
            await put(queue_nums, queue_nums)
            # The queues are checked again, because a producer with an old route may have written to a queue before its removal.
            waiting = [] if is_forced else await waiting_in(admin, topic, name, address, going)
            if waiting:
                await put(config.read_queue_nums, queue_nums)
        left += waiting
    if left:
        raise CommandError(
            f"{in_words(left)}: these queues of {topic} are now read-only until they are consumed. Run the command again "
            "then. With --force their messages can no longer be consumed"
        )


def _widest(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)


def _ask(topic: str, queue_nums: int, losing: dict[str, TopicConfig]) -> None:
    """Ask the operator whether queues may be removed. Raises CommandError if the operator declines, or if stdin is not a
    terminal."""
    what = "; ".join(f"{name}:{queue_list(range(queue_nums, _widest(config)))}" for name, config in losing.items())
    text = f"{topic} loses queues {what}: they are written no more, and not read either once nothing waits there"
    if not sys.stdin.isatty():
        raise CommandError(f"{text}; confirm it with --yes", ExitCode.USAGE)
    if not click.confirm(f"{safe(text)}. Go on?", err=True):
        raise CommandError(f"{topic} keeps its queues")
