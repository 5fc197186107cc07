"""Holds pulls that found no message until a message arrives (long polling; docs/internals/algorithms.md, Held pulls).

Held pulls are keyed by topic and queue. A pull is resumed when a message arrives that its filter may accept, when its deadline
passes, or when the periodic check finds messages in its queue. A pull is dropped when its connection closes. To resume a pull
means to call its ``resume`` function once. The function pulls again, and this second pull is not held.

A pull that waits for a message in any queue of its topic is held under the queue id :data:`ANY_QUEUE`.

An arrival in a queue without held pulls costs one dictionary look-up. Deadlines are in a heap. Entries of ended pulls are
removed when they are the majority of the heap. Holding and resuming a pull is therefore O(log n).
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final

import msgspec

from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import MessageFilter, RecordBatch
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.response_code import ResponseCode

ANY_QUEUE: Final = -1
"""Queue id of a held pull that waits for a message in any queue of a topic."""
HELD_BYTES: Final = 2_048
"""Number of bytes of a held pull that count like one more pull in the limits of held pulls. The bytes of a pull are its body,
filter expression and fields. A pull with fewer bytes than this number counts as one pull, and a pull with twice this number
counts as three pulls."""
Resume = Callable[["HeldPull"], object]


class HeldPull(msgspec.Struct, eq=False):
    """A pull that waits for a message. Made by :meth:`PullRequestHoldService.hold`; compared by identity."""

    topic: str
    queue_id: int
    queue_offset: int
    channel: Hashable | None
    """Connection that sent the pull; None if a feature of the broker waits for messages. The pull is dropped when the
    connection closes, and counts against the connection's limit of held pulls."""
    deadline_s: float
    message_filter: MessageFilter | None
    resume: Resume
    places: int = 1
    """Number of pulls that this pull counts as in the limits of held pulls: 1, or more if its request takes much memory."""
    is_held: bool = True


