"""Numbers are written for people, and foreign text cannot break a line or turn its direction."""

from __future__ import annotations

import pytest

from flintmq.programs.console import store_figures, texts


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (texts.count(1234567), "1,234,567"),
        (texts.count(None), "–"),
        (texts.rate(0.25), "0.2"),
        (texts.rate(12345.6), "12,346"),
        (texts.size(1023), "1023 B"),
        (texts.size(3 * 2**30), "3.0 GiB"),
        (texts.size(5 * 2**50), "5120.0 TiB"),
        (texts.percent(0.256), "26%"),
        (texts.when(0), "–"),
        (texts.when(1_700_000_000_123), "2023-11-14 22:13:20.123 UTC"),
        (texts.when(2**62), str(2**62)),
        (texts.when(-1), "-1"),
        (texts.duration(1.23), "1.2 s"),
        (texts.duration(75), "1 min 15 s"),
        (texts.duration(90_000), "1 d 1 h"),
        (texts.measured(0.91, "ratio"), "91%"),
        (texts.measured(2048, "bytes"), "2.0 KiB"),
        (texts.measured(15_000, "ms"), "15 s"),
        (texts.measured(12, "messages"), "12 messages"),
        (texts.shown("a\nb\u202ec\x00"), "a\\nb\\u202ec\\x00"),
        (texts.shown("x" * 301), "x" * 300 + "… (301 characters)"),
    ],
)
def test_the_console_formats_numbers_with_units_and_escapes_control_characters(made: str, expected: str) -> None:
    assert made == expected


def test_the_console_store_page_shows_only_the_store_statistics_that_the_broker_reports() -> None:
    """RocketMQ's broker has other figures, and a hostile one anything."""
    told = {
        "commitLogMaxOffset": "123456",
        "remainTransientStoreBufferNumbs": str(2**31 - 1),
        "commitLogDiskRatio": "0.5",
        "consumeQueueDiskRatio": "much",
        "dispatchBehindBytes": "2048",
        "putTps": "1",
    }
    assert store_figures.of(told) == [
        ("the log ends at byte", "123,456"),
        ("queues and index are behind the log by", "2.0 KiB"),
        ("used of the log's disk", "50%"),
        ("used of the queues' disk", "much"),
    ]
    assert store_figures.of({}) == []
