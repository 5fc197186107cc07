"""Delivers messages at the time they name: reads the timer topic's queue into a wheel, and what is due out of it.

Never early; late by the time between two looks (100 ms) plus what a burst takes. At least once: how far the queue was read
and what was delivered is written every few seconds and at the stop, so a crash delivers again what came after. After a start
the wheel is made anew from the queue, from the first message that had not been delivered: what is written down tells which
of the later ones have been.

::

    queue:   …delivered… | low ▒▒ some wait, some are done ▒▒ | read ── not looked at yet ── end
    done:    below `read`, exactly what is due before (done_due_ms, done_queue_offset) has been delivered
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from flintmq.core.broker.schedule import PutOutcome, ScheduleStore, delivery_of, give_up
from flintmq.core.broker.timer_wheel import ENTRY, KEY, TimerWheel
from flintmq.core.broker.topic_name import TIMER_TOPIC
from flintmq.core.io.json_file import JsonFile
from flintmq.core.message import properties as props
from flintmq.core.message.record import MessageExtBrokerInner, Record

_log = logging.getLogger(__name__)

LOOK_INTERVAL_MS: Final = 100
"""How often the queue is looked at; also the pause after a delivery that failed."""
READ_PER_PASS: Final = 1_024
DELIVER_PER_PASS: Final = 512
READ_AHEAD_MAX: Final = 50_000
"""With so many in memory the queue is not read further until some are delivered."""


class TimerMessageService:
    """The broker's timers. Loop thread; the caller's timer calls :meth:`run` and :meth:`persist`.

    Args:
        store: see :class:`flintmq.core.broker.schedule.ScheduleStore`.
        wheel: empty.
        file: keeps the positions; None keeps them in memory.
    """

    def __init__(self, store: ScheduleStore, wheel: TimerWheel, file: JsonFile | None = None) -> None:
        self._store = store
        self.wheel = wheel
        self._file = file
        self._read = 0
        """The queue offset to read next."""
        self._seen = 0
        """Below it an earlier run has read; there ``_done`` tells what it delivered."""
        self._done = (0, 0)
        self._saved: dict[str, int] = {}
        self.delivered = 0
        """Messages delivered since the start."""
        self.discarded = 0
        """Messages given up, see :func:`flintmq.core.broker.schedule.give_up`."""

    def load(self) -> None:
        """Reads the positions; call it after the store has recovered.

        Raises:
            StoreFormatError: the file and its backup cannot be read.
            StoreError: the wheel's old files cannot be deleted.
        """
        self.wheel.clear()
        value: Mapping[str, Any] = (self._file.load() if self._file is not None else None) or {}
        end = self._store.max_queue_offset(TIMER_TOPIC, 0)
        self._seen = min(int(value.get("readQueueOffset", 0)), end)
        self._read = min(int(value.get("lowQueueOffset", 0)), self._seen)
        self._done = (int(value.get("doneDueMs", 0)), int(value.get("doneQueueOffset", 0)))
        self._saved = self._positions()

    def run(self, now_ms: int) -> int:
        """Reads what is new and delivers what is due.

        Args:
            now_ms: wall-clock time.

        Returns:
            When to call again, on the same clock; ``now_ms`` itself when there is more to do at once.

        Raises:
            StoreError: the wheel's files cannot be written or read; nothing is lost, call again.
        """
        self.wheel.turn(now_ms)
        more = self._read_on()
        due = self.wheel.pop_due(now_ms, DELIVER_PER_PASS)
        done = self._deliver(due)
        if done < len(due):
            self.wheel.give_back(due[done:])
            return now_ms + LOOK_INTERVAL_MS
        if more or len(due) == DELIVER_PER_PASS:
            return now_ms
        next_ms = self.wheel.next_ms()
        latest_ms = now_ms + LOOK_INTERVAL_MS
        return latest_ms if next_ms is None else max(now_ms, min(next_ms, latest_ms))

    # in

    def _read_on(self) -> bool:
        """Puts what is new into the wheel; returns whether there is more."""
        end = self._store.max_queue_offset(TIMER_TOPIC, 0)
        if self._read >= end:
            return False
        if self.wheel.in_memory >= READ_AHEAD_MAX:
            return False
        start = self._store.min_queue_offset(TIMER_TOPIC, 0)
        if self._read < start:
            _log.error(
                "timers at queue offsets %d to %d have expired with their log files [delivery.gone]",
                self._read,
                start - 1,
            )
            self.discarded += start - self._read
            self._read = start
        queue_offset = self._read
        entries: list[bytes] = []
        for commit_log_offset_bytes, size_bytes, _ in self._store.queue_units(
            TIMER_TOPIC, 0, queue_offset, READ_PER_PASS
        ):
            record = self._store.look_message(commit_log_offset_bytes, size_bytes)
            due_ms = _due_ms(record)
            if due_ms is None:
                if not give_up(self._store, record, commit_log_offset_bytes, "it names no time of delivery"):
                    break
                self.discarded += 1
            elif queue_offset >= self._seen or (due_ms, queue_offset) >= self._done:
                entries.append(ENTRY.pack(due_ms, queue_offset, commit_log_offset_bytes, size_bytes))
            queue_offset += 1
        self.wheel.put(entries)
        self._read = queue_offset
        return self._read < end

    # out

    def _deliver(self, entries: list[bytes]) -> int:
        """Delivers entries in order up to the first that has to wait; returns how many are done with."""
        batch = [self._message(entry) for entry in entries]
        messages = [message for message in batch if message is not None]
        outcomes = iter(self._store.put_messages(messages, TIMER_TOPIC, 0) if messages else ())
        for at, (entry, message) in enumerate(zip(entries, batch, strict=True)):
            outcome = PutOutcome.ILLEGAL if message is None else next(outcomes, PutOutcome.LATER)
            if outcome is PutOutcome.LATER or (outcome is PutOutcome.ILLEGAL and not self._give_up(entry, message)):
                return at
            due_ms, queue_offset = KEY.unpack_from(entry)
            self._done = max(self._done, (due_ms, queue_offset + 1))
            if outcome is PutOutcome.STORED:
                self.delivered += 1
            else:
                self.discarded += 1
        return len(entries)

    def _record(self, entry: bytes) -> Record | None:
        _, queue_offset, commit_log_offset_bytes, size_bytes = ENTRY.unpack(entry)
        record = self._store.look_message(commit_log_offset_bytes, size_bytes)
        if record is None or record.topic != TIMER_TOPIC or record.queue_offset != queue_offset:
            return None
        return record

    def _message(self, entry: bytes) -> MessageExtBrokerInner | None:
        record = self._record(entry)
        return None if record is None else delivery_of(record)

    def _give_up(self, entry: bytes, message: MessageExtBrokerInner | None) -> bool:
        """Makes a dead letter of a message that cannot be delivered; False when it is to be tried again later."""
        record = self._record(entry)
        why = "the store refuses it" if message else "no topic it may go to" if record else "it cannot be read"
        return give_up(self._store, record, ENTRY.unpack(entry)[2], why)

    # positions

    def low_queue_offset(self) -> int:
        """The first message that may not be delivered yet; what lies before it is not needed any more."""
        low = self.wheel.low_queue_offset()
        return self._read if low is None else min(low, self._read)

    def _positions(self) -> dict[str, int]:
        done = self._done
        first = self.wheel.peek()
        if first is not None:
            done = min(done, KEY.unpack_from(first))  # a late comer waits among what was delivered
        return {
            "readQueueOffset": max(self._read, self._seen),
            "lowQueueOffset": self.low_queue_offset(),
            "doneDueMs": done[0],
            "doneQueueOffset": done[1],
        }

    def persist(self) -> bool:
        """Writes the positions when they moved; says whether it did. Raises StoreError."""
        positions = self._positions()
        if self._file is None or positions == self._saved:
            return False
        self._file.save(positions)
        self._saved = positions
        return True

    def runtime_info(self) -> dict[str, str]:
        """Figures for request 28, under the names of 5.x."""
        end = self._store.max_queue_offset(TIMER_TOPIC, 0)
        return {
            "timerOffsetBehind": str(max(0, end - self._read)),
            "timerCongestNum": str(len(self.wheel) + max(0, end - self._read)),
        }


def _due_ms(record: Record | None) -> int | None:
    text = record.properties.get(props.TIMER_OUT_MS, "") if record is not None else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
