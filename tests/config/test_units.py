"""Sizes and durations decide how much disk and time is used: what is accepted must be exact, and everything else refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config.errors import ConfigError
from flintmq.config.units import format_duration, format_size, parse_duration, parse_integer, parse_quantity, parse_size


@pytest.mark.parametrize(
    ("text", "value_bytes"),
    [
        ("4096", 4096),
        ("64KiB", 65_536),
        ("64 kib", 65_536),
        ("64MiB", 67_108_864),
        ("1GiB", 1_073_741_824),
        ("10MB", 10_000_000),
        ("6_000_000", 6_000_000),
        ("7B", 7),
        (" 0 ", 0),
    ],
)
def test_sizes_with_units_are_parsed(text: str, value_bytes: int) -> None:
    """KiB is 1024 and KB is 1000."""
    assert parse_size(text) == value_bytes


@pytest.mark.parametrize(
    ("text", "value_ms"), [("500ms", 500), ("5s", 5_000), ("10m", 600_000), ("1h", 3_600_000), ("2d", 172_800_000)]
)
def test_durations_with_units_are_parsed(text: str, value_ms: int) -> None:
    """The five units."""
    assert parse_duration(text) == value_ms


def test_a_number_without_a_unit_is_in_the_unit_that_its_setting_name_implies() -> None:
    """RocketMQ's serverChannelMaxIdleTimeSeconds is in seconds while our key is in milliseconds."""
    assert parse_duration("120") == 120
    assert parse_duration("120", "ms", plain="s") == 120_000
    assert parse_duration("3d", "hours") == 72
    assert parse_duration("72", "hours") == 72
    assert parse_quantity("7", None) == 7


@pytest.mark.parametrize("text", ["", "-1", "1.5GiB", "64K", "MiB", "1e3", "٣", "1 2", "9" * 50, "5s", "0x10", "1__0"])
def test_malformed_sizes_are_refused(text: str) -> None:
    """``64K`` could be either; a guess would be wrong half of the time."""
    with pytest.raises(ConfigError, match="must be a size such as"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "-5s", "5 minutes", "1.5h", "5S", "1MiB", "inf", "nan"])
def test_malformed_durations_are_refused(text: str) -> None:
    """``5M`` may be minutes or months: case counts."""
    with pytest.raises(ConfigError, match="must be a duration such as"):
        parse_duration(text)


def test_a_duration_that_is_not_a_whole_number_of_its_unit_is_refused() -> None:
    """Rounding silently would keep files for an hour less than asked."""
    with pytest.raises(ConfigError, match="whole number of hours"):
        parse_duration("90m", "hours")


@pytest.mark.parametrize("text", ["", "a", "1.0", "1e5", "--1", "9" * 5000])
def test_malformed_integers_are_refused(text: str) -> None:
    """Very long digits must be refused before ``int`` sees them."""
    with pytest.raises(ConfigError, match="must be a whole number"):
        parse_integer(text)


@given(st.integers(0, 2**62))
def test_formatted_sizes_and_durations_parse_to_the_same_value(value: int) -> None:
    """``config show`` and the import write what the loader reads."""
    assert parse_size(format_size(value)) == value
    assert parse_duration(format_duration(value)) == value
    assert parse_duration(format_duration(value, "hours"), "hours") == value


@given(st.text(max_size=60))
def test_each_parser_returns_an_integer_or_raises_a_config_error_for_any_text(text: str) -> None:
    """Nothing but ConfigError may escape from what an operator types."""
    for parse in (parse_size, parse_duration, parse_integer):
        with contextlib.suppress(ConfigError):
            assert isinstance(parse(text), int)


def test_sizes_and_durations_are_formatted_with_the_largest_exact_unit() -> None:
    """6,000,000 bytes is no number of MiB and must not be shown as one."""
    assert [format_size(n) for n in (0, 1024, 1024**3, 6_000_000)] == ["0", "1KiB", "1GiB", "6000000"]
    assert [format_duration(n) for n in (0, 500, 1_500, 60_000)] == ["0", "500ms", "1500ms", "1m"]
