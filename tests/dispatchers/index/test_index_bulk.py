"""Index entries made in bulk with numpy must be, byte for byte, those the loops make: either may write a store's index."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.record.bulk_texts import index_key_hashes
from flintmq.core.record.java_hash import index_key_hash
from flintmq.dispatchers.index import index_bulk
from flintmq.dispatchers.index.index_file import IndexFile


@given(
    st.lists(
        st.tuples(st.sampled_from(["T", "Topic-%_1", "主题"]), st.text("0123456789ABCDEF", min_size=32, max_size=32))
    )
)
def test_index_hashes_of_unique_keys_computed_in_bulk_equal_hashes_computed_singly(
    pairs: list[tuple[str, str]],
) -> None:
    """A wrong hash hides a message from every query."""
    topics, keys = [topic for topic, _ in pairs], [key for _, key in pairs]
    assert index_key_hashes(topics, keys) == [index_key_hash(topic, key) for topic, key in pairs]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=50))
def test_index_hashes_computed_in_bulk_equal_the_hashes_computed_one_by_one(
    keys: list[str],
) -> None:
    """Keys of other lengths and alphabets take the other way, with the same result."""
    assert index_key_hashes(["T"] * len(keys), keys) == [index_key_hash("T", key) for key in keys]


@pytest.mark.parametrize("seed", range(5))
def test_bulk_and_single_index_appends_write_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Slots, chains, header and entries, over several batches with many collisions and across the end of the file."""
    chance = random.Random(seed)
    entries = [
        (chance.choice([chance.randrange(2**31), chance.randrange(40)]), n * 300, 1_000 + n * 7) for n in range(900)
    ]
    sizes = [chance.randrange(1, 200) for _ in range(20)]
    written = []
    for bulk in (True, False):
        monkeypatch.setattr(index_bulk, "LEAST", 64 if bulk else 1 << 62)
        file = IndexFile(OS_DISK, tmp_path / str(bulk), 50, 800, create=True)
        left = list(entries)
        for size in sizes:
            taken = file.put(left[:size])
            left = left[taken:]
        file.sync()
        file.close()
        written.append((tmp_path / str(bulk)).read_bytes())
    assert written[0] == written[1]
