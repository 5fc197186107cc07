"""Recover and check many crash states of many scripts.

The suites take a *budget* of states and a seed; the same ones give the same states. Authors of a flush strategy run them, too::

    from flintmq.tests.support.crash_run import Kind
    from flintmq.tests.support.crash_suite import explore

    explore(Kind(my_strategy, my_settings), budget=2_000, seed=1)
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from flintmq.core.errors import StoreError
from flintmq.core.record.record import decode_records
from flintmq.testing.journaled_files import Image
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.tests.support.crash_check import Check, UndetectableError, expect
from flintmq.tests.support.crash_run import CrashFailure, CrashRun, Kind
from flintmq.tests.support.crash_states import KINDS, CrashPoint, states

SCRIPTS: Final = (
    "pCfd",
    "ppfqdpCfdbbCfdqpPCfdtPpCfq",
    "pbfdpqPCfdhcCfditqPpCfdikpfd",
    "DDhuCfdtcpqfdPPCfdeTPPCfdqepfd",
    "pppdpppCsdtttttqpppssdqPpCfd",
    "bbbCfdiibbbCfdibbbbCfdibbCfdqbbb",
    "pfdqttttPfdqttttPfdqpppfdkpprpfd",
    "uuhuCfduqkuuCfdruukpCfd",
    "PfdqPfdqPfdqTeePfdqPCfdeqpkpfdr",
    "bbbCdibbbbCdiqbbCdiqbCdiqpCfdiqb",
    "pfdqtttttpfdqtttttPfdqtttttbfdqtttttp",
    "ptdptbCtptdpPCtptCdtbtpCdtpqtpPCtpdtpfd",
)
"""Every step, with what tends to go wrong around it: files that end, an index that rolls, deletion, restarts."""
_WEIGHTED: Final = "pppppppbbPDhcuffffCCCsdddqqQiettTrkk"
_POINTS: Final = 16
_ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE)


def script_of(seed: int) -> str:
    """Return the script of a seed: first those that were thought out, then random ones."""
    if seed < len(SCRIPTS):
        return SCRIPTS[seed]
    rng = random.Random(seed)
    return "".join(rng.choice(_WEIGHTED) for _ in range(rng.randrange(8, 48)))


def explore(
    kind: Kind,
    budget: int,
    seed: int = 0,
    *,
    scripts: Callable[[int], str] = script_of,
) -> Counter[str]:
    """Recover distinct crash states until the budget is spent, and return how many of each kind.

    Raises:
        CrashFailure: a promise was broken; its text says how to get there again.
    """
    tally: Counter[str] = Counter()
    seen: set[tuple[int, bool, int]] = set()
    while len(seen) < budget:
        script = scripts(seed)
        where = f"strategy {kind.strategy.name}, seed {seed}, script {script}"
        run = _run(kind, seed, script, where)
        rng = random.Random(seed)
        number = len(run.disk.journal)
        numbers = sorted(rng.sample(range(number + 1), min(_POINTS, number + 1)))
        for at, damage, image in states(run.disk, numbers, seed):
            power_cut = damage not in ("killed", "cut")
            check = Check(run, image, at, power_cut=power_cut)
            key = (image.key(), power_cut, len(check.survivors))
            if key in seen:
                continue
            seen.add(key)
            tally[_checked(check, f"{where}, behind operation {at}, {damage}", damage)] += 1
            if len(seen) >= budget:
                break
        seed += 1
    return tally


def explore_recoveries(kind: Kind, budget: int, seed: int = 0) -> Counter[str]:
    """Crash in the middle of recoveries and recover again, as a crash does that meets the operator's second start."""
    tally: Counter[str] = Counter()
    while tally.total() < budget:
        script = script_of(seed)
        where = f"strategy {kind.strategy.name}, seed {seed}, script {script}"
        run = _run(kind, seed, script, where)
        rng = random.Random(seed)
        number = rng.randrange(len(run.disk.journal) + 1)
        damages = ("killed", *rng.sample(KINDS, 2))
        for at, damage, image in states(run.disk, [number], seed, damages[1:]):
            power_cut = damage not in ("killed", "cut")
            check = Check(run, image, at, power_cut=power_cut)
            there = f"{where}, behind operation {at}, {damage}"
            try:
                disk = check.run(goes_on=False, journal=True)
            except UndetectableError:
                continue
            length = len(disk.journal)
            again = sorted(rng.sample(range(length + 1), min(_POINTS // 2, length + 1)))
            for second, damage2, image2 in states(disk, again, seed, rng.sample(KINDS, 2)):
                lost = damage2 not in ("killed", "cut")
                compound = Check(run, image2, at, power_cut=lost, survivors=check.survivors, boot=disk.boot)
                tally[_checked(compound, f"{there}; then behind operation {second}, {damage2}", damage2)] += 1
        seed += 1
    return tally


def explore_errors(kind: Kind, budget: int, seed: int = 0) -> Counter[str]:
    """Let the n-th operation fail, once or for ever, and hold the store to what it promises then.

    No error but the store's own; after a failed sync of the log no acknowledgement, and one fence; reads go on; and what is
    left is recovered as after a crash.
    """
    tally: Counter[str] = Counter()
    while tally.total() < budget:
        script = script_of(seed)
        asked = _run(kind, seed, script, "").disk.asked
        rng = random.Random(seed)
        syncs = [number for number, what in enumerate(asked) if what == "sync"]
        others = [number for number, what in enumerate(asked) if what not in ("sync", "write")]
        for number in rng.sample(syncs, min(len(syncs), _POINTS)) + rng.sample(others, min(len(others), _POINTS)):
            error, for_ever = rng.choice(_ERRORS), rng.random() < 0.5
            often = "for ever" if for_ever else "once"
            where = (
                f"strategy {kind.strategy.name}, seed {seed}, script {script}, "
                f"operation {number} fails {often} with {errno.errorcode[error]}"
            )
            tally[f"{errno.errorcode[error]} {often}"] += 1
            run_with_error(kind, seed, script, number, error, for_ever=for_ever, where=where)
        seed += 1
    return tally


def run_with_error(
    kind: Kind, seed: int, script: str, number: int, error: int, *, for_ever: bool, where: str = ""
) -> CrashRun | None:
    """Run one such case; return the run, or None where the store could not even start."""
    disk = SimulatedDisk()
    disk.fail(number, error, for_ever=for_ever)
    try:
        run = CrashRun(kind, seed, disk=disk)
    except StoreError:
        return None
    except Exception as problem:
        raise CrashFailure(f"a disk's error becomes one of the store's; seen: {problem!r} [{where}]") from problem
    try:
        run.run(script)
        if run.alive:
            read_all(run)
    except CrashFailure as failure:
        raise CrashFailure(f"{failure} [{where}]") from failure
    except Exception as problem:
        raise CrashFailure(f"a disk's error becomes one of the store's; seen: {problem!r} [{where}]") from problem
    disk.heal()
    length = len(disk.journal)
    for at, damage, image in states(disk, [length], seed, ("lost", "sectors")):
        check = Check(run, image, at, power_cut=damage != "killed")
        _checked(check, f"{where}; then {damage}", damage)
    return run


def read_all(run: CrashRun) -> None:
    """Read every message that was dispatched. Raises CrashFailure where one is missing."""
    store = run.store
    given: set[tuple[str, int, int]] = set()
    for key, queue in store.consume_queues.queues.items():
        queue_offset = queue.min_queue_offset
        while queue_offset < queue.max_queue_offset:
            result = store.reader.get_message(*key, queue_offset, 32, None)
            expect(result.next_begin_offset > queue_offset, "a read gets on", (key, queue_offset, result.status))
            given |= {(*key, record.queue_offset) for piece in result.slices for record in decode_records(piece)}
            queue_offset = result.next_begin_offset
    survivors = run.survivors(len(run.disk.journal), power_cut=False)
    for request in survivors.values():
        dispatched = request.commit_log_offset_bytes < store.watermarks.dispatched
        if dispatched and not request.sys_flag & 0x4:
            place = (request.topic, request.queue_id, request.queue_offset)
            expect(place in given, "reads go on", place)


def _run(kind: Kind, seed: int, script: str, where: str) -> CrashRun:
    try:
        return CrashRun(kind, seed).run(script)
    except CrashFailure as failure:
        raise CrashFailure(f"{failure} [{where}]") from failure
    except Exception as problem:
        raise CrashFailure(f"a script runs through; seen: {problem!r} [{where}]") from problem


def _checked(check: Check, where: str, damage: str) -> str:
    """Check a state; return what it counts as."""
    try:
        check.run()
    except UndetectableError:
        return "undetectable"
    except CrashFailure as failure:
        raise CrashFailure(f"{failure} [{where}]") from failure
    except Exception as problem:
        raise CrashFailure(f"a recovery never fails; seen: {problem!r} [{where}]") from problem
    return damage


def state_of(kind: Kind, seed: int, script: str, number: int, damage: str) -> tuple[CrashRun, Image]:
    """Make one state again, as a failure's text names it."""
    run = CrashRun(kind, seed).run(script)
    for _at, found, image in states(run.disk, [number], seed):
        if found == damage:
            return run, image
    raise ValueError(f"operation {number} has no state {damage!r}")


__all__ = [
    "SCRIPTS",
    "CrashPoint",
    "explore",
    "explore_errors",
    "explore_recoveries",
    "read_all",
    "run_with_error",
    "script_of",
    "state_of",
]
