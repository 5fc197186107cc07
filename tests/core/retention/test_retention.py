"""What is deleted is gone: every rule of retention is tried apart from any disk, and against a plain model."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flintmq.config.sections.models import StoreSection
from flintmq.core.retention.retention import (
    DELETE_FILES_MAX,
    DiskUsage,
    LogFile,
    Moment,
    Reason,
    RetentionPolicy,
    Space,
    full_folders,
    is_held,
    judge_disk,
    judge_space,
    plan_deletions,
)

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
POLICY = RetentionPolicy.of(StoreSection())
MIB = 1024 * 1024
GIB = 1024 * MIB


def disk(used: int, total: int = 100, folder: str = "/a", unit: int = MIB) -> DiskUsage:
    return DiskUsage(Path(folder), total * unit, used * unit, (total - used) * unit)


def files(*ages_h: float | None, size: int = 1000) -> list[LogFile]:
    return [
        LogFile(place * size, size, None if age is None else NOW_MS - int(age * HOUR_MS))
        for place, age in enumerate(ages_h)
    ]


def moment(hour: int = 12, *, space: Space | None = None, manual: bool = False, end: int = 10**9) -> Moment:
    return Moment(NOW_MS, hour, end, 10**9, space or Space(), manual)


def starts(found: object) -> list[int]:
    return [deletion.file.start_offset_bytes for deletion in found]  # type: ignore[attr-defined]


# files


@pytest.mark.parametrize(
    ("circumstances", "deleted"),
    [
        (moment(4), [0, 1000]),
        (moment(5), []),
        (moment(5, space=Space(delete=True)), [0, 1000]),
        (moment(5, manual=True), [0, 1000]),
    ],
)
def test_expired_files_are_deleted_at_the_configured_hour_or_on_request_or_if_the_disk_is_full(
    circumstances: Moment, deleted: list[int]
) -> None:
    """Deleting is work for the disk: it is kept for the small hours unless somebody needs the room now."""
    assert starts(plan_deletions(files(80, 73, 71, 70, 0), circumstances, POLICY)) == deleted


def test_deletion_stops_at_the_first_file_that_has_not_expired() -> None:
    """A log with a hole in the middle cannot be opened."""
    assert starts(plan_deletions(files(80, 10, 80, 0), moment(4), POLICY)) == [0]
    assert starts(plan_deletions(files(80, None, 80, 0), moment(4), POLICY)) == [0]


def test_a_cleaning_round_deletes_a_limited_number_of_files_and_never_the_last_log_file() -> None:
    """Appends go to the last file; and a hundred files must not go at once."""
    everything = moment(4, space=Space(True, True))
    assert starts(plan_deletions(files(1000), everything, POLICY)) == []
    assert starts(plan_deletions(files(1000, 1000), everything, POLICY)) == [0]
    assert len(starts(plan_deletions(files(*[100.0] * 30), everything, POLICY))) == DELETE_FILES_MAX


def test_unexpired_files_are_deleted_if_the_disk_is_nearly_full() -> None:
    """Old messages are worth less than new ones that could not be stored."""
    found = list(plan_deletions(files(80, 1, 0, 0), moment(5, space=Space(True, True)), POLICY))
    assert [deletion.reason for deletion in found] == [Reason.FORCIBLY] * 3
    # Only when deleting is due at all: with diskMaxUsedSpaceRatio above the forcible ratio RocketMQ waits for the hour.
    assert starts(plan_deletions(files(80, 1, 0), moment(5, space=Space(False, True)), POLICY)) == []


def test_deletion_by_retention_bytes_leaves_at_least_the_configured_number_of_log_bytes() -> None:
    """At any hour, and never so much that less than the wanted bytes remain."""
    policy = replace(POLICY, retention_bytes=2500)
    found = list(plan_deletions(files(0, 0, 0, 0, 0), moment(5, end=4600), policy))
    assert starts(found) == [0, 1000]
    assert {deletion.reason for deletion in found} == {Reason.BYTES}


def test_files_not_yet_synced_or_dispatched_are_kept() -> None:
    """A file that must still be synced or dispatched is not deleted under anybody's hands."""
    needed = replace(moment(4), deletable_until_bytes=1500)
    assert starts(plan_deletions(files(80, 80, 80, 0), needed, POLICY)) == [0]


@given(
    ages=st.lists(st.one_of(st.none(), st.integers(0, 100)), max_size=25),
    hour=st.integers(0, 23),
    delete=st.booleans(),
    forcibly=st.booleans(),
    manual=st.booleans(),
    tail=st.integers(0, 999),
    needed_from=st.integers(0, 26_000),
    retention_bytes=st.one_of(st.just(0), st.integers(1, 30_000)),
)
def test_retention_selects_the_same_files_for_deletion_as_a_simple_reference_implementation(
    ages: list[int | None],
    hour: int,
    delete: bool,
    forcibly: bool,
    manual: bool,
    tail: int,
    needed_from: int,
    retention_bytes: int,
) -> None:
    """The model says of each file by itself whether it may go; the plan is the longest run of those, and no more."""
    policy = replace(POLICY, retention_bytes=retention_bytes)
    log = files(*ages)
    end = max(0, (len(log) - 1) * 1000 + tail)
    now = Moment(NOW_MS, hour, end, needed_from, Space(delete, forcibly), manual)
    by_time = hour == 4 or delete or manual

    def may_go(place: int) -> bool:
        age = ages[place]
        old = by_time and (forcibly or (age is not None and age >= 72))
        surplus = bool(retention_bytes) and end - (place + 1) * 1000 >= retention_bytes
        return (place + 1) * 1000 <= needed_from and (old or surplus)

    run = 0
    while run < min(len(log) - 1, DELETE_FILES_MAX) and may_go(run):
        run += 1
    found = list(plan_deletions(log, now, policy))
    assert starts(found) == [place * 1000 for place in range(run)]
    if retention_bytes and not by_time and found:
        assert end - found[-1].file.end_offset_bytes >= retention_bytes


