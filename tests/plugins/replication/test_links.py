"""Both ends of a replication connection, byte by byte: equal logs, and nothing else that could come of it."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from flintmq.core.errors import NotFollowedError, ReplicationError, StoreError
from flintmq.core.kernel.ports import FlushStrategy
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.replication import streams
from flintmq.plugins.replication.link_settings import LinkSettings
from flintmq.plugins.replication.master_link import Stage
from flintmq.plugins.replication.slave_link import SlaveStage
from flintmq.plugins.replication.streams import FrameType, Keys, Sealer, Unsealer, plain_pieces
from flintmq.testing.store import BY_HAND, BY_HAND_SYNCHRONOUS, opened

from .conftest import SECRET, Pair, fill, log_of

Stores = Callable[[Path], MessageStore]


@pytest.fixture
def pair(stores: Stores, tmp_path: Path, settings: LinkSettings) -> Pair:
    master = stores(tmp_path / "m")
    master.become_master()
    return Pair(master, stores(tmp_path / "s"), settings)


@pytest.fixture
def sealed_pair(stores: Stores, tmp_path: Path, sealed: LinkSettings) -> Pair:
    master = stores(tmp_path / "m")
    master.become_master()
    return Pair(master, stores(tmp_path / "s"), sealed)


@pytest.mark.parametrize("piece_bytes", [0, 1, 7, 4096])
def test_the_log_of_a_slave_becomes_equal_to_the_log_of_its_master(pair: Pair, piece_bytes: int) -> None:
    """However the network cuts the stream, and through several files, blank ends included."""
    fill(pair.master, 8)
    pair.settle(piece_bytes)
    fill(pair.master, 40, "more")
    pair.settle(piece_bytes)
    assert len(pair.master.commit_log.queue.files) > 3
    assert log_of(pair.slave) == log_of(pair.master)[-len(log_of(pair.slave)) :]
    assert pair.slave.watermarks.wrote == pair.master.watermarks.wrote == pair.master_end.held_offset_bytes
    assert pair.slave.watermarks.dispatched == pair.slave.watermarks.wrote
    if pair.settings.secret is not None:
        assert log_of(pair.slave) == log_of(pair.master)
        assert pair.slave.epochs.epochs == pair.master.epochs.epochs


def test_an_empty_rocketmq_slave_copies_only_the_last_file_of_the_masters_log(pair: Pair) -> None:
    """So RocketMQ does; a slave of FlintMQ is given everything there is."""
    fill(pair.master, 40)
    pair.settle()
    first = pair.slave.commit_log.queue.files[0].start
    assert first == (0 if pair.settings.secret is not None else pair.master.commit_log.queue.files[-1].start)


def test_a_slave_continues_after_its_connection_ended_in_the_middle_of_a_record(pair: Pair) -> None:
    """A connection may end in the middle of a record; the next one begins where the slave's log ends."""
    fill(pair.master, 4)
    pair.settle()
    fill(pair.master, 30, "more")
    data = pair.to_slave()
    pair.deliver(data[: len(data) // 2 + 17])
    pair.connect()
    pair.settle()
    assert log_of(pair.slave) == log_of(pair.master)


def test_master_and_slave_send_heartbeats_and_detect_a_silent_peer(pair: Pair) -> None:
    """Each end says that it lives, and gives the other up when it does not."""
    fill(pair.master, 3)
    pair.settle()
    pair.now_s += 5.0
    assert pair.to_slave(), "a heartbeat"
    assert not pair.to_slave(), "one is enough"
    assert pair.to_master(), "a report"
    assert not pair.to_master()
    assert not pair.master_end.is_dead(pair.now_s)
    pair.now_s += 15.0
    assert pair.master_end.is_dead(pair.now_s)
    assert pair.slave_end.is_dead(pair.now_s)


def test_a_heartbeat_of_the_master_with_a_wrong_log_offset_ends_the_connection(pair: Pair) -> None:
    """The slave would miss bytes."""
    fill(pair.master, 3)
    pair.settle()
    pair.now_s += 5.0
    pair.master_end.next_offset_bytes += 1
    with pytest.raises(ReplicationError, match="continues at"):
        pair.deliver(pair.to_slave())


def test_a_replication_connection_without_a_greeting_times_out(pair: Pair) -> None:
    """Whoever connects and says nothing holds a place."""
    pair.now_s += 9.0
    assert not pair.master_end.is_dead(pair.now_s)
    pair.now_s += 1.0 if pair.settings.secret is not None else 11.0
    assert pair.master_end.is_dead(pair.now_s)


def test_a_slave_ahead_of_its_master_is_refused(stores: Stores, tmp_path: Path, settings: LinkSettings) -> None:
    """Sending it anything would hide that something is missing."""
    ahead, behind = stores(tmp_path / "ahead"), stores(tmp_path / "behind")
    fill(ahead, 10)
    fill(behind, 5)
    pair = Pair(behind, ahead, settings)
    with pytest.raises(NotFollowedError, match=r"restored from an older copy|are different logs"):
        pair.settle()


def test_a_slave_that_needs_deleted_records_is_refused(pair: Pair) -> None:
    """A slave that was away for too long cannot go on; it must be told what to do."""
    fill(pair.master, 4)
    pair.settle()
    fill(pair.master, 40)
    pair.master.commit_log.queue.delete_before(pair.master.commit_log.queue.files[3].start)
    with pytest.raises(NotFollowedError, match="has deleted everything before"):
        pair.settle()


# RocketMQ's stream


def test_a_replication_stream_recorded_from_rocketmq_is_decoded_and_encoded_unchanged() -> None:
    """What a real master and a real slave said to each other is read as they meant it."""
    path = _golden()
    if path is None:
        pytest.skip("no golden frames beside the checkout")
    for recorded in json.loads(gzip.decompress(path.read_bytes()))["connections"]:
        frames = streams.Frames().receive(bytes.fromhex(recorded["master_to_slave_hex"]))
        assert [[frame.offset_bytes, len(frame.body)] for frame in frames] == recorded["master_headers"]
        reports = streams.Reports()
        raw = bytes.fromhex(recorded["slave_to_master_hex"])
        said = [report for at in range(0, len(raw), 8) for report in reports.receive(raw[at : at + 8])]
        assert [report.offset_bytes for report in said] == recorded["slave_reports"]
        assert b"".join(_plain(said)) == raw
        assert b"".join(_plain(frames)).hex() == recorded["master_to_slave_hex"]


def _plain(frames: list[streams.Frame]) -> Iterator[bytes | memoryview]:
    for frame in frames:
        yield from plain_pieces(frame.type, frame.offset_bytes, 0, frame.body)


def _golden() -> Path | None:
    import os

    import flintmq

    shared = Path(os.environ.get("FLINTMQ_SHARED") or Path(str(flintmq.__file__)).parent.parent / "shared")
    path = shared / "golden" / "frames" / "ha.json.gz"
    return path if path.exists() else None


def test_the_master_uses_only_the_newest_of_several_offset_reports_received_together() -> None:
    """A slave reports faster than a master reads (docs/internals/store-format.md, Replication stream)."""
    reports = streams.Reports()
    raw = struct.pack(">3q", 1, 2, 3)
    assert [report.offset_bytes for report in reports.receive(raw[:20])] == [2]
    assert reports.receive(raw[20:23]) == []
    assert [report.offset_bytes for report in reports.receive(raw[23:])] == [3]


@pytest.mark.parametrize("frame", [(0, -1), (-1, 10), (0, 2**31 - 1)])
def test_invalid_replication_frames_and_offset_reports_are_refused(frame: tuple[int, int]) -> None:
    """Nothing a peer says may become unbounded memory."""
    with pytest.raises(ReplicationError):
        streams.Frames().receive(struct.pack(">qi", *frame))
    with pytest.raises(ReplicationError):
        streams.Reports().receive(struct.pack(">q", -5))


# FlintMQ's stream


def test_a_slave_identifies_itself_only_to_a_master_that_knows_the_replication_secret(sealed_pair: Pair) -> None:
    """The slave says who it is only to a master that has proved itself."""
    other = attrs.evolve(sealed_pair.settings, secret=b"another secret, also long")
    sealed_pair.master_end._settings = other
    hello = sealed_pair.to_master()
    sealed_pair.master_end.receive(hello, 100.0)
    with pytest.raises(ReplicationError, match="does not know the secret"):
        sealed_pair.deliver(sealed_pair.to_slave())
    assert sealed_pair.to_master() == b""
    assert sealed_pair.slave_end.farewell("no") == []


def test_a_slave_without_the_replication_secret_receives_no_data(sealed_pair: Pair) -> None:
    """Whoever can connect must not read the log."""
    fill(sealed_pair.master, 3)
    hello = sealed_pair.to_master()
    sealed_pair.master_end.receive(hello, 100.0)
    sealed_pair.to_slave()
    forged = Sealer(Keys.derive(b"guessed, and wrong", b"n" * 32, b"m" * 32).slave)
    state = b"".join(forged.seal(FrameType.STATE, 0, 0, sealed_pair.slave_log.state().to_bytes()))
    with pytest.raises(ReplicationError, match="does not know the secret"):
        sealed_pair.master_end.receive(state, 100.0)
    assert sealed_pair.to_slave() == b""


def test_a_recorded_replication_connection_cannot_be_replayed(sealed_pair: Pair) -> None:
    """Each connection has keys of its own."""
    fill(sealed_pair.master, 3)
    said = [sealed_pair.to_master()]
    sealed_pair.master_end.receive(said[0], 100.0)
    sealed_pair.deliver(sealed_pair.to_slave())
    said.append(sealed_pair.to_master())
    sealed_pair.master_end.receive(said[1], 100.0)
    assert sealed_pair.master_end.slave is not None
    sealed_pair.connect()
    sealed_pair.master_end.receive(said[0], 100.0)
    with pytest.raises(ReplicationError, match="does not know the secret"):
        sealed_pair.master_end.receive(said[1], 100.0)


@pytest.mark.parametrize("greeting", [b"\x00" * 100, b"GET / HTTP/1.1\r\n" * 8, b"\x16\x03\x01" * 40])
def test_a_client_of_another_protocol_is_refused_without_an_answer(sealed_pair: Pair, greeting: bytes) -> None:
    """A RocketMQ slave, a browser, a TLS client: told from a slave before anything is said to them."""
    with pytest.raises(ReplicationError, match="does not use"):
        sealed_pair.master_end.receive(greeting, 100.0)
    assert sealed_pair.to_slave() == b""
    assert sealed_pair.master_end.farewell("no") == []


def test_a_peer_with_another_version_of_the_replication_protocol_is_refused(sealed_pair: Pair) -> None:
    """Two releases that do not understand each other must say so."""
    hello = streams.HELLO.pack(streams.MAGIC, 2, b"n" * 32)
    with pytest.raises(ReplicationError, match="version 2"):
        sealed_pair.master_end.receive(hello, 100.0)


def test_a_flipped_bit_in_an_authenticated_replication_frame_is_refused() -> None:
    """A bit that flips anywhere in a frame ends the connection; nothing of the frame is used."""
    key = b"k" * 32
    frame = b"".join(Sealer(key).seal(FrameType.DATA, 5, 7, b"body"))
    assert Unsealer(key).receive(frame)[0].body == b"body"
    for bit in range(len(frame) * 8):
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << bit % 8
        unsealer = Unsealer(key)
        try:
            assert unsealer.receive(bytes(changed)) == [], bit  # a longer size: it waits for the rest
        except ReplicationError:
            continue


def test_repeated_and_reordered_replication_frames_are_refused() -> None:
    """Each seal counts."""
    sealer = Sealer(b"k" * 32)
    frames = [b"".join(sealer.seal(FrameType.DATA, n, 0, b"%d" % n)) for n in range(3)]
    for order in ([0, 0], [1], [0, 2], [0, 1, 1]):
        unsealer = Unsealer(b"k" * 32)
        with pytest.raises(ReplicationError):
            unsealer.receive(b"".join(frames[n] for n in order))


def test_master_and_slave_send_the_reason_when_they_close_a_connection(sealed_pair: Pair) -> None:
    """The one that is left is told why, so that its log says so, too."""
    fill(sealed_pair.master, 3)
    sealed_pair.settle()
    with pytest.raises(NotFollowedError, match="the disk is full"):
        sealed_pair.deliver(b"".join(sealed_pair.master_end.farewell("the disk is full")))
    with pytest.raises(ReplicationError, match="must not"):
        sealed_pair.master_end.receive(b"".join(sealed_pair.slave_end.farewell("must not")), 100.0)


def test_replication_frames_in_an_unexpected_order_are_refused(sealed_pair: Pair) -> None:
    """A state machine takes only what its state expects."""
    hello = sealed_pair.to_master()
    sealed_pair.master_end.receive(hello, 100.0)
    sealed_pair.deliver(sealed_pair.to_slave())
    assert sealed_pair.slave_end.stage is SlaveStage.AGREEING
    held = b"".join(sealed_pair.slave_end._encode(FrameType.HELD, 0, 0, b""))
    with pytest.raises(ReplicationError):
        sealed_pair.master_end.receive(held, 100.0)
    assert sealed_pair.master_end.stage is Stage.PROVING


@pytest.mark.parametrize("strategy", [BY_HAND, BY_HAND_SYNCHRONOUS], ids=["asynchronous", "synchronous"])
def test_each_replication_frame_has_the_confirmed_offset_of_the_master(
    stores: Stores, tmp_path: Path, sealed: LinkSettings, strategy: FlushStrategy
) -> None:
    """With every frame: where nothing is synced before an acknowledgement, all that is sent may be acknowledged at once."""
    with opened(tmp_path / "m", strategy=strategy) as master:
        pair = Pair(master, stores(tmp_path / "s"), sealed)
        fill(master, 5)
        pair.settle()
        end = master.watermarks.wrote
        assert pair.slave_log.master_confirmed_offset_bytes == (0 if strategy.synchronous else end)
        assert pair.slave.watermarks.wrote == end, "what is not synced is sent all the same"


# what is let in


@pytest.mark.parametrize("damage", ["magic", "size", "body", "place", "topic", "properties"])
def test_a_damaged_replicated_record_is_not_appended(pair: Pair, damage: str) -> None:
    """A master whose memory fails must not spoil its slave, too."""
    fill(pair.master, 3)
    pair.settle()
    before, end = log_of(pair.slave), pair.slave.watermarks.wrote
    fill(pair.master, 1)
    at = end % pair.master.commit_log.queue.file_bytes
    place = {"magic": 5, "size": 2, "body": 95, "place": 35, "topic": 88 + 300 + 3, "properties": 88 + 300 + 5}[damage]
    view = pair.master.commit_log.queue.files[0].region
    raw = bytearray(pair.master.commit_log.queue.files[0].view[at : at + 600])
    raw[place] ^= 0x7F
    view.write(at, bytes(raw))
    with pytest.raises(ReplicationError):
        pair.settle()
    assert log_of(pair.slave) == before
    assert pair.slave.watermarks.wrote == end


def test_a_slave_is_refused_if_master_and_slave_have_different_log_file_sizes(
    stores: Stores, tmp_path: Path, sealed: LinkSettings
) -> None:
    """The logs could never be equal."""
    with opened(tmp_path / "l", commit_log_file_bytes=8192) as larger:
        pair = Pair(stores(tmp_path / "m"), larger, sealed)
        with pytest.raises(NotFollowedError, match="commit_log_file_bytes"):
            pair.settle()


def test_appending_raw_bytes_that_cross_the_end_of_a_log_file_is_refused(stores: Stores, tmp_path: Path) -> None:
    """The store itself refuses what the ends let through."""
    master, slave = stores(tmp_path / "m"), stores(tmp_path / "s")
    fill(master, 2)
    raw = log_of(master)
    with pytest.raises(StoreError, match="do not lie in one file"):
        slave.commit_log.append_raw(100, raw, 0)
    slave.commit_log.append_raw(0, raw, 0)
    with pytest.raises(StoreError, match="cannot follow"):
        slave.commit_log.append_raw(0, raw, 0)
    with pytest.raises(StoreError, match="do not lie in one file"):
        slave.commit_log.append_raw(len(raw), bytes(4096), 0)


def test_the_replication_secret_does_not_appear_in_the_repr_of_replication_settings_or_keys(
    sealed: LinkSettings,
) -> None:
    """Settings are printed and logged."""
    assert SECRET.decode() not in repr(sealed)
    keys = Keys.derive(SECRET, b"n" * 32, b"m" * 32)
    assert repr(keys.master) not in repr(keys)
