"""Writes what became of messages to the trace topic, as the Java client does: ``mqadmin queryMsgTraceById`` shows it.

A line's fields end with 0x01, a line with 0x02; a message of the topic holds the lines of many, and is found by their
ids and keys. See ``AsyncTraceDispatcher`` and ``TraceDataEncoder`` of RocketMQ.
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
from flintmq.remoting.client.unique_id import UNIQUE_IDS
from flintmq.remoting.wire.command import RemotingCommand

_WAITING_MAX: Final = 2_048
_LINES_MAX: Final = 100
_BODY_MAX_CHARS: Final = 128_000
_KEYS_MAX_CHARS: Final = 8_000
"""Of the ids and keys that one message of the trace topic is found by; its properties hold 32,767 bytes."""
_LINGER_S: Final = 0.1
_TIMEOUT_MS: Final = 5_000
_CLOSE_TIMEOUT_S: Final = 3.0
_NONE: Final = "null"
"""Stands for tags or keys that a message has not: the Java client's decoder needs a last field that is not empty."""
_NORMAL, _HALF, _COMMITTED, _DELAYED = range(4)
"""MessageType of the Java client."""


def _line(*fields: object) -> str:
    """Return a line as TraceDataEncoder writes it."""
    return "\x01".join([str(field).lower() if isinstance(field, bool) else str(field) for field in fields]) + "\x02"


@attrs.frozen
class Consuming:
    """Messages that a listener has, until it is known what became of them."""

    request_id: str
    begin_ms: int
    messages: Sequence[MessageExt]


class Tracer:
    """Writes the traces of one producer or consumer, in the background. Loop thread only.

    Traces are lost rather than anything held up: beyond 2,048 that wait, and when the trace topic cannot be written to.

    Args:
        client: sends them.
        group: whose they are.
        topic: the trace topic; True: that of brokers by default.
    """

    def __init__(self, client: ClientInstance, group: str, topic: str | bool) -> None:
        self._client = client
        self._group = group
        self._topic = TRACE_TOPIC if topic is True else str(topic)
        self._sender = Sender(client, f"_INNER_TRACE_PRODUCER-{group}")
        self._preparer = Preparer()
        self._waiting: deque[tuple[str, str]] = deque()
        """Line, and the ids and keys that it is found by."""
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._lost = 0
        self._is_closed = False
        """Whether only :meth:`close` writes what still comes."""

    def sent(
        self, prepared: Prepared, queue: MessageQueue, address: str, answer: RemotingCommand, begin_ms: int
    ) -> None:
        """Trace messages that were stored: a line for each."""
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
        """Trace the end of a transaction.

        Args:
            topic, msg_id, transaction_id: of the half message.
            address: the broker's.
            state: ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``.
            is_checked: whether the broker asked.
        """
        line = _line(
            "EndTransaction", self._client.clock.now_ms(), "", self._group, topic, msg_id, _NONE, _NONE, address,
            _COMMITTED, transaction_id, state, is_checked,
        )  # fmt: skip
        self._put(line, msg_id, "")

    def consuming(self, messages: Sequence[MessageExt]) -> Consuming:
        """Trace that a listener gets messages; :meth:`consumed` ends it."""
        traced = [message for message in messages if message.properties.get(TRACE_ON) != "false"]
        begun = Consuming(UNIQUE_IDS.make(), self._client.clock.now_ms(), traced)
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
        """Trace what became of messages: whether all were consumed, or the listener raised (None)."""
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
        """Write traces, also after :meth:`close`."""
        self._is_closed = False

    async def close(self) -> None:
        """Write what waits, within 3 s, and what comes meanwhile; what comes later waits for :meth:`begin`."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                while self._waiting:
                    await self._write()
        except TimeoutError:
            self._lose(len(self._waiting), "the client is closed")
            self._waiting.clear()

    # --- inside ---

    def _put(self, line: str, msg_id: str, keys: str) -> None:
        if len(self._waiting) >= _WAITING_MAX:
            self._lose(1, "too many wait")
            return
        self._waiting.append((line, f"{msg_id} {keys}" if keys else msg_id))
        self._wake.set()
        if self._task is None and not self._is_closed:
            self._task = self._client.start_task(self._run(), f"{self._group}-trace")

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if len(self._waiting) < _LINES_MAX:
                await asyncio.sleep(_LINGER_S)
            while self._waiting:
                await self._write()

    async def _write(self) -> None:
        """Send the first lines that wait, as many as go in one message; they stay in line until that is done."""
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
        except Exception as failure:  # of a hook, too: neither the traces that follow nor a close are held up
            self._lose(len(lines), told(failure))
        for _ in lines:
            self._waiting.popleft()

    def _lose(self, count: int, why: str) -> None:
        if not self._lost:
            log.warning("client.traces_lost", "traces of %(group)s are lost: %(error)s", group=self._group, error=why)
        self._lost += count
