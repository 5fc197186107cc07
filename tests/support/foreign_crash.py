"""Crash stores with parts that are not FlintMQ's own, whose databases are crashed at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from flintmq.tests.support.crash_check import Check, UndetectableError
from flintmq.tests.support.crash_run import ChangeSpec, CrashFailure, CrashRun, Kind
from flintmq.tests.support.crash_states import states
from flintmq.tests.support.crash_suite import SCRIPTS


class CrashedDatabase(Protocol):
    """What a part keeps beside the store."""

    def at(self, number: int) -> Self:
        """Return what a crash behind so many operations of the disk leaves of it."""
        ...


D = TypeVar("D", bound=CrashedDatabase)


def crash_everywhere(
    kind: Kind,
    make_database: Callable[[], D],
    store_over: Callable[[D], ChangeSpec],
    check_class: type[Check],
) -> int:
    """Crash every script that was thought out, at operations all over it, and check what is left.

    Args:
        kind: the flush strategy.
        make_database: makes an empty database, for each script.
        store_over: puts the part into a store that keeps its rows in a database.
        check_class: what is true of a store after a crash.

    Returns:
        How many crash states were looked at.

    Raises:
        CrashFailure: naming the script, the operation and the damage.
    """
    looked = 0
    for seed in range(len(SCRIPTS)):
        database = make_database()
        run = CrashRun(kind, seed, change=store_over(database)).run(SCRIPTS[seed])
        length = len(run.disk.journal)
        numbers = sorted({length, *range(seed % 5, length, max(1, length // 3))})
        for at, damage, image in states(run.disk, numbers, seed, ("lost", "kept", "sectors")):
            power_cut = damage not in ("killed", "cut")
            check = check_class(run, image, at, power_cut=power_cut, change=store_over(database.at(at)))
            try:
                check.run()
            except UndetectableError:
                continue
            except CrashFailure as failure:
                raise CrashFailure(f"{failure} [seed {seed}, behind operation {at}, {damage}]") from failure
            looked += 1
    return looked
