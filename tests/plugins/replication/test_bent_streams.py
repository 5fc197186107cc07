"""Bytes that no broker sends: either end takes them or ends the connection, and never does anything else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.core.errors import ReplicationError
from flintmq.core.log.epochs import Epochs
from flintmq.core.record.record import decode_records
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.replication.agreement import LogState
from flintmq.plugins.replication.link_settings import LinkSettings
from flintmq.plugins.replication.slave_link import RecordChecker
from flintmq.testing.store import message

from .conftest import Pair, fill, log_of

ROUNDS = 300


def bent(data: bytes, chance: random.Random) -> bytes:
    """One change: bits, bytes, a piece gone, a piece twice, garbage, or the rest missing."""
    at = chance.randrange(len(data) + 1)
    match chance.randrange(6):
        case 0 if data:
            changed = bytearray(data)
            changed[at % len(data)] ^= 1 << chance.randrange(8)
            return bytes(changed)
        case 1:
            return data[:at] + chance.randbytes(chance.randrange(1, 20)) + data[at:]
        case 2:
            return data[:at] + data[at + chance.randrange(1, 50) :]
        case 3:
            return data[:at] + data[max(0, at - 30) : at] + data[at:]
        case 4:
            return data[:at] + b"\xff" * 8 + data[at + 8 :]
        case _:
            return data[:at]


def test_master_and_slave_survive_random_bytes_on_replication_connections(
    tmp_path: Path, stores: Callable[[Path], MessageStore], settings: LinkSettings
) -> None:
    """Peers are programs with faults, or people with time."""
    chance = random.Random(7)
    master, slave = stores(tmp_path / "m"), stores(tmp_path / "s")
    fill(master, 12)
    pair = Pair(master, slave, settings)
    refused = 0
    for _ in range(ROUNDS):
        pair.connect()
        try:
            for _turn in range(4):
                pair.master_end.receive(bent(pair.to_master(), chance), pair.now_s)
                pair.slave_end.receive(bent(pair.to_slave(), chance), pair.now_s)
        except ReplicationError:
            refused += 1
    assert refused > ROUNDS // 4
    assert log_of(slave) == b"", "chunks were given back, and nobody appended them"
    pair.connect()
    pair.settle()
    assert slave.watermarks.wrote == master.watermarks.wrote


def test_a_slave_accepts_only_whole_records_from_a_damaged_replication_stream(
    tmp_path: Path, stores: Callable[[Path], MessageStore]
) -> None:
    """Whatever is bent in a log, what passes is a row of whole records at their places."""
    chance = random.Random(11)
    master = stores(tmp_path / "m")
    for number in range(10):
        master.put([message("T", number % 2, b"body %d" % number * number, keys="k")])
    raw = log_of(master)[:3900]
    refused = 0
    for _ in range(ROUNDS * 5):
        data = bent(raw, chance)
        checker = RecordChecker(0, 4096)
        passed = b""
        try:
            at = 0
            while at < len(data):
                step = chance.randrange(1, 900)
                for chunk in checker.receive(at, data[at : at + step]):
                    passed += chunk.data
                at += step
        except ReplicationError:
            refused += 1
        records = decode_records(passed)
        places = [record.commit_log_offset_bytes for record in records]
        assert places == [sum(one.size_bytes for one in records[:n]) for n in range(len(records))]
    assert refused > ROUNDS


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_never_accepts_damaged_epochs_from_its_replication_peer(seed: int) -> None:
    """A state is the first thing that is believed."""
    chance = random.Random(seed)
    said = LogState("broker-a", Epochs.new().begun(100, "recovered"), 0, 500, 4096, 500)
    for _ in range(ROUNDS):
        try:
            heard = LogState.from_bytes(bent(said.to_bytes(), chance))
        except ReplicationError:
            continue
        assert isinstance(heard.end_offset_bytes, int)
        assert heard.epochs == said.epochs, "its own checksum"
