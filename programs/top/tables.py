"""The tables of ``flintmq top`` as rows of text: filtered, sorted and cut. The functions need no terminal.

Cells are plain text. Names come from clients, so a display must not interpret markup in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import attrs

from flintmq.config.units import size_text
from flintmq.core.client_log import printable
from flintmq.programs.cluster_view.values import BrokerView, GroupView, Overview, PlacedAlarm, TopicView

T = TypeVar("T", BrokerView, TopicView, GroupView)

ROWS_MAX: Final = 200
"""Maximum number of rows of a table that are shown. A filter or another order shows the other rows."""
NAME_MAX_CHARS: Final = 30
UNKNOWN: Final = "-"


def name_text(name: str) -> str:
    """Return a name on one line, shortened if it is long."""
    text = printable(name, 1_000)
    return text if len(text) <= NAME_MAX_CHARS else f"{text[: NAME_MAX_CHARS - 1]}…"


def count_text(count: float | None) -> str:
    """Return a whole number with commas between thousands; a dash for None."""
    return UNKNOWN if count is None else f"{count:,.0f}"


def rate_text(per_s: float | None) -> str:
    """Return a rate as text, with one decimal if the rate is small; a dash for None."""
    if per_s is None:
        return UNKNOWN
    return f"{per_s:,.0f}" if per_s >= 100 or per_s == 0 else f"{per_s:.1f}"


def age_text(age_s: float | None) -> str:
    """Return an age in seconds, or in minutes from two minutes on; a dash for None."""
    if age_s is None:
        return UNKNOWN
    return f"{age_s:.0f} s" if age_s < 120 else f"{age_s / 60:.0f} min"


@attrs.frozen
class Column(Generic[T]):
    """A column of a table: its heading, its text for a value, and its sort key."""

    heading: str
    text: Callable[[T], str]
    order: Callable[[T], Any] | None = None
    """Function that returns the sort key for this column; None if the table cannot be sorted by this column."""
    is_number: bool = True


@attrs.frozen
class Kind(Generic[T]):
    """A table of ``flintmq top``: brokers, topics or groups. The user can sort it by some of its columns."""

    title: str
    columns: tuple[Column[T], ...]
    key: Callable[[T], str]
    """Function that returns the key of a row. The key of a row stays the same after a refresh."""
    sorted_by: str
    """The heading of the column by which the table is sorted at first."""

    @property
    def orders(self) -> list[str]:
        """The headings of the table's sortable columns."""
        return [column.heading for column in self.columns if column.order is not None]


def _falling(value: float | None) -> tuple[bool, float]:
    """Return a sort key that puts larger numbers first and unknown numbers last."""
    return (value is None, -(value or 0))


def _broker_state(broker: BrokerView) -> str:
    if broker.error:
        return "away"
    critical = any(alarm.level == "critical" for alarm in broker.alarms)
    role = "slave" if broker.broker_id else "master"
    return f"{role}, alarm" if critical else role


def _known(broker: BrokerView, text: str) -> str:
    """Return the text of a broker's figure; a dash if the broker has never answered."""
    return UNKNOWN if broker.age_s is None else text


def _group_state(group: GroupView) -> str:
    words = ["conflict"] if group.conflict else []
    words += [f"{len(group.stuck)} stuck"] if group.stuck else []
    words += ["away"] if group.missing else []
    if not words and group.state == "broadcasting":
        words = ["broadcasting"]
    if not words and group.members == 0:
        words = ["offline"]
    return ", ".join(words)


