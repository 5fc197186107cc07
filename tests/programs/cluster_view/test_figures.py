"""Figures come from brokers of several versions: what is missing or malformed is 0, and never an error of the page."""

from __future__ import annotations

import pytest

from flintmq.programs.cluster_view import figures


@pytest.mark.parametrize(("text", "value"), [("1.239 2.0 3.0", 1.24), ("", 0.0), ("much", 0.0)])
def test_only_the_first_of_several_rates_in_a_runtime_info_entry_is_read(text: str, value: float) -> None:
    assert figures.first(text) == value


def test_missing_or_malformed_numbers_in_runtime_info_are_read_as_0() -> None:
    assert [figures.number({"a": text}, "a") for text in (" 12 ", "-3", "x", "")] == [12, -3, 0, 0]
    assert figures.number({}, "a") == 0


def test_the_replication_state_of_a_broker_is_read_from_its_runtime_info() -> None:
    master = {"haSlaves": "1", "haHeldOffset": "7", "haBehindBytes": "-1"}
    assert figures.replication_of(master) == {"role": "master", "slaves": 1, "held_offset": 7, "behind_bytes": None}
    assert figures.replication_of({"haFollows": "true"}) == {"role": "slave", "follows": True}
    assert figures.replication_of({}) == {}


def test_the_put_latency_is_none_if_the_broker_does_not_report_it() -> None:
    """Those of old versions do not: nothing is not the same as 0 ms."""
    assert figures.put_latency_99_ms({"putLatency99": "0.50"}) == 0.5
    assert figures.put_latency_99_ms({}) is None
    assert figures.put_latency_99_ms({"putLatency99": "0.00"}) is None


def test_the_cluster_view_finds_conflicting_subscriptions_in_the_runtime_info_of_a_broker() -> None:
    told = {"contradictorySubscriptions": "g: a@1, b@2; h: c@3"}
    assert figures.odd_groups(told) == {"g": "a@1, b@2", "h": "c@3"}
    assert figures.odd_groups({}) == {}
