"""A streaming query's checkpoint in the hands of operators: shown, compared, reset, and moved between files and wire."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served

from flintmq.plugins.spark.checkpoint import Checkpoint
from flintmq.plugins.spark.errors import CheckpointError
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Limit, Offset
from flintmq.plugins.spark.store.queue_places import offset_at
from flintmq.plugins.spark.store.transport import StoreTransport
from flintmq.plugins.spark.wire.ranges import offset_of, queues_of
from flintmq.plugins.spark.wire_transport import WireTransport
from flintmq.programs.cli.main import run_command_line

TOPIC = "orders"
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with ten messages in each of two queues, in turn, and others between them."""
    with Served(tmp_path_factory.mktemp("served"), "dispatchers=consume_queue,index,spark_feed") as one:
        one.create_topic(TOPIC, queues=2)
        one.create_topic("other")
        for number in range(10):
            for queue_id in range(2):
                one.send(TOPIC, [b"%d:%d" % (queue_id, number)], queue_id)
            one.send("other", [b"o"])
        yield one


def files(served: Served) -> StoreTransport:
    where = {"path": str(served.folder / "store"), "visibility": "dispatched"}
    return StoreTransport(ReadOptions.parse({**where, "subscribe": TOPIC}))


def wire(served: Served) -> WireTransport:
    return WireTransport(ReadOptions.parse({"nameServer": served.namesrv, "subscribe": TOPIC}))


def checkpoint(folder: Path, *offsets: Offset, done: int | None = None, others: tuple[str, ...] = ()) -> Path:
    """A checkpoint as Spark 4.3 writes it; the first ``done`` batches are committed, all by default."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True, exist_ok=True)
    for batch, offset in enumerate(offsets):
        (folder / "offsets" / str(batch)).write_text("\n".join(("v1", METADATA, json.dumps(offset), *others)))
        if batch < (len(offsets) if done is None else done):
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def rest(transport: Any, at: Offset) -> list[bytes]:
    """What a query reads that stands there."""
    end = transport.limited(transport.checked(at), transport.latest(), Limit())
    found: list[bytes] = []
    for part in transport.plan(at, end):
        for batch in transport.read(part):
            found += batch.column("body").to_pylist()
    return sorted(found)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run_command_line(["spark", "offsets", *arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_no_message_is_lost_if_a_stream_switches_from_brokers_to_store_files_and_back(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exactly the messages that it has not read yet are read by the other way, and again by the first one."""
    with contextlib.closing(wire(served)) as by_wire:
        at = by_wire.limited(by_wire.initial("earliest"), by_wire.latest(), Limit(max_rows=7))
        expected = rest(by_wire, at)
        assert len(expected) == 14
        folder = checkpoint(tmp_path / "c", at)
        source = (f"path={served.folder / 'store'}", f"subscribe={TOPIC}", "visibility=dispatched")
        pairs = [part for one in source for part in ("--source", one)]
        assert run(capsys, str(folder), *pairs, "--move", "files")[0] == 0
        moved = Checkpoint(folder).newest()
        assert (moved.batch, moved.is_done, moved.offset["transport"]) == (1, True, "store")
        assert rest(files(served), moved.offset) == expected
        assert run(capsys, str(folder), *pairs, "--move", "wire")[0] == 0
        back = Checkpoint(folder).newest()
        assert (back.batch, queues_of(back.offset)) == (2, queues_of(at))
        code, said = run(capsys, str(folder), *pairs, "--move", "wire")
        assert (code, "the checkpoint's offsets are already for wire" in said) == (2, True)


def test_a_query_that_read_part_of_the_store_files_can_continue_over_the_wire_protocol_without_loss(
    served: Served,
) -> None:
    """A place in the log lies between messages of several queues; each goes on behind its own."""
    from flintmq.plugins.spark.store.queue_places import queues_at

    by_files = files(served)
    for rows in (1, 2, 3, 11, 19, 20):
        at = by_files.limited(by_files.initial("earliest"), by_files.latest(), Limit(max_rows=rows))
        with contextlib.closing(wire(served)) as by_wire:
            assert rest(by_wire, offset_of(queues_at(by_files, at))) == rest(by_files, at)
            assert len(rest(by_files, at)) == 20 - rows