BROKERS: Final = Kind[BrokerView](
    "brokers",
    (
        Column("broker", lambda one: name_text(f"{one.name}:{one.broker_id}"), lambda one: one.name, is_number=False),
        Column("put/s", lambda one: rate_text(one.put_per_s), lambda one: _falling(one.put_per_s)),
        Column("get/s", lambda one: rate_text(one.get_per_s), lambda one: _falling(one.get_per_s)),
        Column(
            "p99 ms",
            lambda one: UNKNOWN if one.put_latency_99_ms is None else f"{one.put_latency_99_ms:.1f}",
            lambda one: _falling(one.put_latency_99_ms),
        ),
        Column(
            "log", lambda one: _known(one, size_text(one.commit_log_bytes)), lambda one: _falling(one.commit_log_bytes)
        ),
        Column("disk", lambda one: _known(one, f"{one.disk_ratio:.0%}"), lambda one: _falling(one.disk_ratio)),
        Column("state", _broker_state, is_number=False),
    ),
    lambda one: f"{one.name}:{one.broker_id}",
    "broker",
)
TOPICS: Final = Kind[TopicView](
    "topics",
    (
        Column("topic", lambda one: name_text(one.name), lambda one: one.name, is_number=False),
        Column("put/s", lambda one: rate_text(one.put_per_s), lambda one: (_falling(one.put_per_s), one.name)),
        Column("lag", lambda one: count_text(one.lag), lambda one: (_falling(one.lag), one.name)),
        Column("messages", lambda one: count_text(one.messages), lambda one: (_falling(one.messages), one.name)),
        Column("queues", lambda one: str(one.read_queues)),
        Column("groups", lambda one: str(len(one.groups))),
        Column("state", lambda one: "away" if one.missing else "", is_number=False),
    ),
    lambda one: one.name,
    "put/s",
)
GROUPS: Final = Kind[GroupView](
    "groups",
    (
        Column("group", lambda one: name_text(one.name), lambda one: one.name, is_number=False),
        Column("lag", lambda one: count_text(one.lag), lambda one: (_falling(one.lag), one.name)),
        Column("get/s", lambda one: rate_text(one.get_per_s), lambda one: (_falling(one.get_per_s), one.name)),
        Column("members", lambda one: count_text(one.members), lambda one: (_falling(one.members), one.name)),
        Column("topics", lambda one: str(len(one.topics))),
        Column("state", _group_state, lambda one: (not one.conflict, not one.stuck, one.name), is_number=False),
    ),
    lambda one: one.name,
    "lag",
)


def chosen(
    kind: Kind[T], values: Sequence[T], *, wanted: str = "", sorted_by: str = "", with_system: bool = False
) -> list[T]:
    """Return the values that a table shows, filtered and sorted.

    Args:
        kind: the kind of the table.
        values: all values.
        wanted: a part of the names to show, regardless of case; empty for all.
        sorted_by: the heading of a column; empty for the kind's default.
        with_system: whether to show the system's topics and groups, too.
    """
    order = next(column.order for column in kind.columns if column.heading == (sorted_by or kind.sorted_by))
    shown = [
        value
        for value in values
        if wanted.casefold() in kind.key(value).casefold()
        and (with_system or getattr(value, "kind", "user") in ("user", "dead_letter"))
    ]
    return sorted(shown, key=order)


def overview_text(overview: Overview, state: str) -> str:
    """Return the top line of ``flintmq top``. The most important figures come first, because a narrow terminal cuts the
    line."""
    away = f" ({overview.brokers_missing} away)" if overview.brokers_missing else ""
    latency = "" if overview.put_latency_99_ms is None else f"p99 {overview.put_latency_99_ms:.1f} ms  "
    clusters = name_text(", ".join(overview.clusters)) or "no cluster"
    return (
        f"{clusters}  {state}  put {rate_text(overview.put_per_s)}/s  get {rate_text(overview.get_per_s)}/s  "
        f"lag {count_text(overview.lag)}  {latency}brokers {overview.brokers}{away}"
    )


def alarm_text(alarm: PlacedAlarm) -> str:
    """Return an alarm on one line. The level comes first as a word, so that no color is needed."""
    place = f" {name_text(alarm.broker)}" if alarm.broker and alarm.broker != alarm.subject else ""
    return f"{printable(alarm.level.upper(), 20)} {printable(alarm.id, 200)}{place}: {printable(alarm.message, 1_000)}"


def alarm_lines(overview: Overview, room: int) -> list[str]:
    """Return a cluster's errors and alarms in at most ``room`` lines; the last line has the number of further errors and
    alarms."""
    lines = [f"ERROR {printable(error, 1_000)}" for error in overview.errors]
    lines += [alarm_text(alarm) for alarm in overview.alarms]
    if len(lines) > room:
        return [*lines[: room - 1], f"… and {len(lines) - room + 1} more: press a"]
    if not lines and overview.offline_behind:
        name, lag = overview.offline_behind[0]
        more = f" and {len(overview.offline_behind) - 1} more" if len(overview.offline_behind) > 1 else ""
        lines = [f"no alarms, but nobody consumes for {name_text(name)} ({count_text(lag)} behind){more}"]
    return lines or ["no alarms"]
