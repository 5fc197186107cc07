"""Crash the store at any operation, in any way the disk allows: nothing that was promised may be lost, and it goes on.

More states: ``pytest tests/crash --crash-states 100000``, other scripts: ``--crash-seed 1000``.
"""

from __future__ import annotations

import contextlib
import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.io import lazy_numpy
from flintmq.core.record import bulk_scan
from flintmq.dispatchers.index import index_bulk
from flintmq.testing.journaled_files import Image
from flintmq.tests.support.crash_check import Check, UndetectableError
from flintmq.tests.support.crash_run import LETTERS, CrashRun, Kind
from flintmq.tests.support.crash_states import KINDS, states
from flintmq.tests.support.crash_suite import SCRIPTS, explore, explore_errors, explore_recoveries
from flintmq.tests.support.effort import examples

pytestmark = pytest.mark.timeout(0)


def test_a_kill_or_power_cut_during_store_operations_loses_no_acknowledged_message(
    kind: Kind, crash_states: int, seed: int
) -> None:
    """Killed and without power, at any operation: acknowledged messages, queues, index, what comes after."""
    tally = explore(kind, crash_states * 9 // 30, seed)
    assert tally.total() >= crash_states * 9 // 30
    assert tally["undetectable"] <= tally.total() // 50
    assert {"killed", "cut", *KINDS} <= tally.keys()


def test_a_crash_during_a_recovery_loses_no_acknowledged_message(kind: Kind, crash_states: int, seed: int) -> None:
    """The second start finds what the first one left half done."""
    explore_recoveries(kind, crash_states // 40, seed)


def test_a_message_is_not_acknowledged_after_a_disk_error(kind: Kind, crash_states: int, seed: int) -> None:
    """The n-th operation fails, once or for ever: fenced once, no other exception, reads go on, and it recovers."""
    explore_errors(kind, crash_states // 60, seed)


def test_no_message_is_lost_in_a_crash_after_any_short_sequence_of_store_operations(
    kind: Kind, crash_states: int
) -> None:
    """All sequences of the steps that matter most: what two to four of them do to each other."""
    longest = 2 + (crash_states >= 6_000) + (crash_states >= 50_000)
    for length in range(1, longest + 1):
        for number, steps in enumerate(itertools.product("pPfdqkrC", repeat=length)):
            run = CrashRun(kind, number).run(steps)
            end = len(run.disk.journal)
            for at, damage, image in states(run.disk, sorted({end, end - number % 17}), number, ("lost", "sectors")):
                with contextlib.suppress(UndetectableError):
                    Check(run, image, at, power_cut=damage not in ("killed", "cut")).run(goes_on=False)


def test_recovered_consume_queues_have_the_same_bytes_as_those_rebuilt_from_the_commit_log(kind: Kind) -> None:
    """The log is the truth: queues deleted and made anew have the same bytes."""
    run = CrashRun(kind, 1).run("ptdptbCtpdqtptPCtfdtpbhCtdtptkptdf")
    numbers = range(20, len(run.disk.journal), 11)
    for at, damage, image in states(run.disk, numbers, 1, ("lost", "pages", "sectors")):
        check = Check(run, image, at, power_cut=damage not in ("killed", "cut"))
        recovered = check.run(goes_on=False).image()
        queues = {path: raw for path, raw in recovered.files.items() if "consumequeue" in path.parts}
        without = {path: raw for path, raw in recovered.files.items() if path not in queues}
        folders = frozenset(folder for folder in recovered.folders if "consumequeue" not in folder.parts)
        rebuilt = Check(run, Image(without, folders), at, power_cut=False, survivors={}).run(goes_on=False).image()
        made = {path: raw for path, raw in rebuilt.files.items() if "consumequeue" in path.parts}
        assert made == {path: raw for path, raw in queues.items() if raw.strip(b"\0")}


@given(script=st.text(LETTERS, max_size=20), point=st.floats(0, 1), number=st.integers(0, 10_000))
@settings(max_examples=examples(40))
def test_a_crash_during_random_store_operations_loses_no_acknowledged_message(
    kinds: list[Kind], script: str, point: float, number: int
) -> None:
    """Scripts nobody thought of, made small when one fails."""
    run = CrashRun(kinds[number % len(kinds)], number).run(script)
    for at, damage, image in states(run.disk, [int(point * len(run.disk.journal))], number):
        try:
            Check(run, image, at, power_cut=damage not in ("killed", "cut")).run()
        except UndetectableError:
            continue


def test_the_scripts_of_the_crash_tests_contain_every_kind_of_store_operation() -> None:
    """A step that no script does is never crashed in."""
    assert set("".join(SCRIPTS)) >= set(LETTERS) - {"Q"}


def test_at_least_2000_crash_states_are_generated_per_second(group_commit: Kind) -> None:
    """A hundred thousand of them are a matter of minutes only when making them costs next to nothing."""
    disk = CrashRun(group_commit, 1).run(SCRIPTS[1]).disk
    numbers = range(len(disk.journal) + 1)
    began = time.process_time()
    count = sum(1 for _state in states(disk, numbers, 1))
    assert count / (time.process_time() - began) > 2_000


def test_the_same_seed_gives_the_same_crash_states(kind: Kind) -> None:
    """A failure that cannot be had again cannot be mended."""
    keys = []
    for _ in range(2):
        disk = CrashRun(kind, 5).run(SCRIPTS[2]).disk
        keys.append([image.key() for _at, _damage, image in states(disk, range(0, len(disk.journal), 7), 5)])
    assert keys[0] == keys[1]


def test_no_acknowledged_message_is_lost_if_recovery_after_a_crash_reads_many_records_at_once(
    kind: Kind, crash_states: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small stores are recovered record by record: here as large ones are."""
    lazy_numpy.load()
    monkeypatch.setattr(lazy_numpy, "loaded", lambda: True)
    monkeypatch.setattr(bulk_scan, "BYTES_MIN", 0)
    monkeypatch.setattr(bulk_scan, "ROWS_MIN", 1)
    monkeypatch.setattr(index_bulk, "LEAST", 1)
    explore(kind, crash_states // 60, seed + 1)
    explore_recoveries(kind, crash_states // 120, seed + 1)
    explore_errors(kind, crash_states // 120, seed + 1)
