"""Message traces: records of sends and consumption, written to the trace topic in the Java client's format.

``mqadmin queryMsgTraceById`` shows the traces of a message. A trace is a line of text: its fields are separated by 0x01, and it
ends with 0x02. A message of the trace topic contains the lines of many traced messages. Its keys are the ids and keys of the
traced messages. See ``AsyncTraceDispatcher`` and ``TraceDataEncoder`` of RocketMQ.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs

from flintmq.config.rocketmq.system_topics import TRACE_TOPIC
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.record.properties import TRACE_ON
from flintmq.core.record.sys_flag import TRANSACTION_PREPARED
from flintmq.remoting.client.callbacks import told
from flintmq.remoting.client.instance import ClientInstance, log
from flintmq.remoting.client.message import Message, MessageExt
from flintmq.remoting.client.prepared import Prepared, Preparer
from flintmq.remoting.client.send_result import SendResult, SendStatus, send_results
from flintmq.remoting.client.sending import Sender
from flintmq.remoting.client.unique_id import UniqueIdMaker
from flintmq.remoting.wire.command import RemotingCommand

_WAITING_MAX: Final = 2_048
_LINES_MAX: Final = 100
_BODY_MAX_CHARS: Final = 128_000
_KEYS_MAX_CHARS: Final = 8_000
"""Maximum number of characters of the ids and keys in one message of the trace topic. The properties of a message have up to
32,767 bytes."""
_LINGER_S: Final = 0.1
_TIMEOUT_MS: Final = 5_000
_CLOSE_TIMEOUT_S: Final = 3.0
_NONE: Final = "null"
"""Text for missing tags or keys in a trace. The Java client's decoder fails if the last field is empty."""
_NORMAL, _HALF, _COMMITTED, _DELAYED = range(4)
"""Ordinals of the Java client's enum MessageType. A trace contains the ordinal of its message's type."""


def _line(*fields: object) -> str:
    """Return a line of a trace in the format of ``TraceDataEncoder``."""
    return "\x01".join([str(field).lower() if isinstance(field, bool) else str(field) for field in fields]) + "\x02"


@attrs.frozen
class Consuming:
    """The messages that were passed to a listener in a call that has not returned yet."""

    request_id: str
    begin_ms: int
    messages: Sequence[MessageExt]


