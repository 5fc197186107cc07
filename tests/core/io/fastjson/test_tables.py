"""Tables of many names are written by another encoder than the rest: what comes out must not differ by a byte."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.io import fastjson
from flintmq.core.io.config_manager import DataVersion

HEAD = {"dataVersion": DataVersion(counter=7, timestamp_ms=1_700_000_000_000)}
NAMES = st.text(st.characters(codec="utf-8"), max_size=12) | st.text('": \\,{}\n\t', max_size=12)


def _check(rows: dict[str, Any]) -> None:
    whole = {**msgspec.to_builtins(HEAD), "table": msgspec.to_builtins(rows)}
    assert b"".join(fastjson.table_pieces(HEAD, "table", rows.items())).decode() == fastjson.dumps(whole)
    assert b"".join(fastjson.pretty_table_pieces(HEAD, "table", rows.items())).decode() == fastjson.dumps_pretty(whole)


@given(st.dictionaries(NAMES, st.builds(TopicConfig, topic_name=NAMES, order=st.booleans()), max_size=5))
def test_encoding_a_table_as_json_in_chunks_gives_the_same_json_as_encoding_it_in_one_call(
    rows: dict[str, TopicConfig],
) -> None:
    """Names of old files, and of files that somebody has edited, may hold anything."""
    _check(rows)


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1700])
def test_the_concatenated_json_chunks_of_a_table_are_valid_json_for_any_number_of_rows(count: int) -> None:
    """No comma is missing or too many where one piece ends."""
    _check({f"g{number}": SubscriptionGroupConfig(group_name=f"g{number}") for number in range(count)})


def test_a_name_with_a_lone_surrogate_is_written_with_a_question_mark() -> None:
    """A file that was written by hand may hold such a name."""
    rows = {"a\ud800": TopicConfig(topic_name="a\ud800")}
    for pieces in (fastjson.table_pieces, fastjson.pretty_table_pieces):
        assert fastjson.loads(b"".join(pieces(HEAD, "table", rows.items())))["table"]["a?"]["topicName"] == "a?"
