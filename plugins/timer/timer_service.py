"""Delivers messages at the time that they name in a property. The service reads the timer topic's queue into a timer wheel, and
delivers the messages that the wheel returns when they are due.

**Guarantee.** Every acknowledged message that names a time (a timer) is delivered once, and never early. It is late by at most
the interval between two runs (100 ms) plus the time that a burst takes. A timer is delivered a second time only in two cases:

* The broker crashed within two intervals of ``delay.flush_interval_ms`` after the delivery, or before the next sync of the log
  if that took longer. The reason is that positions are written only after the delivered copies are on disk.
* The clock was set back after the delivery, and the broker was stopped before the clock reached the time of the delivery again.

A slave uses its master's positions when the slave's log contains the messages that these positions name (docs/replication.md).
After becoming the master, the slave delivers from these positions.

**Positions.** After a start the wheel is rebuilt from the queue, from the first message that had not been delivered. The
positions name the later messages that had been delivered::

    queue:   …delivered… | low ▒▒ some wait, some are done ▒▒ | read ── not looked at yet ── end
    done:    messages below `read` that are due before (doneDueMs, doneQueueOffset) were delivered, except those in `late`

Until the queue has been read again up to ``read``, nothing is delivered and no new positions are written: the positions of the
earlier run cover messages that this run has not read yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flintmq.config.rocketmq.system_topics import TIMER_TOPIC
from flintmq.core.broker.durable_positions import DurablePositions, LogEnds
from flintmq.core.broker.redirected_message import PutOutcome, RedirectedMessageStore, delivery_of, give_up
from flintmq.core.errors import StoreFormatError
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.log_events import event_log
from flintmq.core.record import properties as props
from flintmq.core.record.java_number import number_or, parse_long
from flintmq.core.record.record import MessageExtBrokerInner, Record
from flintmq.plugins.timer.timer_wheel import ENTRY, KEY, TimerWheel

_log = event_log(__name__)

LOOK_INTERVAL_MS: Final = 100
"""Longest time in ms between two checks for due timers. The pause after a failed delivery has the same length."""
READ_PER_PASS: Final = 1_024
DELIVER_PER_PASS: Final = 512
READ_AHEAD_MAX: Final = 50_000
"""Maximum number of timers in memory while a timer is due. If memory has this number of timers, no further timers are read from
the queue. While no timer is due, this maximum does not apply. Memory then has only timers of the current minute, and the
setting ``delay.timer_minute_max`` limits their number."""


TIMER_POSITIONS: Final = "timerPositions"
"""Key of the timer positions in a master's answer to GET_ALL_DELAY_OFFSET (45)."""


class TimerPositions:
    """The file of a broker's timer positions. Used only on the event loop's thread.

    A master writes the positions up to which its :class:`TimerMessageService` has delivered timers. A slave writes the
    positions that it received from its master.

    Args:
        log: the log to which the delivered copies of timers are appended.
        file: the file to read and write; None saves no positions.
    """

    def __init__(self, log: LogEnds, file: JsonFile | None) -> None:
        self._file = file
        self._durable: DurablePositions[dict[str, Any]] = DurablePositions(log)
        self.known: dict[str, Any] = {}
        """The positions at which delivery of timers begins. The positions come from the file of timer positions, from the end
        of this broker's last delivery, or on a slave from its master."""

    def load(self) -> None:
        """Read the positions of delivered timers from the file. Raises StoreFormatError."""
        value = (self._file.load() if self._file is not None else None) or {}
        self._durable.saved = dict(value)
        self.known = dict(value)

    def persist(self, current: dict[str, Any]) -> bool:
        """Write the positions of delivered timers if they changed and the delivered messages are on disk.

        Args:
            current: the positions now.

        Returns:
            Whether something was written.

        Raises:
            StoreError: the file cannot be written.
        """
        positions = self._durable.ready(current) if self._file is not None else None
        if self._file is None or positions is None:
            return False
        self._file.save(positions)
        self._durable.saved = positions
        return True


