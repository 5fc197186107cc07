"""Names come from clients and become folders, so none may lead out of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.paths import feed_path, file_name, queue_folder, topic_folder

ROOT = Path("/store/consumequeue")


@pytest.mark.parametrize("topic", ["Orders", "%RETRY%billing", "a|b_c-9", "t" * 127])
def test_every_valid_topic_name_is_used_unchanged_as_the_name_of_its_folder(topic: str) -> None:
    """RocketMQ's own system topics among them."""
    assert topic_folder(ROOT, topic) == ROOT / topic
    assert queue_folder(ROOT, topic, 3) == ROOT / topic / "3"


@pytest.mark.parametrize("topic", ["", ".", "..", "../up", "a/b", "a\0b", "a b", "ü", "t" * 128, "a\n"])
def test_a_topic_name_that_is_not_a_valid_folder_name_is_refused(topic: str) -> None:
    """The names are checked when they come in as well; this is the second time."""
    with pytest.raises(StoreFormatError, match="folder's name"):
        topic_folder(ROOT, topic)
    with pytest.raises(StoreFormatError, match="folder's name"):
        queue_folder(ROOT, topic, 0)


def test_a_negative_queue_id_is_refused() -> None:
    """The number comes over the wire, too."""
    with pytest.raises(StoreFormatError, match="queue -1"):
        queue_folder(ROOT, "Orders", -1)


def test_names_of_log_files_sort_by_their_start_offset() -> None:
    """RocketMQ finds a log's first file by sorting the names."""
    assert file_name(0) == "0" * 20
    assert file_name(1 << 30) == "00000000001073741824"
    assert sorted(file_name(at) for at in (10**12, 9, 10**3)) == [file_name(at) for at in (9, 10**3, 10**12)]
    assert feed_path(Path("/store")) == Path("/store/flint/feed")
