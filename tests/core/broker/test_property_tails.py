"""The short way to a message's properties must never say anything else than taking them apart: it decides bytes on disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker import property_tails
from flintmq.core.broker.followers import Followers
from flintmq.core.broker.intake import MessageIntake
from flintmq.core.broker.intake_steps import IntakeSteps
from flintmq.core.broker.property_tails import PropertyTails
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.plugins.delay.plugin import DelayStep
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import open_store, snapshot


@attrs.define
class Header:
    """What a send says."""

    properties: str
    topic: str = "Orders"
    queue_id: int = 2
    default_topic: str = "TBW102"
    default_topic_queue_nums: int = 4
    sys_flag: int = 0
    born_timestamp_ms: int = 1_700_000_000_000
    flag: int = 5
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    unit_mode: bool = False


@attrs.frozen
class Client:
    packed_host: bytes = b"\x7f\0\0\x01\0\0\x2a\x9f"
    remote_address: str = "127.0.0.1:10911"


def an_intake() -> MessageIntake:
    config = BrokerConfig()
    state: Any = SimpleNamespace(
        config=config,
        topics=SimpleNamespace(
            forbidden_topics=frozenset(),
            select=lambda topic: TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4),
            create_in_send_back=lambda topic, queues: None,
            queue_inside=lambda topic, queue_id: queue_id,
        ),
        store_host=b"\x7f\0\0\x01\0\0\x2a\x9f",
        followers=Followers(),
    )
    api: Any = SimpleNamespace(settings=SimpleNamespace(current=config), topics=state.topics)
    return MessageIntake(state, IntakeSteps([DelayStep(api)]))


def put(intake: MessageIntake, text: str) -> MessageExtBrokerInner:
    return intake.single(Header(text), b"body", Client(), 395)


NAMES = st.sampled_from(
    ["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "CLUSTER", "DELAY", "TRAN_MSG", "PGROUP", "TIMER_DELAY_MS", "a", "KEY", ""]
)
VALUES = st.sampled_from(
    ["", "true", "false", "AC11000112", "k1 k2", "TagA", "ü", "\0", "x\x01y", "3", "UNIQ_KEY", "WAIT"]
)
ENTRIES = st.lists(st.tuples(NAMES, VALUES), max_size=6).map(
    # Other delays are refused, and a transaction is refused without the plugin.
    lambda entries: [one for one in entries if (one[0] != "DELAY" or one[1] == "3") and one != ("TRAN_MSG", "true")]
)


def as_text(entries: list[tuple[str, str]], last: str) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in entries) + last


@given(ENTRIES, st.sampled_from(["", "\x02", "\x02\x02", "\x02odd"]))
@example([("UNIQ_KEY", "AC11"), ("WAIT", "true"), ("TAGS", "TagA")], "")
@example([("KEYS", "a b"), ("UNIQ_KEY", "AC11"), ("WAIT", "false"), ("TAGS", "TagA")], "\x02")
@example([("UNIQ_KEY", "AC11")], "")
def test_parsing_a_property_string_with_a_cached_suffix_gives_the_same_properties_as_full_parsing(
    entries: list[tuple[str, str]], last: str
) -> None:
    text = as_text(entries, last)
    intake = an_intake()
    taken_apart = put(intake, text)  # nothing is known yet
    assert taken_apart.about is None
    again = put(intake, text)

    assert again.properties_bytes == taken_apart.properties_bytes
    assert (again.topic, again.queue_id, again.wait) == (taken_apart.topic, taken_apart.queue_id, taken_apart.wait)
    if again.about is None:
        assert again == taken_apart
        return
    properties = taken_apart.properties
    assert again.about == (taken_apart.tags_code, properties.get("KEYS", ""), properties.get("UNIQ_KEY", ""))
    assert b"\0" not in again.properties_bytes
    assert {**again.properties} == {name: value for name, value in properties.items() if name != "WAIT"}


@pytest.mark.parametrize(
    "first",
    [[("UNIQ_KEY", "AC11")], [("KEYS", "order-1"), ("UNIQ_KEY", "AC11")], [("KEYS", "ordër"), ("UNIQ_KEY", "AC11")]],
    ids=["uniq key", "keys and uniq key", "not ascii"],
)
def test_message_keys_are_never_taken_from_the_cached_properties_of_another_message(
    first: list[tuple[str, str]],
) -> None:
    """Otherwise the second order would be indexed under the key of the first."""
    tail = [("WAIT", "true"), ("TAGS", "TagA")]
    intake = an_intake()
    put(intake, as_text([("UNIQ_KEY", "0000"), *tail], ""))
    text = as_text([*first, *tail], "")
    assert put(intake, text).properties_bytes == put(an_intake(), text).properties_bytes


def test_the_cached_suffix_of_properties_is_used_for_messages_that_differ_only_in_the_unique_key() -> None:
    """The cache is worth its memory only if it works for the usual messages of clients."""
    intake = an_intake()
    for key in ("A1", "A2", "A3"):
        message = put(intake, as_text([("KEYS", "k"), ("UNIQ_KEY", key), ("WAIT", "true"), ("TAGS", "T")], ""))
    assert message.about == (tags_hash("T"), "k", "A3")


class TestWhatStrangersCanMakeItRemember:
    def tails(self) -> tuple[PropertyTails, list[str]]:
        learnt: list[str] = []

        def stored(text: str, _properties: dict[str, str]) -> str:
            learnt.append(text)
            return text

        return PropertyTails(stored, IntakeSteps()), learnt

    def test_the_number_of_cached_suffixes_of_property_strings_is_bounded(self) -> None:
        tails, learnt = self.tails()
        for number in range(property_tails.TAILS_MAX * 10):
            tails.look_up(f"UNIQ_KEY\x01a\x02x\x01{number}")
        assert len(tails) <= property_tails.TAILS_MAX
        assert len(learnt) > property_tails.TAILS_MAX, "then a newcomer was remembered, too"

    def test_the_properties_after_the_unique_key_are_not_cached_if_their_text_is_too_long(self) -> None:
        tails, _ = self.tails()
        text = f"UNIQ_KEY\x01a\x02x\x01{'v' * property_tails.TAIL_MAX_CHARACTERS}"
        assert tails.look_up(text) is None
        assert tails.look_up(text) is None
        assert len(tails) == 0

    def test_few_message_properties_are_added_to_the_cache_if_their_values_never_repeat(self) -> None:
        tails, learnt = self.tails()
        for number in range(1_000):
            tails.look_up(f"UNIQ_KEY\x01a\x02x\x01{number}")
        assert len(learnt) < 200


def test_the_fast_append_loop_writes_the_same_log_bytes_as_the_general_append_loop(tmp_path: Path) -> None:
    """One loop for nearly all messages, another for the rest: what lies in the log is the same, and what dispatchers are handed
    is what they would read there.

    The file is too small for all of them, so that the plain way ends in its middle.
    """
    intake = an_intake()
    texts = [
        as_text([("KEYS", f"order-{number}"), ("UNIQ_KEY", f"AC{number:030}"), ("WAIT", "true"), ("TAGS", "TagA")], "")
        for number in range(40)
    ]
    put(intake, texts[0])
    plain = [put(intake, text) for text in texts]
    assert all(message.about for message in plain)
    taken_apart = [put(an_intake(), text) for text in texts]
    logs = []
    for name, messages in (("plain", plain), ("taken apart", taken_apart)):
        store = open_store(tmp_path / name, commit_log_file_bytes=4096, clock=ManualClock(1_700_000_000_000))
        try:
            results = store.put(messages).results
            assert name != "plain" or results == list(store.commit_log.requests(0, store.commit_log.max_offset_bytes))
        finally:
            store.close()
        logs.append(snapshot(tmp_path / name, "commitlog"))
    assert logs[0] == logs[1]
    assert len(logs[0]) > 1
