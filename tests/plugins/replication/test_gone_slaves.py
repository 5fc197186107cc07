"""A slave that reconnects before its old connection has ended is not gone; one that never comes again is remembered."""

from __future__ import annotations

from flintmq.plugins.replication.gone_slaves import GoneSlaves
from flintmq.testing.clock import ManualClock


def test_a_slave_counts_as_disconnected_only_after_its_last_connection_has_ended() -> None:
    """A network that is cut silently leaves the old one for twenty seconds beside the new one."""
    clock = ManualClock()
    gone = GoneSlaves(clock, 4)
    gone.follows("a")
    gone.follows("a")
    gone.left("a")
    assert gone.gone_ms() == {}
    assert gone.alone_ms() == 0
    gone.left("a")
    clock.advance_ms(7_000)
    assert gone.gone_ms() == {"a": 7_000}
    assert gone.alone_ms() == 7_000
    gone.follows("a")
    assert gone.gone_ms() == {}
    assert gone.alone_ms() == 0


def test_the_time_without_slaves_is_counted_from_the_start_of_a_master_if_no_slave_ever_connected() -> None:
    """Nobody is missed by name then."""
    clock = ManualClock()
    gone = GoneSlaves(clock, 4)
    clock.advance_ms(3_000)
    assert gone.alone_ms() == 3_000
    assert gone.gone_ms() == {}


def test_the_number_of_remembered_disconnected_slaves_is_bounded() -> None:
    """Whoever may follow may come by any number of names; the newest ones are those that are missed."""
    clock = ManualClock()
    gone = GoneSlaves(clock, 3)
    for name in "abcde":
        gone.follows(name)
        gone.left(name)
        clock.advance_ms(1)
    assert list(gone.gone_ms()) == ["c", "d", "e"]