def test_log_files_that_a_group_has_not_consumed_are_kept_up_to_the_size_limit_hold_max_bytes() -> None:
    """A dead group must not fill the disk for ever."""
    policy = replace(POLICY, hold_until_consumed=True, hold_max_bytes=5000)
    file = files(80)[0]
    assert is_held(file, 5000, policy)
    assert not is_held(file, 5001, policy)
    assert not is_held(file, 100, POLICY)


# space


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (75, (False, False, False)),
        (76, (True, False, False)),
        (85, (True, False, False)),
        (86, (True, True, False)),
        (90, (True, True, False)),
        (91, (True, True, True)),
    ],
)
def test_disk_thresholds_equal_those_of_rocketmq(used: int, expected: tuple[bool, bool, bool]) -> None:
    """75, 85 and 90 percent: above each, not at it."""
    policy = replace(POLICY, min_free_bytes=0)
    space = judge_disk(disk(used), policy)
    assert (space.delete, space.forcibly, space.full is not None) == expected


def test_a_disk_with_enough_free_bytes_is_not_full_despite_a_high_used_ratio() -> None:
    """On a large shared disk a ratio alone would refuse all writes with terabytes free: a defect of RocketMQ."""
    large = disk(95, unit=GIB)
    assert judge_disk(large, POLICY) == Space(delete=True)
    strict = RetentionPolicy.of(StoreSection(compat="strict"))
    assert judge_disk(large, strict).full is not None


def test_a_disk_with_too_few_free_bytes_is_full_even_if_its_used_ratio_is_low() -> None:
    """Five percent of a small disk may be less than the next step of a file."""
    small = disk(50, unit=MIB)
    space = judge_disk(small, POLICY)
    assert space.full is not None
    assert space.full.key == "store.disk_min_free_bytes"
    assert space.delete
    assert space.forcibly
    assert "50.0% used" in space.full.measured
    assert judge_disk(DiskUsage(Path("/a"), 0, 0, 0), replace(POLICY, min_free_bytes=0)).full is not None


def test_unexpired_files_are_kept_on_a_full_disk_if_forced_cleaning_is_disabled() -> None:
    """cleanFileForciblyEnable: false keeps what has not expired, and refuses writes instead."""
    space = judge_disk(disk(95), replace(POLICY, clean_forcibly=False))
    assert space.full is not None
    assert not space.forcibly


def test_a_full_log_disk_does_not_make_the_store_full_if_another_log_disk_has_space() -> None:
    """Files can still be made there; the queues' disk counts by itself."""
    policy = replace(POLICY, min_free_bytes=0)
    full, half = disk(95, folder="/full"), disk(50, folder="/half")
    assert judge_space([full, half], half, policy) == Space()
    assert judge_space([full, half], full, policy).full is not None
    assert judge_space([full], None, policy).full is not None
    assert full_folders([full, half], policy) == {Path("/full")}


def test_a_disk_whose_usage_is_unknown_causes_no_deletion() -> None:
    """RocketMQ takes -1 for 'nearly full' and deletes."""
    assert judge_space([], None, POLICY) == Space()


@given(
    used=st.integers(0, 2**44),
    free=st.integers(0, 2**44),
    enough=st.integers(0, 2**40),
    minimum=st.integers(0, 2**40),
)
def test_unexpired_files_may_be_deleted_if_the_disk_is_too_full_for_writes(
    used: int, free: int, enough: int, minimum: int
) -> None:
    """Whoever refuses writes must also try to make room."""
    policy = replace(POLICY, enough_free_bytes=enough, min_free_bytes=minimum)
    space = judge_disk(DiskUsage(Path("/a"), used + free, used, free), policy)
    if space.full is not None:
        assert space.forcibly
        assert space.delete
    if minimum and free < minimum:
        assert space.full is not None
    elif enough and free >= enough:
        assert space.full is None


def test_the_configuration_sets_the_hours_of_deletion_and_the_retention_time_and_the_disk_limit() -> None:
    """Hours are local and several; a ratio out of range is the nearest within, as RocketMQ takes it."""
    policy = RetentionPolicy.of(StoreSection(delete_when="4;16", file_reserved_hours=1, disk_max_used_ratio=99))
    assert policy.delete_hours == {4, 16}
    assert policy.reserved_ms == HOUR_MS
    assert policy.max_used_ratio == 0.95
