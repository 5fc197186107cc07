"""The walk finds each record once, in whatever else lies around, and nothing that only looks like one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.record import bulk_scan
from flintmq.core.record.record import encode_blank
from flintmq.plugins.spark.decoder import chain
from flintmq.tests.support.effort import examples
from flintmq.tests.support.records import RecordFields, encode_all


def walked(log: bytes, start: int = 0) -> tuple[list[int], int, str]:
    found = chain.walk(np.frombuffer(log, np.uint8), start, len(log))
    return found.starts.tolist(), found.end, found.why


@pytest.mark.parametrize("rows", [3, bulk_scan.ROWS_MAX])
@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.binary(max_size=200) | st.just(b"forged"), max_size=30), st.integers(0, 4))
def test_a_commit_log_scan_finds_every_record_and_ignores_a_record_forged_in_a_message_body(
    rows: int, bodies: list[bytes], tail: int
) -> None:
    """A producer can put a whole record, with the right position in it, into a body."""
    log = bytearray()
    starts = []
    for body in bodies:
        starts.append(len(log))
        if body == b"forged":
            body = RecordFields(body=b"not a message").encode(len(log) + 88)
        log += RecordFields(body=body).encode(len(log))
    end = len(log)
    rest, why = [
        (b"", "end"),
        (bytes(500), "zero"),
        (encode_blank(300) + b"\xda" * 292, "blank"),
        (b"\xda\xa3\x20\xa7" * 30, "bad"),
        (RecordFields().encode(0)[:-1], "bad"),
    ][tail]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_scan, "ROWS_MAX", rows)
        assert walked(bytes(log + rest)) == (starts, end, why)


@pytest.mark.parametrize("size", range(8, 92))
def test_the_scan_of_a_log_file_ends_at_a_blank_record_of_any_size(size: int) -> None:
    """The blank tail can be 8 bytes long: nothing may be read behind it."""
    log, starts = encode_all([RecordFields()] * 2)
    assert walked(log + encode_blank(size) + bytes(size - 8)) == (starts, len(log), "blank")


def test_a_commit_log_scan_that_starts_at_any_record_finds_all_later_records() -> None:
    """The log is longer than the parts in which it is searched, so the seams between them are tested."""
    random_bodies = random.Random(7)
    log, starts = encode_all([RecordFields(body=random_bodies.randbytes(50) + b"\xda\xa3\x20\xa7")] * 5_000)
    assert walked(log)[0] == starts
    assert walked(log, starts[4_321])[0] == starts[4_321:]
