"""The promise of timers and delay levels, against a model: each acknowledged message is delivered once, or more after a crash
or a clock set back, never none. Stops, kills, power cuts, minutes that roll, clocks that jump, positions at any moment."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from flintmq.core.broker.redirected_message import RedirectedMessageStore
from flintmq.core.broker.sink import MessageSink
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.recovery.repair import LOST_TOPIC
from flintmq.dispatchers.consume_queue.delay_times import DelayLevels
from flintmq.plugins.delay import schedule
from flintmq.plugins.delay.plugin import redirect_to_schedule
from flintmq.plugins.delay.schedule import ScheduleMessageService
from flintmq.plugins.timer import timer_service, timer_wheel
from flintmq.plugins.timer.timer_message import TimerRedirect
from flintmq.plugins.timer.timer_service import TimerMessageService, TimerPositions
from flintmq.plugins.timer.timer_wheel import TimerWheel
from flintmq.testing.clock import ManualClock
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.store import BY_HAND, message, start_store
from flintmq.tests.support.crash_check import UndetectableError, is_torn_copy
from flintmq.tests.support.crash_run import CONFIG, stepped
from flintmq.tests.support.crash_states import KINDS, CrashPoint
from flintmq.tests.support.log_parts import view_of

STEPS: Final = (
    *("send", "pass_time", "flush", "persist", "restart"),
    *("kill", "power_cut", "clock_goes_back", "lose_a_minute"),
)
WEIGHTS: Final = (8, 20, 4, 8, 5, 1, 2, 0.5, 0.5)
DELAY_OFFSETS = Path("/store/config/delayOffset.json")
POSITIONS = Path("/store/flint/timer/position.json")


class TimerRun:
    """Timers of a store whose disk can lose what was not synced, driven by a script of random steps."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.choose = random.Random(seed)
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        self.folder = folder
        self.sent = itertools.count()
        self.due_ms: dict[bytes, int] = {}
        self.ends: dict[bytes, int] = {}
        """Where each timer's record ends in the log."""
        self.once: set[bytes] = set()
        """Delivered before positions were written that stand for it: must not come again."""
        self.exact = True
        """Whether nothing has happened yet after which a timer may come twice."""
        self._open()

    def run(self, steps: int) -> None:
        """Takes steps, then lets all time pass, and looks."""
        for _ in range(steps):
            getattr(self, self.choose.choices(STEPS, self.weights)[0])()
        self.clock.set_wall_clock(max([self.clock.now_ms(), *self.due_ms.values()]) + 1)
        self._run_until_idle()
        assert self._delivered().keys() == self.due_ms.keys(), "a timer is lost"
        self.look()

    def _open(self) -> None:
        self.store = start_store(stepped(CONFIG, BY_HAND, disk=self.disk, clock=self.clock))
        stats = BrokerStats(self.clock)
        sink = MessageSink(self.store, stats, self.store.dispatch)
        self._begin(RedirectedMessageStore(view_of(self.store), stats, sink.append))

    # what is delivered later: timers here

    waits_in = TIMER_TOPIC
    stride_ms = 200
    weights: tuple[float, ...] = WEIGHTS

    def _begin(self, adapter: RedirectedMessageStore) -> None:
        saved = TimerPositions(adapter, JsonFile(POSITIONS, self.disk))
        self.timers = TimerMessageService(adapter, TimerWheel(self.folder), saved)
        self.timers.load()
        self.redirect = TimerRedirect(self.clock, lambda: (10**9, ""), lambda _due_ms: True)

    def _one(self) -> MessageExtBrokerInner:
        delay_ms = self.choose.randrange(1, 400)
        made = message("T", 0, b"%d" % next(self.sent), TIMER_DELAY_MS=str(delay_ms))
        assert self.redirect(made)
        self.due_ms[made.body] = self.clock.now_ms() + delay_ms
        return made

    def _pass(self) -> int:
        return self.timers.run(self.clock.now_ms())

    def _persist(self) -> None:
        self.timers.persist()

    @property
    def _knows_all(self) -> bool:
        return not self.timers.is_restoring

    # looks

    def _dispatch(self) -> None:
        while self.store.dispatch():
            pass

    def _run_until_idle(self) -> None:
        for _ in range(10 * len(self.due_ms) + 10):
            more = self._pass() <= self.clock.now_ms()
            self._dispatch()
            if not more and self._knows_all:
                return
        raise AssertionError("deliveries find no rest")

    def _delivered(self) -> Counter[bytes]:
        queue = self.store.consume_queues.find("T", 0)
        found: Counter[bytes] = Counter()
        for at in range(queue.max_queue_offset if queue is not None else 0):
            unit = queue.unit(at) if queue is not None else None
            record = self.store.commit_log.record(unit[0], unit[1]) if unit is not None else None
            if record is None:
                continue  # a power cut has taken it, and a filler stands for it
            assert record.store_timestamp_ms >= self.due_ms.get(record.body, 0), "never early"
            found[record.body] += 1
        return found

    # steps

    def send(self) -> None:
        made = [self._one() for _ in range(self.choose.randrange(1, 9))]
        for one, request in zip(made, self.store.put(list(made)).records, strict=True):
            self.ends[one.body] = request.commit_log_offset_bytes + request.message_size_bytes
        self._dispatch()

    def pass_time(self) -> None:
        self.clock.advance_ms(self.choose.randrange(self.stride_ms))
        for _ in range(self.choose.randrange(12)):
            self._pass()
        self._dispatch()

    def clock_goes_back(self) -> None:
        self.clock.set_wall_clock(self.clock.now_ms() - self.choose.randrange(300))
        self.exact = False
        self.once.clear()

    def flush(self) -> None:
        before = -1
        while before < self.store.commit_log.flushed_offset_bytes:
            before = self.store.commit_log.flushed_offset_bytes
            self.store.commit_log.flush(0)

    def persist(self) -> None:
        self._persist()
        marks = self.store.watermarks
        if marks.flushed == marks.wrote and self._knows_all:
            self.once = set(self._delivered()) if self.exact else set()

    def lose_a_minute(self) -> None:
        """Somebody deletes, or cuts, a file of the wheel: it is scratch."""
        files = sorted(self.folder.iterdir())
        if files:
            file = self.choose.choice(files)
            if self.choose.random() < 0.5:
                file.unlink()
            else:
                file.write_bytes(file.read_bytes()[:-1])

    def restart(self) -> None:
        self.flush()
        self._persist()
        self.store.close()
        self._open()
        self.look()

    def kill(self) -> None:
        self.disk = SimulatedDisk(CrashPoint(self.disk).advance(len(self.disk.journal)).killed(), boot=self.disk.boot)
        self._open()
        self.exact = False

    def power_cut(self) -> None:
        flushed = self.store.watermarks.flushed
        left = CrashPoint(self.disk).advance(len(self.disk.journal)).power_cut(self.choose.choice(KINDS), self.choose)
        self.disk = SimulatedDisk(left, boot=f"{self.disk.boot}+")
        put = self.store.commit_log
        self._open()
        self._expect_records_of(put, flushed)
        self.exact = False
        waiting = self._waiting()
        for body in [body for body, end in self.ends.items() if end > flushed and body not in waiting]:
            del self.due_ms[body], self.ends[body]
        self.due_ms |= dict.fromkeys(self._delivered().keys() - self.due_ms.keys(), 0)
        self.once &= self.due_ms.keys()

    def _expect_records_of(self, put: CommitLog, flushed_offset_bytes: int) -> None:
        """Compare what a power cut has left with what was put. Raises UndetectableError where a head is torn."""
        log = self.store.commit_log
        for request in log.requests(log.min_offset_bytes, log.max_offset_bytes):
            place = (request.commit_log_offset_bytes, request.message_size_bytes)
            left, was = log.slice(*place), put.slice(*place)
            if left != was and request.topic != LOST_TOPIC:
                assert place[0] >= flushed_offset_bytes, "what was synced is unchanged"
                assert left is not None
                assert was is not None
                assert is_torn_copy(bytes(left), bytes(was)), "the log holds what was put"
                raise UndetectableError(f"{place[0]}: the record's head has no checksum")

    def _waiting(self) -> set[bytes]:
        """The timers that the log still holds."""
        log = self.store.commit_log
        found = set()
        for request in log.requests(log.min_offset_bytes, log.max_offset_bytes):
            if request.topic == self.waits_in:
                record = log.record(request.commit_log_offset_bytes, request.message_size_bytes)
                assert record is not None
                found.add(record.body)
        return found

    def look(self) -> None:
        twice = {body for body, count in self._delivered().items() if count > 1}
        assert not twice & self.once, "what positions stood for comes again"
        assert not (twice and self.exact), "a timer comes twice, and nothing has gone wrong"


