"""Whatever is acknowledged, by whichever way in, can be read by every reader of the format and lies at its real topic when it
is due. Sizes and names are drawn around all limits there are."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import attrs
import pytest
from bare_wire import Sent, Wire, settings
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import flintmq
from flintmq.core.errors import RefusedError
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.record.properties import properties_to_string
from flintmq.remoting.wire.codes import RequestCode
from flintmq.testing.clock import ManualClock
from flintmq.tests.support.effort import examples
from flintmq.tests.support.strict_reader import StrictRecord, strict_log

FILE_BYTES = 131_072
LIMIT_BYTES = 32_767
NAME_MAX = 127
PASSED_MS = 20_000
"""Longer than any delay that is asked for here."""


@attrs.frozen
class Attempt:
    """A message, and how it goes in."""

    way: str
    name_length: int
    """Length of the topic's name, or of the group's name if the message is sent back."""
    spare_bytes: int
    """What its properties leave of what they may have."""
    file_spare_bytes: int | None
    """What its record leaves of a commit log file; None for a small body."""
    character: str
    delay: str


ATTEMPTS = st.builds(
    Attempt,
    st.sampled_from(["send", "batch", "send back", "dead letter", "transaction", "in process", "own retry"]),
    st.sampled_from([1, 20, 119, 120, 121, 122, 123, 126, 127, 128, 200, 255]),
    st.one_of(st.integers(-30, 400), st.just(32_000)),
    st.one_of(st.none(), st.none(), st.integers(-20, 400)),
    st.sampled_from(["x", "é", "語", "\ud800"]),
    st.sampled_from(["", "DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"]),
)


class World:
    """A broker whose time is moved by hand, with topics and groups of any name in its tables."""

    def __init__(self, broker: flintmq.Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.wire = Wire(broker.address)
        self._numbers = itertools.count()
        self.log_begin = 0

    def do(self, attempt: Attempt) -> list[tuple[str, bytes]]:
        """Tries to put the message; returns real topic and body of what was acknowledged."""
        name = "n" * attempt.name_length
        topic = f"%RETRY%{name}" if attempt.way == "own retry" else name
        if len(topic) > NAME_MAX:
            self._make_topic(topic)  # by an earlier FlintMQ, or by hand
        properties = self._properties(attempt)
        body = self._body(attempt, topic, properties)
        match attempt.way:
            case "send" | "own retry":
                acknowledged = self.wire.send(topic, body, properties=properties).code == 0
            case "batch":
                items = [BatchItem(0, body, properties.encode()), BatchItem(0, body + b"2", b"UNIQ_KEY\x01B")]
                shared = "TRACE_ON\x01true"
                acknowledged = self.wire.send(topic, encode_batch(items), properties=shared, batch=True).code == 0
                return [(topic, item.body) for item in items] if acknowledged else []
            case "send back" | "dead letter":
                return self._send_back(name, body, properties, -1 if attempt.way == "dead letter" else 1)
            case "transaction":
                acknowledged = self._transaction(topic, body, properties)
            case _:
                acknowledged = self._in_process(topic, body, properties)
        return [(topic, body)] if acknowledged else []

    def pass_time(self) -> None:
        """Lets all delays pass, and delivers."""
        self.clock.advance_ms(PASSED_MS)

        async def run() -> None:
            for _ in range(2):
                for name in ("delayed messages", "timers"):
                    self.broker.timers.run_now(name)

        self.broker.call(run)

    def read(self) -> list[StrictRecord]:
        """What was stored since the last look, read as RocketMQ reads it."""

        async def raw() -> list[tuple[int, bytes]]:
            files = self.broker.state.store.commit_log.queue.files
            return [(file.start, bytes(file.view)) for file in files if file.start + file.size > self.log_begin]

        found = [record for start, part in self.broker.call(raw) for record in strict_log(part, start)]
        begin, self.log_begin = self.log_begin, max((one.physical_offset_bytes for one in found), default=0)
        return [record for record in found if record.physical_offset_bytes >= begin]

    def _properties(self, attempt: Attempt) -> str:
        named = {"UNIQ_KEY": f"U{next(self._numbers)}", "WAIT": "true"}
        if attempt.delay == "DELAY":
            named["DELAY"] = "2"
        elif attempt.delay:
            due_ms = 3_000 + (self.clock.now_ms() if attempt.delay == "TIMER_DELIVER_MS" else 0)
            named[attempt.delay] = str(due_ms)
        if attempt.way == "transaction":
            named |= {"TRAN_MSG": "true", "PGROUP": "p"}
        text = properties_to_string(named)
        # A batch has no form for more; what all its messages share comes on top.
        spare_bytes = max(0, attempt.spare_bytes) if attempt.way == "batch" else attempt.spare_bytes
        room = LIMIT_BYTES - spare_bytes - len(text) - len("\x02PAD\x01")
        # Half a character comes from this process only: clients cannot say it.
        character = attempt.character if attempt.way == "in process" or attempt.character.isprintable() else "x"
        width = len(character.encode("utf-8", "surrogatepass"))
        padding = character * max(0, room // width) + "." * (room % width if room > 0 else 0)
        return f"{text}\x02PAD\x01{padding}"

    def _body(self, attempt: Attempt, topic: str, properties: str) -> bytes:
        marker = b"%06d" % next(self._numbers)
        if attempt.file_spare_bytes is None:
            return marker
        taken = 91 + len(topic) + len(properties.encode("utf-8", "surrogatepass")) + attempt.file_spare_bytes
        return marker.ljust(FILE_BYTES - taken, b"b")

    def _make_topic(self, topic: str) -> None:
        async def make() -> None:
            self.broker.state.topics.create_in_send_back(topic, 4)

        self.broker.call(make)

    def _send_back(self, group: str, body: bytes, properties: str, delay_level: int) -> list[tuple[str, bytes]]:
        sent = self.wire.send("Origin", body, properties=properties)
        if sent.code != 0:
            return []
        acknowledged = [("Origin", body)]
        self.pass_time()
        header = {"group": group, "delayLevel": delay_level, "originTopic": "Origin", "unitMode": "false"}
        place = int(sent.message_id[16:], 16)
        answer = self.wire.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header | {"offset": place})
        if answer.code == 0:
            return [*acknowledged, (("%DLQ%" if delay_level < 0 else "%RETRY%") + group, body)]
        assert answer.code == 1
        return acknowledged

    def _transaction(self, topic: str, body: bytes, properties: str) -> bool:
        sent: Sent = self.wire.send(topic, body, properties=properties)
        if sent.code != 0:
            return False
        end = {
            "producerGroup": "p",
            "tranStateTableOffset": sent.queue_offset,
            "commitLogOffset": int(sent.message_id[16:], 16),
            "commitOrRollback": 8,
            "msgId": "",
            "fromTransactionCheck": "false",
        }
        answer = self.wire.ask(RequestCode.END_TRANSACTION, end)
        assert answer.code == 0, f"a half message that was acknowledged could not be committed: {answer.remark}"
        return True

    def _in_process(self, topic: str, body: bytes, properties: str) -> bool:
        @attrs.frozen
        class Raw:
            topic: str
            body: bytes
            text: str
            flag: int = 0

            def wire_text(self, uniq_key: str) -> str:
                return self.text

        try:
            self.broker.put([Raw(topic, body, properties)])
        except RefusedError:
            return False
        return True


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    clock = ManualClock()
    overrides = ("flush.strategy=flush_real_time", f"store.commit_log_file_bytes={FILE_BYTES}")
    with flintmq.Broker(settings(tmp_path_factory.mktemp("broker"), *overrides), clock=clock) as broker:
        made = World(broker, clock)
        yield made
        made.wire.close()


@given(ATTEMPTS)
@hypothesis_settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(Attempt("send back", 20, 140, None, "x", ""))
@example(Attempt("send back", 121, 32_000, None, "x", ""))
@example(Attempt("send back", 255, 32_000, None, "x", ""))
@example(Attempt("send", 128, 32_000, None, "x", "DELAY"))
@example(Attempt("own retry", 121, 32_000, None, "x", "TIMER_DELAY_MS"))
@example(Attempt("transaction", 200, 32_000, None, "x", ""))
@example(Attempt("send", 127, 32_000, 20, "x", "DELAY"))
@example(Attempt("in process", 20, 200, None, "\ud800", "DELAY"))
def test_every_acknowledged_message_is_readable_and_delivered(
    world: World, caplog: pytest.LogCaptureFixture, attempt: Attempt
) -> None:
    """A producer learns of a refusal, but nobody learns of a message that is dropped later."""
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        acknowledged = world.do(attempt)
        world.pass_time()
    found = {(record.topic, record.body) for record in world.read()}
    assert [one[0] for one in acknowledged if one not in found] == []
    assert [line for line in caplog.messages if "[delivery." in line] == []
