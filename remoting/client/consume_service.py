"""Pulls messages for one member of a consumer group, and passes them to the member's listener, concurrently or in order.

See ``PullMessageService``, ``ConsumeMessageConcurrentlyService`` and ``ConsumeMessageOrderlyService`` of RocketMQ.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from msgspec.structs import replace

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError, InvalidArgumentError, RemotingError
from flintmq.core.io.threads import submit
from flintmq.core.record.properties import RETRY_TOPIC
from flintmq.remoting.client.broker_api import PullStatus
from flintmq.remoting.client.broker_patience import BrokerPatience
from flintmq.remoting.client.callbacks import called, is_coroutine_function, is_of_task, result_of, told
from flintmq.remoting.client.codec import Codec, decoding
from flintmq.remoting.client.compression import UnreadableError
from flintmq.remoting.client.consumer_settings import BatchListener, ConsumeResult, Listener
from flintmq.remoting.client.daemon_threads import DaemonThreads
from flintmq.remoting.client.instance import log, repeat
from flintmq.remoting.client.iteration import Iteration, NotTakenError
from flintmq.remoting.client.membership import Membership
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.process_queue import ProcessQueue
from flintmq.remoting.client.troubles import Troubles
from flintmq.remoting.client.unreadable import UnreadableMessages

Unit = tuple[ProcessQueue, Sequence[MessageExt]]
"""A queue, and the messages of the queue that one call of the listener gets."""
_LOOK_S: Final = 60.0
"""Maximum interval in seconds between checks for listener calls that take longer than ``consume_timeout_s``."""
_TURN_S: Final = 0.01
"""Seconds after which workers that consume messages yield to the event loop, even if the listener never awaits."""
StartTask = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]
"""A function that starts a task. Its arguments are a coroutine and the task's name. The task ends at the latest when the
consumer leaves its group."""


class ConsumeService:
    """Pulls and consumes the messages of one member, with one task per queue.

    Used only on the event loop's thread.

    Pulled messages stay in memory until they are consumed or sent back to the broker. A worker takes the messages for one call
    of the listener: one message, or a list for a batch listener.

    ::

        run: pull ─▶ messages in memory ─▶ workers ─▶ listener
              ▲        │                                 │
              └─ while there is room                     └─▶ consumed, or sent back

    Args:
        member: the member of the group.
        listener: consumes messages. If it is None, ``async for`` loops get the messages from :attr:`iteration`.
        batch_listener: consumes lists of messages; used instead of a listener.
        start_task: starts the workers.
        codec: decodes bodies for ``message.value``.
    """

    def __init__(
        self,
        member: Membership,
        listener: Listener | None,
        batch_listener: BatchListener | None,
        start_task: StartTask,
        codec: Codec | None = None,
    ) -> None:
        if listener is not None and batch_listener is not None:
            raise InvalidArgumentError("a consumer has a listener or a batch_listener, not both")
        self._member = member
        self._settings = member.settings
        self._has_listener = listener is not None or batch_listener is not None
        self.iteration: Iteration = Iteration(has_listener=self._has_listener)
        self._unit_size = 1 if batch_listener is None else member.settings.consume_batch_size
        if batch_listener is not None:
            self._call: Callable[[Any], Any] = batch_listener
        else:
            self._call = listener or self.iteration.hand_over
        if codec is not None:
            self._call = decoding(self._call, codec)
        self._unreadable = UnreadableMessages(member.settings)
        self._takes_lists = batch_listener is not None
        self._is_async = is_coroutine_function(self._call)
        self._retry_topic = RETRY_PREFIX + member.group
        self._start_task = start_task
        self._brokers = BrokerPatience(member, start_task)
        self._failing = Troubles(member.client.clock)
        """Queues whose pulls fail, because the broker refuses them or sends answers that cannot be decoded."""
        self._units: deque[Unit] = deque()
        """Pulled messages that no worker has taken yet, grouped by the call of the listener that will get them."""
        self._idle: deque[asyncio.Future[None]] = deque()
        """Futures of the workers that wait for messages to consume."""
        self._threads = DaemonThreads(f"{member.group}-listener", member.settings.concurrency)
        self._goes_on = asyncio.Event()
        """Event that is set while the consumer may pull, and cleared while pulling is suspended."""
        self._goes_on.set()
        self._is_ending = False
        """Whether the consumer is closing, so that workers start no further call of the listener."""
        self._busy = 0
        """Number of workers that are consuming messages."""
        self._none_busy = asyncio.Event()
        self._none_busy.set()
        self._begun: dict[int, tuple[float, Unit]] = {}
        """Start time (monotonic, in seconds) and messages of each running listener call, keyed by call number. It is empty for
        an orderly consumer."""
        self._calls = itertools.count()
        self._turn_ends_s = 0.0
        """The time, on the loop's clock, at which workers that consume messages next yield to the event loop."""
        self._turn_is_due = False

    def suspend(self) -> None:
        """Stop pulling messages until :meth:`resume`. Messages already pulled are consumed."""
        self._goes_on.clear()

    def resume(self) -> None:
        """Continue to pull messages after a call of :meth:`suspend`."""
        self._goes_on.set()

    def start(self) -> None:
        """Start the workers, the tasks that consume messages. An orderly consumer has no workers, because its tasks that pull
        messages also consume them."""
        self._is_ending = False
        # Listener calls that an earlier close() abandoned are forgotten, because brokers deliver their messages again.
        self._begun.clear()
        self.iteration.begin()
        self._brokers.begin()
        timeout_s = self._settings.consume_timeout_s
        if self._has_listener and self._member.is_clustering and not self._settings.orderly:
            self._start_task(repeat(min(timeout_s, _LOOK_S), self._give_up_slow), "slow")
        if not self._settings.orderly:
            for number in range(self._settings.concurrency if self._has_listener else 1):
                self._start_worker(number)

    def _start_worker(self, number: int) -> None:
        """Start a worker. If the worker is cancelled before the consumer is closed, it is replaced after a pause.

        An event loop that shuts down cancels all tasks. Because of the pause, no new worker is started on this event loop.
        """
        loop = asyncio.get_running_loop()

        def replace_worker() -> None:
            if not self._is_ending and not self._member.client.is_closed:
                log.warning(
                    "client.worker_cancelled",
                    "worker %(worker)d of %(group)s was cancelled, another one takes its place",
                    worker=number,
                    group=self._member.group,
                )
                self._start_worker(number)

        def ended(_worker: asyncio.Task[None]) -> None:
            if not self._is_ending:
                loop.call_later(self._settings.error_delay_s, replace_worker)

        self._start_task(self._worker(), f"worker-{number}").add_done_callback(ended)

    async def drain(self, timeout_s: float) -> None:
        """Start no further call of the listener, and wait at most ``timeout_s`` for the running calls."""
        self._is_ending = True
        self._units.clear()
        if timeout_s and self._has_listener:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._none_busy.wait()
            except TimeoutError:
                group = self._member.group
                log.warning(
                    "client.close_timeout",
                    "listeners of %(group)s take longer than close_timeout_s: their messages come again",
                    group=group,
                )
        elif self._busy and self._has_listener:
            log.info(
                "client.abandoned",
                "%(listeners)d listeners of %(group)s are abandoned: their messages come again",
                listeners=self._busy,
                group=self._member.group,
            )

    def close(self) -> None:
        """End the threads of a non-coroutine listener. Each thread finishes its current call."""
        self._threads.shutdown()

    async def run(self, held: ProcessQueue) -> None:
        """Pull and consume the messages of a queue until the queue is released, or the subscription to its topic ends."""
        while not held.dropped:
            await held.has_room()
            await self._goes_on.wait()
            subscription = self._member.subscriptions.get(held.queue.topic)
            if subscription is None:
                return
            try:
                messages = await self._pull(held, subscription)
            except RemotingError as failure:
                self._brokers.failed(held.queue, failure)
                await self._brokers.wait(held.queue)
                continue
            except Exception as failure:
                # A ValueError means that the answer to the pull could not be decoded.
                is_foreign = not isinstance(failure, FlintError | ValueError)
                if self._failing.met(str(held.queue), failure):
                    log.warning(
                        "client.pull_failed",
                        "pulling %(queue)s failed: %(error)s",
                        queue=held.queue,
                        error=told(failure),
                        exc_info=is_foreign,
                    )
                await asyncio.sleep(self._settings.error_delay_s)
                continue
            units = self._unreadable.units(messages, self._unit_size)
            if self._settings.orderly:
                for unit in units:
                    await self._consume_orderly(held, unit)
            else:
                self._submit([(held, unit) for unit in units])
            if self._settings.pull_interval_ms:
                await asyncio.sleep(self._settings.pull_interval_ms / 1000)

    def _submit(self, units: Sequence[Unit]) -> None:
        """Add messages (for a batch listener, lists of messages) to the queue from which workers take them, and wake idle
        workers."""
        if self._is_ending:
            return
        self._units.extend(units)
        for _ in units:
            while self._idle and self._idle[0].done():  # cancelled
                self._idle.popleft()
            if not self._idle:
                return
            self._idle.popleft().set_result(None)

    async def _pull(self, held: ProcessQueue, subscription: SubscriptionData) -> tuple[MessageExt, ...]:
        """Pull messages once, add the pulled messages to the process queue, and return them."""
        clock = self._member.client.clock
        held.last_pull_timestamp_ms = clock.now_ms()
        begin_s = clock.monotonic_s()
        asked = held.pull_queue_offset
        count, suspend_ms = self._settings.pull_batch_size, self._settings.suspend_ms
        result = await self._member.api.pull(
            held.queue, asked, subscription=subscription, max_messages=count, suspend_ms=suspend_ms
        )
        self._brokers.answered(held.queue)
        if self._failing:
            self._failing.over(str(held.queue))
        # If the consumer was suspended during the pull, the pulled messages are dropped. They are pulled again after resume().
        if not self._goes_on.is_set():
            return ()
        held.pull_queue_offset = result.next_begin_queue_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "client.offset_illegal",
                "offset %(asked_offset)d of %(queue)s is illegal: pulling continues at %(now_offset)d",
                asked_offset=asked,
                queue=held.queue,
                now_offset=held.pull_queue_offset,
            )
        held.put(result.messages)
        counts = self._member.counts[held.queue.topic]
        counts.pulls += 1
        counts.pulled += len(result.messages)
        counts.pull_time_s += clock.monotonic_s() - begin_s
        return result.messages

    async def consume(self, message: MessageExt) -> ConsumeResult:
        """Pass one message to the listener, and return the listener's result. A redelivered message gets its original topic.

        Raises the exceptions of the listener, and ``UnreadableError`` for an unreadable message that the listener must not get.
        """
        if self._unreadable.is_withheld(message):
            raise UnreadableError(message.body_error)
        return ConsumeResult.SUCCESS if await self._consumed((message,)) else ConsumeResult.LATER

    async def _consumed(self, messages: Sequence[MessageExt]) -> int:
        """Pass a message (to a batch listener, a list of messages) to the listener; return how many messages the listener
        consumed.

        The consumed messages of a list are its first messages.
        """
        if messages[0].topic == self._retry_topic:
            messages = [self._as_sent(message) for message in messages]
        argument = list(messages) if self._takes_lists else messages[0]
        outcome = self._call(argument) if self._is_async else await self._in_thread(argument, messages)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if outcome is None or outcome is ConsumeResult.SUCCESS:
            return len(messages)
        if outcome is ConsumeResult.LATER:
            return 0
        if self._takes_lists and type(outcome) is int and 0 <= outcome <= len(messages):
            return outcome
        takes = "a ConsumeResult, None or how many it has consumed" if self._takes_lists else "a ConsumeResult or None"
        raise TypeError(f"the listener of {self._member.group} returns {takes}, not {outcome!r}")

    def _as_sent(self, message: MessageExt) -> MessageExt:
        """Return a redelivered message with its original topic in place of the retry topic."""
        original = message.properties.get(RETRY_TOPIC)
        return replace(message, topic=self._member.client.namespace.unwrap(original)) if original else message

    async def _in_thread(self, argument: Any, messages: Sequence[MessageExt]) -> Any:
        """Call a non-coroutine listener on one of this consumer's threads, and return its result.

        The event loop's default executor is not used, because it can have fewer threads than ``concurrency``.
        """
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        try:
            consumed = submit(self._threads, context.run, called, self._call, argument)
        except RuntimeError as ending:
            # While the process ends, no thread can call the listener. Other consumers of the group get the messages.
            log.info(
                "client.left_to_others",
                "%(message)s is left to others, this process ends: %(reason)s",
                message=messages[0].msg_id,
                reason=ending,
            )
            # The new future never gets a result, so the task that awaits the future waits until the task is cancelled.
            consumed = loop.create_future()
        return result_of(await consumed)

    @property
    def is_listening(self) -> bool:
        """Whether the caller runs on a thread on which this consumer is calling its listener. Thread-safe."""
        return self._threads.is_current()

    async def _tried(self, held: ProcessQueue, messages: Sequence[MessageExt]) -> int:
        """Pass messages to the listener, and update traces and counters; return the number of consumed messages.

        The number is 0 if the listener raised an exception.
        """
        clock, counts = self._member.client.clock, self._member.counts[held.queue.topic]
        held.last_consume_timestamp_ms = clock.now_ms()
        if messages[0].body_error and self._unreadable.is_withheld(messages[0]):
            self._unreadable.log_withheld(held, messages[0])
            counts.failed += 1
            return 0
        begin_s = clock.monotonic_s()
        tracer = self._member.tracer
        traced = tracer.consuming(messages) if tracer is not None else None
        raised = False
        try:
            consumed = await self._consumed(messages)
        except NotTakenError:
            raise
        except BaseException as failure:
            # After an exception of any type from the listener, the messages are delivered again.
            if is_of_task(failure):
                raise
            log.exception(
                "client.consume_failed",
                "consuming %(messages)d messages of %(queue)s from %(first_message)s on failed",
                messages=len(messages),
                queue=held.queue,
                first_message=messages[0].msg_id,
            )
            consumed, raised = 0, True
        if tracer is not None and traced is not None:
            tracer.consumed(traced, None if raised else consumed)
        counts.consume_time_s += clock.monotonic_s() - begin_s
        counts.consumed += consumed
        counts.failed += len(messages) - consumed
        return consumed

    async def _worker(self) -> None:
        loop = asyncio.get_running_loop()
        # The worker checks a flag, because a listener can suppress the cancellation of the worker's task.
        while not self._is_ending:
            while not self._units:
                idle = loop.create_future()
                self._idle.append(idle)
                await idle
            held, messages = self._units.popleft()
            if not held.dropped:
                self._busy += 1
                self._none_busy.clear()
                try:
                    await self._consume_concurrently(held, messages)
                except NotTakenError:
                    pass  # The consumer was closed, so the message is neither consumed nor sent back.
                except asyncio.CancelledError:
                    # A listener may cancel its worker. The worker's messages are not consumed, so they are queued again later.
                    self._try_later(held, messages)
                    raise
                except Exception:
                    # The worker must continue after an error of the client. Exceptions of the listener are handled in _tried().
                    log.exception(
                        "client.worker_failed",
                        "a worker of %(group)s failed at %(first_message)s of %(queue)s",
                        group=self._member.group,
                        first_message=messages[0].msg_id,
                        queue=held.queue,
                    )
                    self._try_later(held, messages)
                finally:
                    self._busy -= 1
                    if not self._busy:
                        self._none_busy.set()
            # Yield to the event loop: a listener that never awaits would otherwise delay heartbeats and pulls.
            if loop.time() > self._turn_ends_s:
                if not self._turn_is_due:
                    self._turn_is_due = True
                    loop.call_soon(self._begin_turn)
                await asyncio.sleep(0)

    def _begin_turn(self) -> None:
        self._turn_is_due = False
        self._turn_ends_s = asyncio.get_running_loop().time() + _TURN_S

    async def _consume_concurrently(self, held: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        number = next(self._calls)
        self._begun[number] = (self._member.client.clock.monotonic_s(), (held, messages))
        consumed = await self._tried(held, messages)
        if self._begun.pop(number, None) is None:
            # After the consume timeout, the messages were already sent back, so the listener's late result is ignored.
            return
        if consumed < len(messages) and self._member.is_clustering:
            held.done(messages[:consumed])
            for message in messages[consumed:]:
                await self._send_back(held, message)
        else:
            held.done(messages)

    async def _give_up_slow(self) -> None:
        """Send back messages whose listener call exceeds ``consume_timeout_s``.

        Without this time limit, a listener that never returns would prevent the commit of later offsets in the queue.
        """
        now_s = self._member.client.clock.monotonic_s()
        for number, (began_s, (held, messages)) in list(self._begun.items()):
            if now_s - began_s >= self._settings.consume_timeout_s and self._begun.pop(number, None) is not None:
                log.warning(
                    "client.consume_timeout",
                    "%(first_message)s takes longer than consume_timeout_s and is sent back",
                    first_message=messages[0].msg_id,
                )
                for message in messages:
                    await self._send_back(held, message)

    async def _send_back(self, held: ProcessQueue, message: MessageExt) -> None:
        limit = self._settings.max_reconsume_times
        try:
            await self._member.api.send_back(message, self._settings.delay_level, 16 if limit is None else limit)
        except Exception as failure:
            # If sending back fails, for example because a hook raises an exception, the listener gets the message again.
            # A message that can be neither read nor sent back is skipped.
            if self._unreadable.is_passed_over(held, message, failure):
                return
            if message.body_error:
                message = replace(message, reconsume_times=message.reconsume_times + 1)
            log.warning(
                "client.not_sent_back",
                "%(message)s was not sent back, it is tried again here: %(error)s",
                message=message.msg_id,
                error=told(failure),
            )
            self._try_later(held, (message,))
        else:
            held.done((message,))

    def _try_later(self, held: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        asyncio.get_running_loop().call_later(self._settings.error_delay_s, self._submit, [(held, messages)])

    async def _consume_orderly(self, held: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        limit = 0 if self._unreadable.is_withheld(messages[0]) else self._settings.max_reconsume_times
        while not held.dropped:
            held.consuming = True
            try:
                consumed = await self._tried(held, messages)
                if not self._member.is_clustering:
                    consumed = len(messages)
                held.done(messages[:consumed])
                messages = [
                    replace(message, reconsume_times=message.reconsume_times + 1)
                    for message in messages[consumed:]
                    if limit is None or message.reconsume_times < limit or not await self._buried(held, message, limit)
                ]
            except NotTakenError:
                return  # The consumer was closed, so the message is neither consumed nor sent back.
            finally:
                held.consuming = False
            if not messages:
                return
            if not held.dropped:
                await asyncio.sleep(self._settings.retry_delay_s)

    async def _buried(self, held: ProcessQueue, message: MessageExt, limit: int) -> bool:
        """Ask the broker to make a message a dead letter after its last attempt. Return whether the broker did so.

        A message that can be neither read nor sent back is skipped. The result is true for this message too, because it needs
        no further attempt.
        """
        try:
            await self._member.api.send_back(message, -1, limit)
        except Exception as failure:  # Hooks can raise exceptions of any type, so all types are caught.
            if self._unreadable.is_passed_over(held, message, failure):
                return True
            log.warning(
                "client.no_dead_letter",
                "%(message)s was not made a dead letter: %(error)s",
                message=message.msg_id,
                error=told(failure),
            )
            return False
        held.done((message,))
        return True