class Tracer:
    """Writes the traces of one producer or consumer in the background. Used only on the event loop's thread.

    Tracing never delays sends or listeners. Traces are lost if more than 2,048 traces wait, or if the trace topic is not
    writable.

    Args:
        client: the client instance that sends the traces.
        group: the group of the producer or consumer.
        topic: the trace topic; True: RocketMQ's default trace topic.
    """

    def __init__(self, client: ClientInstance, group: str, topic: str | bool) -> None:
        self._client = client
        self._group = group
        self._topic = TRACE_TOPIC if topic is True else str(topic)
        self._sender = Sender(client, f"_INNER_TRACE_PRODUCER-{group}")
        self._preparer = Preparer(ids=UniqueIdMaker(clock=client.clock))
        self._waiting: deque[tuple[str, str]] = deque()
        """Trace lines to write, each with the ids and keys by which the trace can be queried."""
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        """Lock that a task holds while the task sends trace lines and removes them, so that no other task sends the same
        lines."""
        self._lost = 0
        self._is_closed = False
        """Whether the tracer is closed and starts no background task any more. :meth:`close` writes the remaining lines."""

    def sent(
        self, prepared: Prepared, queue: MessageQueue, address: str, answer: RemotingCommand, begin_ms: int
    ) -> None:
        """Write a trace line for each stored message of a send.

        Args:
            prepared: the send.
            queue: the queue of the request.
            address: the broker's address.
            answer: the broker's answer.
            begin_ms: the time at which the send began, in ms since 1970.
        """
        cost_ms = self._client.clock.now_ms() - begin_ms
        for message, result in zip(
            prepared.sources, send_results(prepared.msg_id.split(","), queue, answer), strict=True
        ):
            if result.trace_on and not message.topic.startswith(self._topic):
                self._sent(prepared, message, result, address, begin_ms, cost_ms)

    def _sent(
        self, prepared: Prepared, message: Message, result: SendResult, address: str, begin_ms: int, cost_ms: int
    ) -> None:
        is_delayed = message.delay_level or message.delay is not None or message.deliver_at is not None
        kind = _HALF if prepared.sys_flag & TRANSACTION_PREPARED else _DELAYED if is_delayed else _NORMAL
        keys = " ".join(message.keys)
        line = _line(
            "Pub", begin_ms, result.region_id, self._group, message.topic, result.msg_id, message.tags or _NONE,
            keys or _NONE, address, len(message.body), cost_ms, kind, result.offset_msg_id,
            result.status is SendStatus.SEND_OK,
        )  # fmt: skip
        self._put(line, result.msg_id, keys)

    def ended(
        self, topic: str, msg_id: str, transaction_id: str, address: str, state: str, *, is_checked: bool
    ) -> None:
        """Write a trace line about the end of a transaction.

        Args:
            topic, msg_id, transaction_id: identify the half message.
            address: the broker's address.
            state: ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``.
            is_checked: whether the broker had requested the state by a check.
        """
        line = _line(
            "EndTransaction", self._client.clock.now_ms(), "", self._group, topic, msg_id, _NONE, _NONE, address,
            _COMMITTED, transaction_id, state, is_checked,
        )  # fmt: skip
        self._put(line, msg_id, "")

    def consuming(self, messages: Sequence[MessageExt]) -> Consuming:
        """Write trace lines about the start of a listener's call. Pass the returned object to :meth:`consumed` when the
        listener's call ends."""
        traced = [message for message in messages if message.properties.get(TRACE_ON) != "false"]
        begun = Consuming(self._preparer.ids.make(), self._client.clock.now_ms(), traced)
        for message in traced:
            keys = " ".join(message.keys)
            region_id = message.properties.get("MSG_REGION", "")
            line = _line(
                "SubBefore", begun.begin_ms, region_id, self._group, begun.request_id, message.msg_id,
                message.reconsume_times, keys or _NONE,
            )  # fmt: skip
            self._put(line, message.msg_id, keys)
        return begun

    def consumed(self, begun: Consuming, consumed: int | None) -> None:
        """Write trace lines about the end of a listener's call.

        Args:
            begun: the result of :meth:`consuming`.
            consumed: the number of messages consumed; None if the listener raised an exception.
        """
        succeeded = consumed is not None and consumed >= len(begun.messages)
        code = 0 if succeeded else 2 if consumed is None else 4
        now_ms = self._client.clock.now_ms()
        cost_ms = (now_ms - begun.begin_ms) // max(len(begun.messages), 1)
        for message in begun.messages:
            keys = " ".join(message.keys)
            line = _line(
                "SubAfter",
                begun.request_id,
                message.msg_id,
                cost_ms,
                succeeded,
                keys or _NONE,
                code,
                now_ms,
                self._group,
            )
            self._put(line, message.msg_id, keys)

    def begin(self) -> None:
        """Enable the background task that writes traces. The task itself starts when the next trace is added. A client calls
        this method when it starts, and also when it starts again after :meth:`close`, which disables the task."""
        self._is_closed = False

    async def close(self) -> None:
        """Write the waiting traces, within 3 s. Traces that are added later wait until :meth:`begin` is called."""
        self._is_closed = True
        task, self._task = self._task, None
        # The task is not cancelled during a send, because the trace message may already be stored, and would be sent again.
        if task is not None and not self._writing.locked():
            task.cancel()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                if task is not None:
                    await asyncio.wait([task])
                while self._waiting:
                    await self._write()
        except TimeoutError:
            self._lose(len(self._waiting), "the client is closed")
            self._waiting.clear()
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    # --- internals ---

    def _put(self, line: str, msg_id: str, keys: str) -> None:
        if len(self._waiting) >= _WAITING_MAX:
            self._lose(1, f"more than {_WAITING_MAX} wait to be written")
            return
        self._waiting.append((line, f"{msg_id} {keys}" if keys else msg_id))
        self._wake.set()
        if self._task is None and not self._is_closed:
            self._task = self._client.start_task(self._run(), f"{self._group}-trace")

    async def _run(self) -> None:
        task = asyncio.current_task()
        while self._task is task:
            await self._wake.wait()
            self._wake.clear()
            if len(self._waiting) < _LINES_MAX:
                await asyncio.sleep(_LINGER_S)
            while self._waiting:
                await self._write()

    async def _write(self) -> None:
        """Send the first waiting trace lines, as many as one message can have, then remove these lines from the queue."""
        async with self._writing:
            if not self._waiting:
                return
            lines: list[str] = []
            keys: dict[str, None] = {}
            chars = key_chars = 0
            for line, found_by in self._waiting:
                chars += len(line)
                key_chars += len(found_by)
                if lines and (len(lines) == _LINES_MAX or chars > _BODY_MAX_CHARS or key_chars > _KEYS_MAX_CHARS):
                    break
                lines.append(line)
                keys.update(dict.fromkeys(found_by.split()))
            try:
                message = Message(self._topic, "".join(lines).encode(), keys=tuple(keys))
                await self._sender.stored(self._preparer.one(message), None, _TIMEOUT_MS)
            except Exception as failure:
                # An exception of a hook must not stop later traces or a close.
                self._lose(len(lines), told(failure))
            for _ in lines:
                self._waiting.popleft()

    def _lose(self, count: int, why: str) -> None:
        if not self._lost:
            log.warning("client.traces_lost", "traces of %(group)s are lost: %(error)s", group=self._group, error=why)
        self._lost += count
