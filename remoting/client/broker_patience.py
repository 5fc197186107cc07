"""Waiting for brokers that do not answer. All queues of a silent broker wait, while one task sends requests to the broker until
it answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingError
from flintmq.remoting.client.instance import log
from flintmq.remoting.client.membership import Membership

_BROKER: Final = "broker {}"


@attrs.define
class _Away:
    """A broker that did not answer a pull, with the number of queues that wait for the broker."""

    is_back: asyncio.Event = attrs.field(factory=asyncio.Event)
    waiting: int = 0
    """Number of queues whose pulls wait until the broker answers again."""


class BrokerPatience:
    """Makes a consumer's queues wait for brokers that do not answer. Used only on the event loop's thread.

    If each queue retried by itself, every attempt of every queue would open a connection and write a log line.

    Args:
        member: the member of the group.
        start_task: a function of a coroutine and a name, which starts a task that ends with the consumer.
    """

    def __init__(self, member: Membership, start_task: Callable[[Coroutine[Any, Any, None], str], object]) -> None:
        self._member = member
        self._start_task = start_task
        self._away: dict[str, _Away] = {}

    async def wait(self, queue: MessageQueue) -> None:
        """Wait until the broker of a queue answers again; return at once if no failure of the broker is known."""
        away = self._away.get(queue.broker_name)
        if away is None:
            return
        away.waiting += 1
        try:
            await away.is_back.wait()
        finally:
            away.waiting -= 1

    def failed(self, queue: MessageQueue, failure: RemotingError) -> None:
        """Record that the broker of a queue did not answer a pull, and start a task that sends requests to the broker until it
        answers."""
        self._tell(queue, failure)
        if queue.broker_name not in self._away:
            self._away[queue.broker_name] = _Away()
            self._start_task(self._ask(queue), f"ask-{queue.broker_name}")

    def begin(self) -> None:
        """Let all queues pull again, as if every broker answered; called when the consumer starts."""
        for broker_name in list(self._away):
            self._back(broker_name)

    def _tell(self, queue: MessageQueue, failure: RemotingError) -> None:
        # A broker that does not answer may come back at another address, so the topic's route is fetched again.
        self._member.client.routes.doubt(queue.topic)
        if self._member.troubles.met(_BROKER.format(queue.broker_name), failure):
            log.warning(
                "client.broker_away",
                "broker %(broker)s does not answer, its queues wait: %(error)s",
                broker=queue.broker_name,
                error=failure,
            )

    async def _ask(self, queue: MessageQueue) -> None:
        """Ask a silent broker until it answers anything, even a refusal, or until no queue waits for the broker any more."""
        try:
            while True:
                await asyncio.sleep(self._member.settings.error_delay_s)
                if not self._away[queue.broker_name].waiting:
                    return
                try:
                    # RefusedError is an answer of the broker, and so proves that the broker is available again.
                    # The refused request is not reported, because the next pull fails if the broker also refuses pulls.
                    with contextlib.suppress(RefusedError):
                        await self._member.api.max_offset(queue)
                except RemotingError as failure:
                    self._tell(queue, failure)
                else:
                    self.answered(queue)
                    return
        finally:
            self._back(queue.broker_name)

    def _back(self, broker_name: str) -> None:
        away = self._away.pop(broker_name, None)
        if away is not None:
            away.is_back.set()

    def answered(self, queue: MessageQueue) -> None:
        """Record that the broker of a queue answered a request."""
        if self._member.troubles:
            lasted_s = self._member.troubles.over(_BROKER.format(queue.broker_name))
            if lasted_s is not None:
                log.info(
                    "client.broker_back",
                    "broker %(broker)s answers again, after %(duration_s).1f s",
                    broker=queue.broker_name,
                    duration_s=lasted_s,
                )