class DelayLevelRun(TimerRun):
    """The same of messages with a delay level."""

    waits_in = SCHEDULE_TOPIC
    stride_ms = 3_000
    weights = (*WEIGHTS[:-2], 0, 0)

    def _begin(self, adapter: RedirectedMessageStore) -> None:
        self.levels = DelayLevels()
        self.schedule = ScheduleMessageService(adapter, self.levels, JsonFile(DELAY_OFFSETS, self.disk))
        self.schedule.load()

    def _one(self) -> MessageExtBrokerInner:
        level = self.choose.randrange(1, 4)
        made = message("T", 0, b"%d" % next(self.sent), DELAY=str(level))
        assert redirect_to_schedule(made, self.levels)
        self.due_ms[made.body] = self.clock.now_ms() + self.levels.delay_ms(level)
        return made

    def _pass(self) -> int:
        return self.schedule.run_due(self.clock.now_ms())

    def _persist(self) -> None:
        self.schedule.persist()

    @property
    def _knows_all(self) -> bool:
        return True


@pytest.mark.parametrize("driven", [TimerRun, DelayLevelRun])
@pytest.mark.timeout(900)
def test_no_delayed_message_is_lost_by_random_stops_or_crashes_or_clock_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, driven: type[TimerRun], effort: Callable[[int, int], int]
) -> None:
    """With passes of a few messages and minutes of 50 ms, so that every border is met."""
    monkeypatch.setattr(timer_service, "READ_PER_PASS", 3)
    monkeypatch.setattr(timer_service, "DELIVER_PER_PASS", 2)
    monkeypatch.setattr(timer_service, "READ_AHEAD_MAX", 5)
    monkeypatch.setattr(timer_wheel, "LOAD_BELOW", 3)
    monkeypatch.setattr(timer_wheel, "SLOT_MS", 50)
    monkeypatch.setattr(schedule, "UNITS_PER_PASS", 2)
    undetectable, runs = 0, effort(40, 200)
    for seed in range(runs):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            driven(seed, folder).run(40)
        except UndetectableError:
            undetectable += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert undetectable <= runs // 50