class PullRequestHoldService:
    """Holds the pulls that wait for messages; RocketMQ's PullRequestHoldService. Used only on the event loop's thread.

    Args:
        clock: its monotonic time is compared with deadlines.
        max_queue_offset: returns the end of a queue for a topic and a queue id, for the periodic check. For :data:`ANY_QUEUE`
            it returns the sum of the ends of the topic's queues.
        held_max: limit of held pulls.
        held_per_connection_max: limit of held pulls for each connection.
    """

    def __init__(
        self,
        clock: Clock,
        max_queue_offset: Callable[[str, int], int],
        *,
        held_max: int = 200_000,
        held_per_connection_max: int = 20_000,
    ) -> None:
        self._clock = clock
        self._max_queue_offset = max_queue_offset
        self._held_max = held_max
        self._held_per_connection_max = held_per_connection_max
        self._held: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_channel: dict[Hashable, set[HeldPull]] = {}
        self._deadlines: list[tuple[float, int, HeldPull]] = []
        self._sequence = 0
        self._count = 0
        self._any_count = 0
        """Number of held pulls that wait for a message in any queue of a topic (:data:`ANY_QUEUE`)."""
        self._more_places = 0
        """Number that is added to the number of held pulls before this number is compared with the limit of held pulls. A pull
        with a large request takes more memory, so it counts as several pulls. For example, a held pull that counts as three
        pulls adds two."""
        self._more_places_of: dict[Hashable, int] = {}
        """Number that is added to a connection's number of held pulls before this number is compared with the limit of held
        pulls for each connection. A pull with a large request takes more memory, so it counts as several pulls. For example, a
        held pull that counts as three pulls adds two. Keyed by connection."""

    def __len__(self) -> int:
        return self._count

    @property
    def next_deadline_s(self) -> float | None:
        """Monotonic time of the earliest deadline, in seconds; None if no pull is held."""
        self._drop_dead_deadlines()
        return self._deadlines[0][0] if self._deadlines else None

    def hold(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        channel: Hashable | None,
        timeout_ms: int,
        resume: Resume,
        message_filter: MessageFilter | None = None,
        places: int = 1,
    ) -> HeldPull:
        """Hold a pull until a message arrives or the pull's time is up; return the held pull.

        Args:
            topic: the topic.
            queue_id: the queue, or :data:`ANY_QUEUE`.
            queue_offset: the consumer's next queue offset; a message at or after this offset resumes the pull. For
                :data:`ANY_QUEUE`, pass the sum of the ends of the topic's queues. The periodic check resumes the pull when the
                sum has grown.
            channel: the connection of the pull. The pull is dropped when the connection closes, and counts against the
                connection's limit. With None, the pull counts only against the limit of all pulls.
            timeout_ms: longest time to wait.
            resume: called once with the pull when the wait ends, except if the connection closed or the pull was canceled.
            message_filter: only messages that the filter accepts resume the pull.
            places: number of pulls that this pull counts as in the limits of held pulls, see :func:`places_of`.

        Raises:
            RefusedError: SYSTEM_BUSY; too many pulls of the connection or of all connections are held. An answer without
                messages instead would make the client pull again at once, without end.
        """
        of_channel = self._by_channel.get(channel) if channel is not None else None
        taken = self._count + self._more_places + places - 1
        if taken >= self._held_max:
            raise _too_many("pull.held_max", taken)
        if channel is not None and (of_channel is not None or places > 1):
            taken = len(of_channel or ()) + self._more_places_of.get(channel, 0) + places - 1
            if taken >= self._held_per_connection_max:
                raise _too_many("pull.held_per_connection_max", taken)
        deadline_s = self._clock.monotonic_s() + timeout_ms / 1000
        pull = HeldPull(topic, queue_id, queue_offset, channel, deadline_s, message_filter, resume, places)
        if places > 1:
            self._more_places += places - 1
            if channel is not None:
                self._more_places_of[channel] = self._more_places_of.get(channel, 0) + places - 1
        self._held.setdefault((topic, queue_id), {})[pull] = None
        if channel is not None:
            if of_channel is None:
                of_channel = self._by_channel[channel] = set()
            of_channel.add(pull)
        if queue_id == ANY_QUEUE:
            self._any_count += 1
        self._sequence += 1
        heapq.heappush(self._deadlines, (deadline_s, self._sequence, pull))
        self._count += 1
        return pull

    def arrived(self, batch: RecordBatch) -> int:
        """Resume pulls that wait for a record of a dispatched batch; return the number of resumed pulls.

        Records of queues without held pulls are not decoded.
        """
        held = self._held
        if not held:
            return 0
        woken = 0
        for request in batch.requests_of(_Waited(held) if self._any_count else held):
            pulls = held.get((request.topic, request.queue_id))
            if pulls:
                woken += self._wake(pulls, request.queue_offset + 1, request.tags_code, request.properties)
            if self._any_count and (pulls := held.get((request.topic, ANY_QUEUE))):
                woken += self._wake(pulls, sys.maxsize, request.tags_code, request.properties)
        return woken

    def notify_arriving(
        self,
        topic: str,
        queue_id: int,
        max_queue_offset: int,
        tags_code: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Resume the pulls that wait for a queue offset below a queue's new end; return the number of resumed pulls.

        Args:
            topic: the topic.
            queue_id: the queue.
            max_queue_offset: the queue's new end.
            tags_code: tags code of the record that arrived; None if it is unknown. Every filter accepts an unknown code.
            properties: properties of the record; None if they are unknown. Every filter accepts unknown properties.
        """
        pulls = self._held.get((topic, queue_id))
        return self._wake(pulls, max_queue_offset, tags_code, properties) if pulls else 0

    def _wake(
        self,
        pulls: Iterable[HeldPull],
        max_queue_offset: int,
        tags_code: int | None,
        properties: Mapping[str, str] | None,
    ) -> int:
        woken = [
            pull
            for pull in pulls
            if max_queue_offset > pull.queue_offset and _wants(pull.message_filter, tags_code, properties)
        ]
        return self._resume(woken)

    def check(self) -> int:
        """Resume each held pull whose queue has a message at or after the pull's queue offset; return the number of resumed
        pulls.

        Filters are not called. The broker calls this method every 5 s.
        """
        woken = 0
        for topic, queue_id in list(self._held):
            if (topic, queue_id) in self._held:
                woken += self.notify_arriving(topic, queue_id, self._max_queue_offset(topic, queue_id))
        return woken

    def expire(self) -> int:
        """Resume the held pulls whose deadline has passed; return the number of resumed pulls.

        Call this at :attr:`next_deadline_s`.
        """
        now_s = self._clock.monotonic_s()
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            pull = heapq.heappop(self._deadlines)[2]
            if pull.is_held:
                expired.append(pull)
        return self._resume(expired)

    def cancel(self, pull: HeldPull) -> None:
        """Drop a held pull without resuming it. Does nothing if the pull was already resumed or dropped."""
        if pull.is_held:
            self._remove(pull)
            self._drop_dead_deadlines()

    def close_channel(self, channel: Hashable) -> int:
        """Drop the held pulls of a closed connection without resuming them; return the number of dropped pulls."""
        pulls = list(self._by_channel.get(channel, ()))
        for pull in pulls:
            self._remove(pull)
        self._drop_dead_deadlines()
        return len(pulls)

    def release_all(self) -> int:
        """Resume all held pulls because the broker stops; return the number of resumed pulls."""
        return self._resume([pull for pulls in self._held.values() for pull in pulls])

    def _resume(self, pulls: list[HeldPull]) -> int:
        for pull in pulls:
            self._remove(pull)
        self._drop_dead_deadlines()
        for pull in pulls:
            pull.resume(pull)
        return len(pulls)

    def _remove(self, pull: HeldPull) -> None:
        pull.is_held = False
        self._count -= 1
        pulls = self._held[pull.topic, pull.queue_id]
        del pulls[pull]
        if not pulls:
            del self._held[pull.topic, pull.queue_id]
        if pull.queue_id == ANY_QUEUE:
            self._any_count -= 1
        self._more_places -= pull.places - 1
        if pull.channel is None:
            return
        of_channel = self._by_channel[pull.channel]
        of_channel.discard(pull)
        if pull.places > 1:
            self._more_places_of[pull.channel] -= pull.places - 1
        if not of_channel:
            del self._by_channel[pull.channel]
            self._more_places_of.pop(pull.channel, None)

    def _drop_dead_deadlines(self) -> None:
        deadlines = self._deadlines
        while deadlines and not deadlines[0][2].is_held:
            heapq.heappop(deadlines)
        if len(deadlines) > 64 and len(deadlines) > 2 * self._count:
            self._deadlines = [entry for entry in deadlines if entry[2].is_held]
            heapq.heapify(self._deadlines)


class _Waited:
    """The set of queues with held pulls.

    If a pull waits for :data:`ANY_QUEUE`, the set contains every queue of the pull's topic.
    """

    def __init__(self, held: Mapping[tuple[str, int], object]) -> None:
        self._held = held

    def __contains__(self, queue: object) -> bool:
        held = self._held
        return queue in held or (isinstance(queue, tuple) and (queue[0], ANY_QUEUE) in held)


def places_of(request: Request, subscription: str | None) -> int:
    """Return the number of pulls that a pull request counts as in the limits of held pulls: 1, or more if the request is large.

    A large request counts as several pulls because the whole request stays in memory while the pull is held.

    Args:
        request: the pull request.
        subscription: filter expression of the pull; None if it has none.
    """
    kept_bytes = len(request.body) + len(subscription or "")
    if request.ext_fields is not None:
        kept_bytes += sum(map(len, request.ext_fields)) + sum(map(len, request.ext_fields.values()))
    return 1 + kept_bytes // HELD_BYTES


def _too_many(reason: str, count: int) -> RefusedError:
    return RefusedError(
        ResponseCode.SYSTEM_BUSY,
        "the pull cannot be held: too many wait for messages already",
        reason=reason,
        measured=f"{count} held pulls",
        key=reason,
    )


def _wants(message_filter: MessageFilter | None, tags_code: int | None, properties: Mapping[str, str] | None) -> bool:
    if message_filter is None or tags_code is None:
        return True
    if not message_filter.matches_tags_code(tags_code):
        return False
    return properties is None or not message_filter.needs_properties or message_filter.matches_properties(properties)
