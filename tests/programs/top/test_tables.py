"""What a table shows first is what an operator sees at all: order, filter and cutting are decided here."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from flintmq.config.units import size_text
from flintmq.programs.top.tables import (
    BROKERS,
    GROUPS,
    TOPICS,
    age_text,
    alarm_lines,
    chosen,
    count_text,
    name_text,
    overview_text,
    rate_text,
)


def names(values: Any) -> list[str]:
    return [one.name for one in values]


def test_topics_are_sorted_by_send_rate_and_system_topics_are_hidden_by_default(view: Any) -> None:
    """Dead letters are users' business."""
    assert names(chosen(TOPICS, view.all_topics)) == ["Orders", "[bold red]x[/]", "%DLQ%billing", "Audit"]
    assert "TBW102" in names(chosen(TOPICS, view.all_topics, with_system=True))
    assert names(chosen(TOPICS, view.all_topics, sorted_by="topic"))[0] == "%DLQ%billing"


def test_groups_that_lag_and_have_no_consumers_are_shown_even_if_no_alarm_is_active(view: Any) -> None:
    calm = attrs.evolve(asyncio.run(view.overview()), alarms=(), errors=())
    assert alarm_lines(calm, 3) == ["no alarms"]
    behind = attrs.evolve(calm, offline_behind=(("audit", 4_200), ("old", 3)))
    assert alarm_lines(behind, 3) == ["no alarms, but nobody consumes for audit (4,200 behind) and 1 more"]


def test_consumer_groups_are_sorted_by_lag_by_default_or_by_state_if_chosen(view: Any) -> None:
    assert names(chosen(GROUPS, view.all_groups)) == ["billing", "odd", "idle"]
    assert names(chosen(GROUPS, view.all_groups, sorted_by="state")) == ["odd", "billing", "idle"]
    state = GROUPS.columns[-1].text
    assert [state(one) for one in chosen(GROUPS, view.all_groups)] == ["1 stuck", "conflict", "offline"]


@pytest.mark.parametrize(("wanted", "found"), [("ORD", ["Orders"]), ("[bold", ["[bold red]x[/]"]), ("none", [])])
def test_a_table_filter_matches_names_that_contain_the_filter_text_in_any_letter_case(
    view: Any, wanted: str, found: list[str]
) -> None:
    assert names(chosen(TOPICS, view.all_topics, wanted=wanted)) == found


def test_the_state_of_a_broker_that_does_not_answer_is_shown_as_away(view: Any) -> None:
    shown = chosen(BROKERS, view.all_brokers, wanted="broker")
    assert [[column.text(one) for column in BROKERS.columns] for one in shown] == [
        ["broker-a:0", "20,480", "19,999", "0.5", "3.0 GiB", "61%", "master"],
        ["broker-b:0", "0", "0", "0.5", "3.0 GiB", "61%", "away"],
    ]
    unknown = attrs.evolve(shown[1], age_s=None)
    assert [column.text(unknown) for column in BROKERS.columns[4:6]] == ["-", "-"], "it never answered"


@pytest.mark.parametrize("kind", [BROKERS, TOPICS, GROUPS])
def test_the_default_sort_order_of_each_table_is_one_of_the_sort_orders_that_the_table_offers(
    kind: Any, view: Any
) -> None:
    values = {"brokers": view.all_brokers, "topics": view.all_topics, "groups": view.all_groups}[kind.title]
    assert kind.sorted_by in kind.orders
    for by in kind.orders:
        assert len(chosen(kind, values, sorted_by=by, with_system=True)) == len(values)


def test_numbers_are_formatted_with_separators_and_units() -> None:
    assert [count_text(one) for one in (None, 0, 1234567)] == ["-", "0", "1,234,567"]
    assert [rate_text(one) for one in (None, 0.0, 3.25, 1234.5)] == ["-", "0", "3.2", "1,234"]
    assert [size_text(one) for one in (0, 2048, 3 << 20, 5 << 40)] == ["0 B", "2.0 KiB", "3.0 MiB", "5.0 TiB"]
    assert [age_text(one) for one in (None, 1.4, 300.0)] == ["-", "1 s", "5 min"]


def test_names_in_tables_are_escaped_and_shortened() -> None:
    """A client may call its group anything."""
    assert name_text("a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"
    assert name_text("x" * 31) == "x" * 29 + "…"


def test_the_list_of_alarms_ends_with_the_number_of_alarms_that_do_not_fit(view: Any) -> None:
    overview = asyncio.run(view.overview())
    assert overview_text(overview, "1 s ago") == (
        "Shop  1 s ago  put 20,480/s  get 19,999/s  lag 12,352  p99 0.5 ms  brokers 2 (1 away)"
    )
    assert alarm_lines(overview, 2) == ["CRITICAL broker.missing: broker-b:0 does not answer: [b]gone[/b]"]
    several = attrs.evolve(overview, errors=("no name server",), alarms=overview.alarms * 3)
    assert alarm_lines(several, 2) == ["ERROR no name server", "… and 3 more: press a"]
    assert alarm_lines(attrs.evolve(overview, alarms=()), 2) == ["no alarms"]
