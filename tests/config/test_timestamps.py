"""A time on a command line decides what is read, moved or exported: one that is misread does that to the wrong messages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config.errors import ConfigError
from flintmq.config.timestamps import AHEAD_MAX_MS, EARLIEST_MS, parse_timestamp

NOW_MS = 1_795_000_000_000
BERLIN = ZoneInfo("Europe/Berlin")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("20261125115418", "2026-11-25T11:54:18+01:00"),
        ("20261125115418123", "2026-11-25T11:54:18.123+01:00"),
        ("20261125115418:123", "2026-11-25T11:54:18.123+01:00"),
        ("20261125", "2026-11-25T00:00:00+01:00"),
        ("2026-11-25", "2026-11-25T00:00:00+01:00"),
        ("2026-11-25#11:54:18:123", "2026-11-25T11:54:18.123+01:00"),
        ("2026-11-25 11:54:18,123", "2026-11-25T11:54:18.123+01:00"),
        ("2026-11-25 11:54:18", "2026-11-25T11:54:18+01:00"),
        ("2026-11-25T11:54", "2026-11-25T11:54:00+01:00"),
        (" 2026-11-25T11:54 ", "2026-11-25T11:54:00+01:00"),
        ("2026-11-25T11", "2026-11-25T11:00:00+01:00"),
        ("2026-W48-3", "2026-11-25T00:00:00+01:00"),
        ("20261125T115418", "2026-11-25T11:54:18+01:00"),
        ("20261125T115418Z", "2026-11-25T11:54:18+00:00"),
        ("2026-11-25T11:54:18.123456+05:30", "2026-11-25T11:54:18.123+05:30"),
        ("2026-11-25T11:54:18.5-0800", "2026-11-25T11:54:18.500-08:00"),
        ("2026-11-25T11:54Z", "2026-11-25T11:54:00+00:00"),
        ("2026-11-25T11:54+01", "2026-11-25T11:54:00+01:00"),
        ("2026-07-01T12:00", "2026-07-01T12:00:00+02:00"),
        ("1764068058123", "2025-11-25T10:54:18.123+00:00"),
        ("946684800000", "2000-01-01T00:00:00+00:00"),
    ],
)
def test_times_in_every_supported_form_are_parsed(text: str, moment: str) -> None:
    """By people, by RocketMQ's clients and tools, and by programs."""
    assert parse_timestamp(text, NOW_MS, BERLIN) == (ms(moment), "")


@pytest.mark.parametrize(
    "text",
    [
        "0", "1", "-1", "1764068058", "20261125115", "202611251154", "1764068058123456", "1764068058123456789", "9" * 30,
        "999999999999999", "20261325", "20260230", "20261125245418", "20261125115461", "1999-12-31T00:00:00Z", "2612-01-15",
        "99991231235959", "00010101000000", "soon", "", " ", "now", "2026-11-25T11:54:18+25:00", "2026-11-25 x", "2026-11",
        "1_764_068_058_123", "٢٠٢٦١١٢٥", "1764068058123.0", "2026-11-25T", "11:54", "2" * 5_000,
        "2026-11-25T11:54:18 Europe/Berlin",
    ],
)  # fmt: skip
def test_malformed_and_implausible_times_are_refused(text: str) -> None:
    """The error names the value, what it was taken for, and what fits."""
    with pytest.raises(ConfigError, match="20260131120000") as refused:
        parse_timestamp(text, NOW_MS, BERLIN)
    assert f"'{text.strip()[:80]}'" in str(refused.value)


def test_the_error_about_a_timestamp_that_is_not_in_milliseconds_shows_its_implausible_date() -> None:
    """Seconds or microseconds are the usual mistake."""
    for text, year in (("1764068058", "1970-01-21"), ("999999999999999", "33658")):
        with pytest.raises(ConfigError, match=rf"read as (a time beyond the calendar|{year})"):
            parse_timestamp(text, NOW_MS, UTC)


def test_times_from_2000_to_ten_years_ahead_are_accepted() -> None:
    """The year 2000, and ten years ahead of now."""
    for moment_ms in (EARLIEST_MS, NOW_MS + AHEAD_MAX_MS):
        assert parse_timestamp(str(moment_ms), NOW_MS)[0] == moment_ms
    for moment_ms in (EARLIEST_MS - 1, NOW_MS + AHEAD_MAX_MS + 1):
        with pytest.raises(ConfigError, match="must be a time from 2000-01-01"):
            parse_timestamp(str(moment_ms), NOW_MS)


@pytest.mark.parametrize(
    "text", ["2026-03-29T02:30", "20260329023000", "2026-03-29#02:00:00:000", "2026-03-29 02:59:59,999"]
)
def test_a_local_time_that_does_not_exist_is_refused(text: str) -> None:
    """Clocks go from 2 to 3: whoever means 3:30, or 1:30, says so."""
    with pytest.raises(
        ConfigError, match=re.escape("skip it when they are set forward. Add the offset from UTC, as in 2026-03-29T")
    ):
        parse_timestamp(text, NOW_MS, BERLIN)
    assert parse_timestamp("2026-03-29T02:30+01:00", NOW_MS, BERLIN) == (ms("2026-03-29T02:30+01:00"), "")


def test_an_ambiguous_local_time_is_reported_and_its_first_occurrence_is_used() -> None:
    """Clocks go from 3 to 2: the first of both is taken, and its reader is told."""
    found_ms, told = parse_timestamp("2026-10-25T02:30", NOW_MS, BERLIN)
    assert found_ms == ms("2026-10-25T02:30+02:00")
    assert "2026-10-25T02:30:00+02:00 and 2026-10-25T02:30:00+01:00; the first is used" in told


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The system's clock is Berlin's."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_a_time_without_a_zone_is_in_the_zone_of_the_system() -> None:
    """As for the local times that the commands print."""
    assert parse_timestamp("20261125115418", NOW_MS) == (ms("2026-11-25T11:54:18+01:00"), "")
    assert "occurs twice" in parse_timestamp("2026-10-25T02:30", NOW_MS)[1]
    with pytest.raises(ConfigError, match="set forward"):
        parse_timestamp("2026-03-29T02:30", NOW_MS)


@given(
    st.datetimes(datetime(2000, 1, 2), datetime(2036, 1, 1)).map(
        lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000)
    ),
    st.sampled_from([UTC, BERLIN, ZoneInfo("America/St_Johns"), ZoneInfo("Australia/Lord_Howe")]),
)
def test_all_text_formats_of_a_time_are_parsed_to_the_same_timestamp(named: datetime, zone: ZoneInfo) -> None:
    """Or is refused where the local clock never shows it."""
    named = named.replace(microsecond=named.microsecond // 1000 * 1000)
    moment = named.replace(tzinfo=zone)
    moment_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    exists = moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == named
    forms = ["%Y%m%d%H%M%S", "%Y-%m-%d#%H:%M:%S:", "%Y-%m-%d %H:%M:%S,", "%Y%m%d%H%M%S:", "%Y-%m-%dT%H:%M:%S."]
    for form in forms:
        text = f"{named:{form}}{named.microsecond // 1000:03}"
        if exists:
            assert parse_timestamp(text, NOW_MS, zone)[0] == moment_ms
        else:
            with pytest.raises(ConfigError, match="set forward"):
                parse_timestamp(text, NOW_MS, zone)
