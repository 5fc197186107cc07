"""A topic that was deleted and made again: readers of files see what its consumers do, and no queue offset twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from reading import batch

from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.spark.maintenance.audit import audit
from flintmq.plugins.spark.maintenance.engines import InlineEngine
from flintmq.plugins.spark.maintenance.export import export
from flintmq.programs.doctor.files import StoreFiles
from flintmq.testing.store import BY_HAND, message, open_store

EXPECTED = [(b"other0", "B", 0), (b"new0", "A", 0), (b"new1", "A", 1), (b"other1", "B", 1)]


def put(store: MessageStore, topic: str, body: bytes) -> None:
    store.put([message(topic, 0, body)])
    store.reput.run_all()


@pytest.fixture(params=["stopped", "crashed", "crashed without queues", "of RocketMQ"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Stores with two lives of one topic, and one life of another that has ended."""
    path = tmp_path / "store"
    store = open_store(path, strategy=BY_HAND, commit_log_file_bytes=8192)
    for number in range(5):
        put(store, "A", b"old%d" % number)
    put(store, "B", b"other0")
    if request.param == "of RocketMQ":
        store.delete_queue("A", 0)
    else:
        put(store, "C", b"gone")
        store.delete_topic("A")
    for body in (b"new0", b"new1"):
        put(store, "A", body)
    if request.param != "of RocketMQ":
        store.delete_topic("C")
    put(store, "B", b"other1")
    if request.param.startswith("crashed"):
        shutil.copytree(path, tmp_path / "crashed")
    store.close()
    if not request.param.startswith("crashed"):
        return path
    if request.param.endswith("queues"):
        shutil.rmtree(tmp_path / "crashed" / "consumequeue")
        (tmp_path / "crashed" / "config").mkdir(exist_ok=True)
        (tmp_path / "crashed" / "config" / "topics.json").write_text('{"topicConfigTable":{"A":{},"B":{}}}')
    return tmp_path / "crashed"


def test_a_batch_read_omits_messages_of_deleted_topics(root: Path) -> None:
    """The rule holds for reads of the whole log and for reads through the queues."""
    options = {"includeSystemTopics": "false", "badRecords": "skip"}
    for more in ({}, {"subscribe": "A,B"}):
        rows = batch(root, **options, **more)
        assert [(row["body"], row["topic"], row["queueOffset"]) for row in rows] == EXPECTED


def test_an_export_omits_messages_of_deleted_topics(root: Path, tmp_path: Path) -> None:
    """The rule also holds for the store of a crashed broker."""
    pytest.importorskip("pyarrow")
    assert export(StoreFiles(root), tmp_path / "out", InlineEngine()).rows == len(EXPECTED)
    assert audit(StoreFiles(root), InlineEngine(), duplicates=False)["sound"]
