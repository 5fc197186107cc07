"""A value of the wrong type in a body or a file must be named: the operator has to find it among thousands."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from flintmq.core.errors import JsonTypeError, StoreFormatError
from flintmq.core.io.typed_json import Int, Long, of_file, read_as


class Queue(msgspec.Struct, rename="camel"):
    """A part of a body."""

    queue_id: Int = 0
    offset: Long = 0


class Body(msgspec.Struct, rename="camel"):
    """A body with a member of every kind."""

    queues: list[Queue] = []
    by_name: dict[str, Queue] = {}
    is_open: bool = False
    mode: Literal["PULL", "PUSH"] = "PULL"
    name: str = ""


def test_json_numbers_and_booleans_written_as_strings_are_accepted_as_in_fastjson() -> None:
    """Numbers and booleans as texts, null for what is missing, members that nobody knows."""
    found = read_as({"queues": [{"queueId": "7", "offset": None}], "isOpen": "true", "name": None, "other": [1]}, Body)
    assert found == Body(queues=[Queue(7)], is_open=True)


@pytest.mark.parametrize(
    ("value", "field", "wanted"),
    [
        ({"queues": [{"queueId": 1}, {"queueId": 2**31}]}, "queues.1.queueId", "an int"),
        ({"byName": {"a": {"offset": 2**63}}}, "byName.a.offset", "a long"),
        ({"byName": {"a": {"offset": 1.5}}}, "byName.a.offset", "a long"),
        ({"isOpen": "perhaps"}, "isOpen", "a boolean"),
        ({"mode": "SHOVE"}, "mode", "one of PULL, PUSH"),
        ({"queues": {}}, "queues", "a list"),
        ({"byName": 3}, "byName", "an object"),
        ({"name": []}, "name", "a string"),
        ([], "the value", "an object"),
    ],
)
def test_a_json_type_error_contains_the_path_of_the_field_and_its_value_and_the_expected_type(
    value: object, field: str, wanted: str
) -> None:
    """The path to it, what stands there, and what should."""
    with pytest.raises(JsonTypeError) as found:
        read_as(value, Body)
    assert found.value.args[0].startswith(f"{field} is ")
    assert f"must be {wanted}" in found.value.args[0]


def test_a_long_value_is_shortened_in_the_text_of_a_json_type_error() -> None:
    """A body of a megabyte must not come back in the answer."""
    with pytest.raises(JsonTypeError) as found:
        read_as({"name": ["x" * 10_000]}, Body)
    assert len(found.value.args[0]) < 200


def test_a_type_error_in_a_file_names_the_file() -> None:
    """Five tables are read at a start."""
    with (
        pytest.raises(StoreFormatError, match=r"/store/topics\.json: queueId is 'x'"),
        of_file(Path("/store/topics.json")),
    ):
        read_as({"queueId": "x"}, Queue)
