"""Which log counts: a slave follows where that loses nothing, and otherwise says what parted the two logs and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from flintmq.core.errors import NotFollowedError, ReplicationError, StoreError
from flintmq.core.log.epochs import MASTER, RECOVERED, Epochs
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.replication.agreement import Agreement, LogState, agree
from flintmq.plugins.replication.link_settings import LinkSettings
from flintmq.testing.store import open_store, opened
from flintmq.tests.support.faulty_disk import FaultyDisk, Operation

from .conftest import Pair, fill, log_of

Stores = Callable[[Path], MessageStore]
BASE = Epochs.new()
FIRST = BASE.begun(0, MASTER)
"""A master that began with an empty log."""


def state(epochs: Epochs, end: int, *, start: int = 0, confirmed: int | None = None) -> LogState:
    return LogState("broker-a", epochs, start, end, 1024, end if confirmed is None else confirmed)


@pytest.mark.parametrize("end", [0, 1, 500, 1000])
def test_a_slave_whose_log_is_a_prefix_of_the_masters_log_continues_at_the_end_of_its_own_log(end: int) -> None:
    """The ordinary case: the slave has what the master had some time ago."""
    later = FIRST.begun(300, MASTER).begun(900, RECOVERED)
    slave = FIRST if end <= 300 else later.cut_at(end)
    assert agree(state(later, 1000), state(slave, end)) == Agreement(end)


def test_an_empty_slave_copies_from_the_oldest_log_file_of_its_master() -> None:
    """Whatever id its store was given when it was made."""
    assert agree(state(FIRST, 5000, start=2048), state(Epochs.new(), 0)) == Agreement(2048)


def test_a_slave_that_recovered_from_a_crash_continues_at_the_end_of_its_log() -> None:
    """A slave that crashed has an epoch of its own, in which nothing was written."""
    assert agree(state(FIRST, 1000), state(FIRST.begun(700, RECOVERED), 700)) == Agreement(700)


def test_a_slave_truncates_unconfirmed_records_that_its_master_lost() -> None:
    """Nobody was promised or shown it: the master had said so."""
    recovered = FIRST.begun(600, RECOVERED)
    slave = state(FIRST, 900, confirmed=600)
    assert agree(state(recovered, 600), slave) == Agreement(600, 600)
    assert agree(state(recovered, 2000), slave) == Agreement(600, 600)
    with pytest.raises(NotFollowedError, match="never"):
        agree(state(recovered, 600), slave, "never")


def test_a_slave_keeps_confirmed_records_that_its_master_lost() -> None:
    """The master lost what it had acknowledged: the slave's copy is the only one."""
    recovered = FIRST.begun(600, RECOVERED)
    with pytest.raises(
        NotFollowedError, match=r"Clients may have read 250 of these bytes.*start the slave as the master"
    ):
        agree(state(recovered, 600), state(FIRST, 900, confirmed=850))
    assert agree(state(recovered, 600), state(FIRST, 900, confirmed=850), "always") == Agreement(600, 600)


def test_a_slave_refuses_a_master_restored_from_an_older_copy_of_its_store() -> None:
    """It begins an epoch where the copy ends, which was no recovery; that it has grown since changes nothing."""
    restored = FIRST.begun(400, MASTER)
    for end in (400, 900, 5000):
        with pytest.raises(NotFollowedError, match="restored from an older copy"):
            agree(state(restored, end), state(FIRST, 900, confirmed=0))


def test_a_slave_refuses_a_master_that_began_a_different_epoch_at_the_same_position() -> None:
    """Both times it began an epoch of the same number at the same place: only the ids tell them apart."""
    once, twice = FIRST.begun(400, MASTER), FIRST.begun(400, MASTER)
    assert agree(state(once, 900), state(once, 700)) == Agreement(700)
    with pytest.raises(NotFollowedError, match="older copy, or two"):
        agree(state(twice, 900), state(once, 700))