class TimerMessageService:
    """Reads the broker's timers from the timer topic, and delivers them when they are due. Used only on the event loop's
    thread.

    The owner of this object calls :meth:`run` and :meth:`persist` periodically.

    Args:
        store: see :class:`flintmq.core.broker.redirected_message.RedirectedMessageStore`.
        wheel: an empty timer wheel, which the service fills with the timers that are not due yet.
        saved: reads and writes the positions of delivered timers.
    """

    def __init__(self, store: RedirectedMessageStore, wheel: TimerWheel, saved: TimerPositions) -> None:
        self._store = store
        self.wheel = wheel
        self._saved = saved
        self._read = 0
        """Queue offset in the timer topic of the next message to read."""
        self._seen = 0
        """Queue offset in the timer topic up to which messages had been read, according to the saved positions."""
        self._done = (0, 0)
        """Due time in ms and queue offset up to which timers are delivered. Timers sort by due time, and then by queue offset.
        Every timer that was read and sorts before this pair is delivered, unless it is in the timer wheel."""
        self._late: frozenset[int] = frozenset()
        """Queue offsets of late timers in the timer topic. A timer is late if it had been read but not delivered when the timer
        positions were saved, and was due no later than the saved due time up to which timers are delivered. After a restart,
        the broker still delivers the late timers."""
        self._restored: dict[str, Any] = {}
        """The saved positions with which the timers were last restored."""
        self._restored_end = 0
        """Queue offset in the timer topic up to which all messages must be read before the first delivery."""
        self.delivered = 0
        """Number of timer messages that were delivered since the start."""
        self.discarded = 0
        """Number of timer messages that were given up because they can never be delivered, see
        :func:`flintmq.core.broker.redirected_message.give_up`."""

    def load(self) -> None:
        """Read the positions of delivered timers. Call this method after the store has recovered.

        Raises:
            StoreFormatError: the file and its backup cannot be read.
            StoreError: the wheel's old files cannot be deleted.
        """
        self._saved.load()
        self.resume()

    def resume(self) -> None:
        """Empty the timer wheel, and read the queue of the timer topic again from the positions in
        :attr:`TimerPositions.known`. These positions come from the file of timer positions, from the end of this broker's last
        delivery of timers, or from the master. Raises StoreError if the wheel's old files cannot be deleted."""
        self._restore(self._saved.known)

    def _restore(self, positions: Mapping[str, Any]) -> None:
        """Empty the timer wheel, and read the timer topic's queue again from the given positions."""
        self.wheel.clear()
        self._restored = dict(positions)
        end = self._store.max_queue_offset(TIMER_TOPIC, 0)
        self._restored_end = end
        self._seen = min(int(positions.get("readQueueOffset", 0)), end)
        self._read = min(int(positions.get("lowQueueOffset", 0)), self._seen)
        self._done = (int(positions.get("doneDueMs", 0)), int(positions.get("doneQueueOffset", 0)))
        self._late = frozenset(map(int, positions.get("lateQueueOffsets", ())))

    @property
    def is_restoring(self) -> bool:
        """Whether timers that an earlier run stored are still being read. No timer is delivered meanwhile."""
        return self._read < self._restored_end

    def run(self, now_ms: int) -> int:
        """Read new timers into the timer wheel, and deliver the timers that are due.

        Args:
            now_ms: wall-clock time.

        Returns:
            The time of the next call, in ms since 1970; ``now_ms`` itself if there is more to do at once.

        Raises:
            StoreError: the wheel's files cannot be written or read. No timer is lost, and the caller must call this method
                again.
        """
        try:
            return self._pass(now_ms)
        except StoreFormatError as error:
            _log.error("timer.read_again", "the timers are read again from the queue: %(error)s", error=error)
            self._restore(self.positions())
            return now_ms + LOOK_INTERVAL_MS

    def _pass(self, now_ms: int) -> int:
        if self.is_restoring:
            # Until turn() is called, the timer wheel writes all timers to files, so overdue timers do not fill the memory.
            # After TimerWheel.turn(), the wheel keeps overdue timers in memory, so all stored timers are read before the call.
            goes_on = self._read_on()
            if self.is_restoring:
                return now_ms if goes_on else now_ms + LOOK_INTERVAL_MS
        self.wheel.turn(now_ms)
        more = self._read_on() if self._has_room(now_ms) else False
        due = self.wheel.pop_due(now_ms, DELIVER_PER_PASS)
        try:
            done = self._deliver(due)
        except BaseException:
            self.wheel.give_back(due)
            raise
        if done < len(due):
            self.wheel.give_back(due[done:])
            return now_ms + LOOK_INTERVAL_MS
        if more or len(due) == DELIVER_PER_PASS:
            return now_ms
        next_ms = self.wheel.next_ms()
        latest_ms = now_ms + LOOK_INTERVAL_MS
        return latest_ms if next_ms is None else max(now_ms, min(next_ms, latest_ms))

    # --- reading timers from the queue ---

    def _has_room(self, now_ms: int) -> bool:
        """Return whether more timers may be read into memory: memory has fewer than :data:`READ_AHEAD_MAX` timers, or no timer
        is due.

        While no timer is due, memory has only timers of the current minute. ``delay.timer_minute_max`` limits their number.
        """
        next_ms = self.wheel.next_ms()
        return self.wheel.in_memory < READ_AHEAD_MAX or next_ms is None or next_ms > now_ms

    def _read_on(self) -> bool:
        """Put the next messages of the timer topic's queue into the timer wheel; return whether the queue has more messages to
        read at once."""
        end = self._store.max_queue_offset(TIMER_TOPIC, 0)
        if self._read >= end:
            return False
        start = self._store.min_queue_offset(TIMER_TOPIC, 0)
        if self._read < start:
            _log.error(
                "delivery.gone",
                "timers at queue offsets %(first_offset)d to %(last_offset)d have expired with their log files "
                "[delivery.gone]",
                first_offset=self._read,
                last_offset=start - 1,
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
                    # If the message cannot be stored as a dead letter, the pass ends, and a later pass reads it again.
                    end = queue_offset
                    break
                self.discarded += 1
            elif not self._was_delivered(due_ms, queue_offset):
                entries.append(ENTRY.pack(due_ms, queue_offset, commit_log_offset_bytes, size_bytes))
            queue_offset += 1
        self.wheel.put(entries)
        self._read = queue_offset
        return self._read < end

    def _was_delivered(self, due_ms: int, queue_offset: int) -> bool:
        """Return whether an earlier run of the broker delivered a timer, according to the positions that the earlier run
        saved."""
        return queue_offset < self._seen and (due_ms, queue_offset) < self._done and queue_offset not in self._late

    # --- delivering due timers ---

    def _deliver(self, entries: list[bytes]) -> int:
        """Deliver timers in order, and stop at the first timer whose delivery must be tried again later. Return the number of
        timers before that timer."""
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
        """Store a dead letter for a message that cannot be delivered. Return False if the dead letter cannot be stored now, so
        that the caller must try again later."""
        record = self._record(entry)
        why = "the store refuses it" if message else "no topic it may go to" if record else "it cannot be read"
        return give_up(self._store, record, ENTRY.unpack(entry)[2], why)

    # --- saved positions ---

    def low_queue_offset(self) -> int:
        """Return a queue offset of the timer topic before which all messages are delivered."""
        low = self.wheel.low_queue_offset()
        return self._read if low is None else min(low, self._read)

    def positions(self) -> dict[str, Any]:
        """Return the positions in the timer topic's queue from which another run continues to deliver messages, keyed by name.

        They are the queue offset up to which the queue was read, the queue offset before which all messages are delivered, and
        the delivery time and queue offset up to which due messages are delivered. Messages that are due earlier but not
        delivered are listed by their queue offsets.

        All positions refer to records up to the current end of the log. A slave must not continue from them if its log ends
        earlier.
        """
        if self.is_restoring:
            return self._restored
        done = self._done
        first = self.wheel.first_filed()
        if first is not None:
            # If the clock was set back, the timer wheel's files may contain timers due before the last delivered timer.
            # The saved position must lie before all undelivered timers, so that a restarted broker delivers them.
            done = min(done, first)
        positions: dict[str, Any] = {
            "readQueueOffset": self._read,
            "lowQueueOffset": self.low_queue_offset(),
            "doneDueMs": done[0],
            "doneQueueOffset": done[1],
        }
        late = self.wheel.queue_offsets_before(*done)
        if late:
            positions["lateQueueOffsets"] = sorted(late)
        return positions

    def persist(self) -> bool:
        """Write the positions of delivered timers if they changed and the delivered messages are on disk; return whether the
        file was written.

        Raises StoreError.
        """
        return self._saved.persist(self.positions())

    def runtime_info(self) -> dict[str, str]:
        """Return the figures of the timers that GET_BROKER_RUNTIME_INFO (request code 28) shows. The keys are those of RocketMQ
        5.x."""
        end = self._store.max_queue_offset(TIMER_TOPIC, 0)
        return {
            "timerOffsetBehind": str(max(0, end - self._read)),
            "timerCongestNum": str(len(self.wheel) + max(0, end - self._read)),
        }


def _due_ms(record: Record | None) -> int | None:
    due_ms = number_or(record.properties.get(props.TIMER_OUT_MS), -1, parse_long) if record is not None else -1
    return due_ms if due_ms >= 0 else None
