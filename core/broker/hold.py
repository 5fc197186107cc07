"""Holds pulls that found nothing until a message comes (long polling; docs/internals/algorithms.md, Held pulls).

A pull is held under its topic and queue and let go when a message arrives that its filter may want, when its time is up, when
the periodic check sees a message (it may have come between), or with its connection. Letting go means one call of ``resume``:
the pull is then executed again, and never held a second time.

A wait for any queue of a topic is held under :data:`ANY_QUEUE` in place of a queue.

Costs: an arrival in a queue at which no pull waits is one dictionary look-up. Deadlines sit in a heap whose dead entries are
swept when they are the majority, so holding and letting go are O(log n).
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
"""The queue id of a wait for any queue of a topic."""
HELD_BYTES: Final = 2_048
"""A held pull whose texts are longer counts as several."""
Resume = Callable[["HeldPull"], object]


class HeldPull(msgspec.Struct, eq=False):
    """One pull that waits. Made by :meth:`PullRequestHoldService.hold`; compared by identity."""

    topic: str
    queue_id: int
    queue_offset: int
    channel: Hashable | None
    """What the pull is dropped with, and whose limit it counts against; None if it belongs to the broker itself."""
    deadline_s: float
    message_filter: MessageFilter | None
    resume: Resume
    places: int = 1
    """How many pulls it counts as, by its memory."""
    is_held: bool = True


class PullRequestHoldService:
    """The pulls that wait. Loop thread.

    Args:
        clock: its monotonic side decides deadlines.
        max_queue_offset: ``(topic, queue_id)`` to the end of a queue, for the periodic check; of :data:`ANY_QUEUE` to the sum
            over the topic's queues.
        held_max: how many pulls are held at most.
        held_per_connection_max: how many of one connection.
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
        """How many wait for any queue of a topic."""
        self._more_places = 0
        """What large pulls count for beyond one each."""
        self._more_places_of: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def next_deadline_s(self) -> float | None:
        """When, on the monotonic clock, the next pull runs out of time; None when none waits."""
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
        """Keep a pull until something happens.

        Args:
            queue_id: a queue, or :data:`ANY_QUEUE`.
            queue_offset: the consumer's next offset; a message at it or beyond wakes the pull. For any queue: the sum of the
                ends of the topic's queues, beyond which the periodic check wakes the pull.
            channel: the pull is dropped with it, and counts against its limit; None: it counts against the limit of all alone.
            timeout_ms: how long to wait at most.
            resume: called once, with the pull, when the wait ends; not called when the connection closed.
            message_filter: asked before an arrival wakes the pull.
            places: how many pulls it counts as, because it takes so much more memory.

        Raises:
            RefusedError: SYSTEM_BUSY; too many pulls wait already, of this connection or of all. (An answer that nothing was
                found would make the client ask again at once, and for ever.)
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
        """Wake pulls that wait for any of the records just dispatched; return how many.

        Requests are made only of queues at which pulls wait.
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
        """Wake pulls of a queue whose end is now at an offset; return how many.

        Args:
            tags_code: of the record that arrived; None when it is unknown, which every filter lets pass.
            properties: of the record, None likewise.
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
        """Wake, every 5 s, the pulls whose queue has grown, whatever their filter; return how many."""
        woken = 0
        for topic, queue_id in list(self._held):
            if (topic, queue_id) in self._held:
                woken += self.notify_arriving(topic, queue_id, self._max_queue_offset(topic, queue_id))
        return woken

    def expire(self) -> int:
        """Let go the pulls whose time is up; return how many. Call it at :attr:`next_deadline_s` or every tick."""
        now_s = self._clock.monotonic_s()
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            pull = heapq.heappop(self._deadlines)[2]
            if pull.is_held:
                expired.append(pull)
        return self._resume(expired)

    def cancel(self, pull: HeldPull) -> None:
        """Drop a pull without resuming it; do nothing if it is no longer held."""
        if pull.is_held:
            self._remove(pull)
            self._drop_dead_deadlines()

    def close_channel(self, channel: Hashable) -> int:
        """Drop the pulls of a connection that closed, without resuming them; return how many."""
        pulls = list(self._by_channel.get(channel, ()))
        for pull in pulls:
            self._remove(pull)
        self._drop_dead_deadlines()
        return len(pulls)

    def release_all(self) -> int:
        """Let go every pull (the broker stops); return how many."""
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
    """The queues at which pulls wait, those of topics included of which any queue does."""

    def __init__(self, held: Mapping[tuple[str, int], object]) -> None:
        self._held = held

    def __contains__(self, queue: object) -> bool:
        held = self._held
        return queue in held or (isinstance(queue, tuple) and (queue[0], ANY_QUEUE) in held)


def places_of(request: Request, subscription: str | None) -> int:
    """Return how many held pulls a request counts as: all of it is kept, and its texts are as long as its sender likes.

    Args:
        request: the pull.
        subscription: the expression that it brings; None for none.
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