def test_the_command_spark_offsets_shows_the_position_and_lag_of_a_checkpoint(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both the text for people and the JSON for programs must have them."""
    with contextlib.closing(wire(served)) as by_wire:
        at = by_wire.limited(by_wire.initial("earliest"), by_wire.latest(), Limit(max_rows=7))
    folder = str(checkpoint(tmp_path / "c", at, done=0))
    code, said = run(capsys, folder)
    assert code == 0
    assert "batch 0, planned, and not done" in said
    assert "broker-a" in said
    pairs = ("--source", f"nameServer={served.namesrv}", "--source", f"subscribe={TOPIC}")
    code, said = run(capsys, folder, *pairs)
    assert "behind by 14 messages" in said
    code, said = run(capsys, folder, *pairs, "--json")
    found = json.loads(said)
    assert (found["batch"], found["done"], found["latest"]["lag"]["messages"]) == (0, False, 14)


def test_the_command_spark_offsets_resets_a_checkpoint_to_starting_offsets(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint with an unfinished batch, or with state, is refused."""
    with contextlib.closing(wire(served)) as by_wire:
        end = by_wire.latest()
    pairs = ("--source", f"nameServer={served.namesrv}", "--source", f"subscribe={TOPIC}")
    folder = checkpoint(tmp_path / "c", end)
    assert run(capsys, str(folder), *pairs, "--reset", "-3")[0] == 0
    with contextlib.closing(wire(served)) as by_wire:
        assert len(rest(by_wire, Checkpoint(folder).newest().offset)) == 6
    open_batch = checkpoint(tmp_path / "open", end, done=0)
    code, said = run(capsys, str(open_batch), *pairs, "--reset", "earliest")
    assert (code, "batch 0 is planned but not finished" in said) == (1, True)
    (folder / "state").mkdir()
    code, said = run(capsys, str(folder), *pairs, "--reset", "earliest")
    assert (code, "the query keeps state" in said) == (1, True)
    other = ("--source", f"path={served.folder / 'store'}", "--source", "visibility=dispatched")
    code, said = run(capsys, str(folder), *other, "--reset", "earliest")
    assert (code, "differs from the transport of --source" in said) == (2, True)


def test_the_errors_about_invalid_checkpoints_name_the_reason(tmp_path: Path) -> None:
    """An empty folder, a pipeline's with one for each sink, another version, another source's."""
    with pytest.raises(CheckpointError, match="no checkpoint of a streaming query lies there"):
        Checkpoint(tmp_path / "none").newest()
    checkpoint(tmp_path / "p" / "parquet", {"v": 1, "transport": "broker", "queues": {}})
    with pytest.raises(CheckpointError, match="the sinks of a pipeline have one each, here parquet"):
        Checkpoint(tmp_path / "p").newest()
    late = checkpoint(tmp_path / "late", {"v": 1, "transport": "broker", "queues": {}})
    (late / "offsets" / "0").write_text("v2\n{}\n{}")
    with pytest.raises(CheckpointError, match="has version 'v2'"):
        Checkpoint(late).newest()
    foreign = checkpoint(tmp_path / "foreign", {"kafka": {"0": 1}})
    with pytest.raises(CheckpointError, match="0 FlintMQ sources among 1"):
        _ = Checkpoint(foreign).newest().offset


def test_changing_the_flintmq_offsets_of_a_checkpoint_keeps_the_offsets_of_other_sources(tmp_path: Path) -> None:
    """A query may join messages with another stream, whose offset must not move."""
    at = {"v": 1, "transport": "broker", "queues": {}}
    folder = checkpoint(tmp_path / "c", at, others=('{"logOffset":7}', "-"))
    kept = Checkpoint(folder)
    to = {"v": 1, "transport": "broker", "queues": {"t": {"b": {"0": 1}}}}
    assert kept.move(kept.newest(), to) == 1
    moved = kept.newest()
    assert moved.offset == to
    assert moved.sources[1:] == ('{"logOffset":7}', "-")
    assert moved.metadata == METADATA


def test_queue_offsets_of_broker_z_cannot_be_converted_to_a_position_in_the_store_of_broker_a(
    served: Served,
) -> None:
    """Queues of another broker are not in this store: said by name, and nothing is lost by leaving them out."""
    queues = queues_of({"v": 1, "transport": "broker", "queues": {TOPIC: {"broker-z": {"0": 1}}}})
    with pytest.raises(CheckpointError, match=r"store of broker broker-a; .* broker-z too"):
        offset_at(files(served), queues)
