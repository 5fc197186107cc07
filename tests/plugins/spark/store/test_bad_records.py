"""Damage inside the log is an error, or left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import Row, batch, places

from flintmq.plugins.spark.errors import BadRecordError
from flintmq.plugins.spark.store import piece_reader
from flintmq.testing.store import message, open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A stopped store with ten messages of ``orders`` and ten of ``payments``, in turn."""
    store = open_store(tmp_path / "store")
    for number in range(10):
        store.put([message("orders", number % 2, b"order %d" % number, tags="a")])
        store.put([message("payments", 0, b"payment %d" % number, tags="b")])
    store.dispatch()
    store.close()
    return tmp_path / "store"


@pytest.fixture(params=["queues first", "log alone"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of finding the records of a piece: with consume queues, and by walking from record to record."""
    if request.param == "log alone":
        monkeypatch.setattr(piece_reader, "ASKED_FROM_BYTES", 1 << 40)


def damage(root: Path, *rows: Row) -> None:
    """Change a byte of the magic number of each row's record."""
    file = sorted((root / "commitlog").iterdir())[0]
    raw = bytearray(file.read_bytes())
    for row in rows:
        raw[row["physicalOffset"] + 4] ^= 0xFF
    file.write_bytes(raw)


@pytest.mark.usefixtures("walk")
def test_neighboring_damaged_records_are_skipped_without_those_that_follow(root: Path) -> None:
    """The second damaged record is named by a queue too, and must not end the search for the next valid one."""
    rows = batch(root)
    damage(root, *rows[4:9])
    with pytest.raises(BadRecordError, match=rf"no record at {rows[4]['physicalOffset']}"):
        batch(root)
    assert places(batch(root, badRecords="skip")) == places(rows[:4] + rows[9:])


@pytest.mark.usefixtures("walk")
def test_the_message_of_a_small_queue_after_damage_is_not_skipped(tmp_path: Path) -> None:
    """The largest queues alone divide a log into tasks, but any queue may name the record that follows the damage."""
    store = open_store(tmp_path / "store")
    for number in range(40):
        store.put([message("large", number % 20, b"x")])
        if number == 20:
            store.put([message("small", 0, b"y")])
    for number in range(20):
        store.put([message("large", number, b"x")])
    store.dispatch()
    store.close()
    rows = batch(tmp_path / "store")
    at = next(number for number, row in enumerate(rows) if row["topic"] == "small")
    damage(tmp_path / "store", rows[at - 1])
    assert places(batch(tmp_path / "store", badRecords="skip")) == places(rows[: at - 1] + rows[at:])