def test_a_former_master_with_records_that_the_new_master_lacks_is_not_allowed_to_replicate() -> None:
    """A slave that was promoted, and the old master that comes back with what it had not sent."""
    promoted = FIRST.begun(400, MASTER)
    with pytest.raises(NotFollowedError, match="older copy"):
        agree(state(promoted, 800), state(FIRST, 500))
    assert agree(state(promoted, 800), state(FIRST, 400)) == Agreement(400), "it had sent everything"
    both_wrote = FIRST.begun(500, MASTER)
    with pytest.raises(NotFollowedError, match="older copy, or two"):
        agree(state(promoted, 800), state(both_wrote, 900))


def test_a_slave_refuses_a_master_with_an_unrelated_log() -> None:
    """A wrong address in the configuration."""
    with pytest.raises(NotFollowedError, match=r"different logs.*ha\.master_address"):
        agree(state(Epochs.new(), 1000), state(FIRST, 500))


def test_a_slave_refuses_a_master_with_another_broker_name() -> None:
    """Two sets of one cluster."""
    other = attrs.evolve(state(FIRST, 500), broker_name="broker-b")
    with pytest.raises(NotFollowedError, match=r"broker\.name"):
        agree(state(FIRST, 1000), other)


def test_a_slave_may_not_replicate_if_its_master_has_deleted_log_files_that_the_slave_needs() -> None:
    """The files that it needs are deleted; an empty store would do."""
    master = state(FIRST.begun(3000, MASTER), 9000, start=2048)
    with pytest.raises(NotFollowedError, match="start the slave with an empty store"):
        agree(master, state(FIRST, 500))


@pytest.mark.parametrize(
    "change",
    [
        {"end_offset_bytes": -1},
        {"end_offset_bytes": 1.5},
        {"end_offset_bytes": True},
        {"end_offset_bytes": 2**63},
        {"file_bytes": 0},
        {"broker_name": 7},
        {"address": None},
    ],
)
def test_the_log_state_of_another_broker_is_refused_if_a_field_is_invalid(change: dict[str, object]) -> None:
    """It comes from another machine."""
    raw = attrs.evolve(state(FIRST, 5), **change).to_bytes()  # type: ignore[arg-type]
    with pytest.raises(ReplicationError, match="cannot be read"):
        LogState.from_bytes(raw)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"epochs": "x"}'])
def test_a_malformed_replication_log_state_is_refused(raw: bytes) -> None:
    """Nor need it be a broker."""
    with pytest.raises(ReplicationError, match="cannot be read"):
        LogState.from_bytes(raw)


def test_an_encoded_replication_log_state_is_decoded_unchanged() -> None:
    """What was said is what is heard."""
    said = state(FIRST.begun(3, RECOVERED), 5)
    assert LogState.from_bytes(said.to_bytes()) == said


# with stores


def test_a_slave_quarantines_the_records_that_it_truncates_to_match_the_log_of_its_master(
    stores: Stores, tmp_path: Path, sealed: LinkSettings
) -> None:
    """Log, queues and index of the slave are those of the master, and what was cut can be looked at."""
    with opened(tmp_path / "m") as master:
        master.become_master()
        slave = stores(tmp_path / "s")
        pair = Pair(master, slave, sealed)
        fill(master, 20)
        pair.settle()
        confirmed = master.watermarks.wrote
        fill(master, 20, "lost")
        pair.settle()
        pair.slave_log.master_confirmed_offset_bytes = confirmed  # as if nothing of it had been synced
    again = stores(tmp_path / "m")
    again.truncate(confirmed)  # what a power cut would leave
    again.epochs.begin(confirmed, RECOVERED)
    again.become_master()
    pair = Pair(again, slave, sealed)
    pair.slave_log.master_confirmed_offset_bytes = confirmed
    pair.settle()
    assert slave.watermarks.wrote == confirmed
    kept = list((tmp_path / "s" / "flint" / "quarantine").iterdir())
    assert any(b"lost7" in path.read_bytes() for path in kept)
    fill(again, 20, "new")
    pair.settle()
    assert log_of(slave) == log_of(again)
    for queue_id in range(3):
        assert slave.reader.max_queue_offset("T", queue_id) == again.reader.max_queue_offset("T", queue_id)
        found = slave.reader.get_message("T", queue_id, 0, 1000, None)
        assert b"lost" not in b"".join(found.slices)
    keyed, _, _ = slave.reader.query_message("T", "k7", 10, 0, 2**62)
    assert len(keyed) == 2
    assert slave.epochs.epochs == again.epochs.epochs


