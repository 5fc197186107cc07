"""The keys of a message in the index, and their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.record.message_keys import index_keys
from flintmq.testing.store import message, opened


@pytest.mark.parametrize(
    ("uniq_key", "keys", "expected"),
    [
        ("U", "b a", ["U", "b", "a"]),
        ("", " a  a ", ["a", "a"]),
        ("U V", "", ["U V"]),
        ("", "", []),
    ],
)
def test_a_record_and_its_dispatch_request_have_the_same_message_keys(
    tmp_path: Path, uniq_key: str, keys: str, expected: list[str]
) -> None:
    """UNIQ_KEY is one key, also with blanks in it. KEYS are words, and nothing between two blanks is no key."""
    with opened(tmp_path) as store:
        store.put([message(uniq_key=uniq_key, keys=keys)])
        record = store.commit_log.record(0)
        (request,) = store.commit_log.requests(0, store.commit_log.max_offset_bytes)
        assert record is not None
        assert index_keys(record) == index_keys(request) == expected
