"""Whatever happens in whatever order, crashes included: a message is delivered once if its commit came first, else never."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flintmq.config.rocketmq.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from flintmq.core.errors import RefusedError
from flintmq.core.record.record import Record
from flintmq.tests.support.effort import examples
from flintmq.tests.support.transactions import COMMIT, ROLLBACK, TransactionBench


@attrs.define
class Ended:
    """What was accepted."""

    decision: int
    in_log_from: int
    """The end of the first record it wrote: a crash before that undoes it."""


class Transactions(RuleBasedStateMachine):
    """Sends, ends at any half message of a transaction, time, rounds, restarts, crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = TransactionBench(check_interval_ms=2000, timeout_ms=1000, check_max=2)
        self.count = 0
        self.ended: dict[str, Ended] = {}
        self.saved: list[tuple[int, tuple[int, int]]] = [(0, (-1, -1))]
        """Positions that may be in the file after a crash, with the log's end that was on disk then."""

    @property
    def store(self) -> Any:
        return self.bench.store

    def places(self) -> dict[str, list[Record]]:
        """Every half message that there is, by transaction."""
        found: dict[str, list[Record]] = defaultdict(list)
        for record in self.bench.halves:
            found[record.properties["UNIQ_KEY"]].append(record)
        return found

    def note_saved(self) -> None:
        if self.store.saved != self.saved[-1][1]:
            self.saved.append((self.store.flushed_offset_bytes, self.store.saved))

    @rule(immune=st.booleans())
    def send(self, immune: bool) -> None:
        more = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "5"} if immune else {}
        self.bench.send(f"tx{self.count}", **more)
        self.count += 1

    @precondition(lambda self: self.bench.halves)
    @rule(data=st.data(), decision=st.sampled_from([COMMIT, COMMIT, ROLLBACK, 0]))
    def end(self, data: Any, decision: int) -> None:
        places = self.places()
        key = data.draw(st.sampled_from(sorted(places)))
        place = data.draw(st.sampled_from(places[key]))
        before = len(self.store.log)
        refused = None
        try:
            self.bench.end(place, decision)
        except RefusedError as error:
            refused = error
        if refused is not None:
            assert refused.reason == "transaction.ended"
            assert key in self.ended, f"{key} is open and cannot be ended at {place.queue_offset}"
            return
        if decision:
            assert key not in self.ended, f"{key} ended twice"
            first = self.store.log[before]
            self.ended[key] = Ended(decision, first.commit_log_offset_bytes + first.size_bytes)
        self.bench.run()
        self.note_saved()

    @rule()
    def check(self) -> None:
        for _, header, _ in self.bench.round():
            assert header["msgId"] not in self.ended
        self.note_saved()

    @rule(ms=st.integers(1, 3000))
    def time(self, ms: int) -> None:
        self.bench.clock.advance_ms(ms)

    @rule()
    def stop_and_start(self) -> None:
        self.store.flushed = None
        self.bench.service.save()
        self.note_saved()
        self.bench.restart()

    @rule()
    def stop_flushing(self) -> None:
        self.store.flushed = self.store.flushed_offset_bytes

    @rule()
    def flush(self) -> None:
        self.store.flushed = None
        self.bench.run()
        self.note_saved()

    @rule(data=st.data())
    def crash(self, data: Any) -> None:
        log = self.store.log
        on_disk = sum(r.commit_log_offset_bytes + r.size_bytes <= self.store.flushed_offset_bytes for r in log)
        self.store.cut(data.draw(st.integers(on_disk, len(log)), label="records kept"))
        self.store.flushed = None
        end = self.store.wrote_offset_bytes
        self.saved = self.saved[: data.draw(st.integers(1, len(self.saved)), label="positions kept")]
        self.store.saved = self.saved[-1][1]
        self.ended = {key: ended for key, ended in self.ended.items() if ended.in_log_from <= end}
        self.bench.restart()

    @invariant()
    def delivered_once_iff_committed(self) -> None:
        delivered = sorted(record.properties["UNIQ_KEY"] for record in self.bench.delivered)
        assert delivered == sorted(key for key, ended in self.ended.items() if ended.decision == COMMIT)

    @invariant()
    def positions_are_in_the_queues(self) -> None:
        half, op = self.bench.positions
        assert 0 <= half <= self.store.max_queue_offset(TRANS_HALF_TOPIC)
        assert op >= 0

    def teardown(self) -> None:
        """Nothing is forgotten: all that is open is asked about, or was given up, and can still be ended."""
        self.store.flushed = None
        self.bench.configure(check_max=1000)
        self.bench.clock.advance_ms(10_000)
        asked = {header["msgId"]: int(header["tranStateTableOffset"]) for _, header, _ in self.bench.round()}
        given_up = {r.properties["UNIQ_KEY"] for r in self.store.queues[TRANS_CHECK_MAX_TIME_TOPIC, 0]}
        for key, places in self.places().items():
            if key in self.ended:
                assert key not in asked
                continue
            assert key in asked or key in given_up, f"{key} is lost"
            self.bench.end(self.bench.halves[asked[key]] if key in asked else places[-1])
            self.ended[key] = Ended(COMMIT, 0)
        self.delivered_once_iff_committed()
        assert not self.bench.round()


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