def test_a_slave_restarts_cleanly_after_its_log_was_truncated(stores: Stores, tmp_path: Path) -> None:
    """A restart after a truncation finds what a slave that never had the tail would have."""
    with opened(tmp_path / "s") as slave:
        fill(slave, 30)
        at = slave.reader.get_message("T", 0, 5, 1, None)
        assert at.message_count == 1
        position = slave.consume_queues.find("T", 0).unit(5)[0]  # type: ignore[union-attr,index]
        slave.truncate(position)
        assert slave.reader.max_queue_offset("T", 0) == 5
        log = log_of(slave)
    reopened = stores(tmp_path / "s")
    assert reopened.started_clean
    assert log_of(reopened) == log
    assert reopened.watermarks.wrote == position
    assert reopened.reader.max_queue_offset("T", 0) == 5
    fill(reopened, 1, "next")
    assert b"next0" in b"".join(reopened.reader.get_message("T", 0, 5, 1, None).slices)


def test_a_master_that_recovered_from_a_crash_records_crash_recovery_as_the_cause_of_its_epoch(
    stores: Stores, tmp_path: Path
) -> None:
    """Slaves would take the crash for a restored copy."""
    store = stores(tmp_path / "m")
    fill(store, 3)
    end = store.watermarks.wrote
    store.epochs.begin(end, RECOVERED)
    found = store.epochs.epochs.current
    store.become_master()
    assert (store.epochs.epochs.current.cause, store.epochs.epochs.current.start_offset_bytes) == (RECOVERED, end)
    assert store.epochs.epochs.current.id != found.id, "a copy of this store must not share it"
    fill(store, 1)
    store.become_master()
    assert store.epochs.epochs.current.cause == MASTER


@pytest.mark.parametrize("operation", ["sync", "write", "write_file"])
@pytest.mark.parametrize("after", range(6))
def test_a_failed_truncation_of_the_log_is_completed_at_the_next_start(
    tmp_path: Path, operation: Operation, after: int
) -> None:
    """The disk refuses at any moment of it: the store stands still, and the next start finds a whole log to cut again."""
    disk = FaultyDisk()
    store = open_store(tmp_path / "s", disk=disk)
    try:
        fill(store, 30)
        whole = log_of(store)
        position = store.consume_queues.find("T", 0).unit(5)[0]  # type: ignore[union-attr,index]
        fault = disk.fail(operation, within="s", after=after)
        try:
            store.truncate(position)
        except StoreError:
            assert fault.hits
            assert store.watermarks.fence_reason is not None
            with pytest.raises(StoreError):
                store.commit_log.append_raw(store.watermarks.wrote, b"", 0)
        disk.heal()
    finally:
        with contextlib.suppress(StoreError):
            store.close()
    with opened(tmp_path / "s") as reopened:
        end = reopened.watermarks.wrote
        assert position <= end <= len(whole)
        assert log_of(reopened) == whole[:end]
        reopened.truncate(position)
        assert log_of(reopened) == whole[:position]
        assert reopened.reader.max_queue_offset("T", 0) == 5
        fill(reopened, 3, "next")
        assert reopened.reader.max_queue_offset("T", 0) == 6
