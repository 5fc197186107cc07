"""Makes titled tables of a broker, topic or group for ``flintmq top``, in plain text. The functions need no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import attrs

from flintmq.config.units import size_text
from flintmq.core.client_log import printable
from flintmq.programs.cluster_view.reports import start_facts
from flintmq.programs.cluster_view.values import BrokerView, GroupView, Overview, TopicView
from flintmq.programs.top.tables import UNKNOWN, age_text, alarm_text, count_text, name_text, rate_text

_VALUE_MAX_CHARS = 300


@attrs.frozen
class Part:
    """A titled table. A heading that ends with ``#`` belongs to a column of numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _part(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Part:
    cut = tuple(tuple(printable(cell, _VALUE_MAX_CHARS) for cell in row) for row in rows)
    return Part(title, tuple(headings), cut)


def _facts(title: str, **facts: str) -> Part:
    return _part(title, ("", ""), [(name.replace("_", " "), text) for name, text in facts.items() if text])


def _when(timestamp_ms: int | None) -> str:
    """Return a time as local time; ``-`` if the time is missing."""
    return f"{datetime.fromtimestamp(timestamp_ms / 1000):%Y-%m-%d %H:%M:%S}" if timestamp_ms else UNKNOWN


def broker_parts(broker: BrokerView) -> list[Part]:
    """Return tables with a broker's state, alarms, plugins and settings."""
    facts = _facts(
        f"broker {name_text(broker.name)}:{broker.broker_id}",
        address=broker.address,
        cluster=broker.cluster,
        error=broker.error,
        version=broker.version,
        since=_when(broker.boot_timestamp_ms),
        put=f"{rate_text(broker.put_per_s)}/s, {count_text(broker.put_today)} today",
        get=f"{rate_text(broker.get_per_s)}/s, {count_text(broker.got_today)} today",
        log=f"{size_text(broker.commit_log_bytes)}, oldest message {_when(max(0, broker.earliest_message_timestamp_ms))}",
        disk=f"{broker.disk_ratio:.0%} used",
        dispatch_behind=size_text(broker.dispatch_behind_bytes),
        replication=", ".join(f"{key} {value}" for key, value in broker.replication.items()),
        asked=f"{age_text(broker.age_s)} ago",
    )
    plugins = [(str(one["name"]), str(one["errors"]), str(one["last_error"])) for one in broker.plugins]
    settings = [(one.name, one.value, one.origin) for one in broker.config or ()]
    start = list(start_facts(broker.report)) if broker.report is not None else []
    kept = broker.report.quarantine.files if broker.report is not None else ()
    quarantine = [(one.name, size_text(one.size_bytes), _when(one.modified_ms), one.why) for one in kept]
    return [
        facts,
        *([_part("alarms", ("",), [(alarm_text(alarm),) for alarm in broker.alarms])] if broker.alarms else []),
        *([_part("plugins", ("plugin", "errors#", "the last one"), plugins)] if plugins else []),
        *([_part("last start", ("", ""), start)] if start else []),
        *([_part("quarantine", ("file", "size#", "from", "why"), quarantine)] if quarantine else []),
        _part("settings", ("name", "value", "from"), settings),
    ]


def topic_parts(topic: TopicView) -> list[Part]:
    """Return tables with a topic's state, its queues and its groups."""
    facts = _facts(
        f"topic {printable(topic.name, _VALUE_MAX_CHARS)}",
        brokers=", ".join(topic.brokers),
        away=", ".join(topic.missing),
        permission=topic.perm,
        messages=count_text(topic.messages),
        put=f"{rate_text(topic.put_per_s)}/s",
        lag=count_text(topic.lag),
        errors="; ".join(topic.errors),
    )
    queues = [
        (
            f"{one.broker}:{one.queue_id}",
            count_text(one.min_queue_offset),
            count_text(one.max_queue_offset),
            _when(one.last_write_ms),
        )
        for one in topic.queues or ()
    ]
    groups = [(name,) for name in topic.groups]
    return [facts, _part("queues", ("queue", "first#", "next#", "last write"), queues), _part("groups", ("",), groups)]


def group_parts(group: GroupView) -> list[Part]:
    """Return tables with a group's state, conflicts, stuck queues, queues with their owners, and members."""
    facts = _facts(
        f"group {printable(group.name, _VALUE_MAX_CHARS)}",
        lag=f"{count_text(group.lag)} (of it to be tried again: {count_text(group.retry_lag)})",
        get=f"{rate_text(group.get_per_s)}/s",
        model=" ".join((group.message_model, group.consume_type)).strip().lower() or "nobody is online",
        away=", ".join(group.missing),
        conflict=group.conflict,
        errors="; ".join(group.errors),
    )
    conflicts = [
        (conflict.topic or conflict.about, variant.text, ", ".join(variant.client_ids))
        for conflict in group.conflicts or ()
        for variant in conflict.variants
    ]
    stuck = [
        (one.topic, f"{one.broker}:{one.queue_id}", count_text(one.lag), age_text(one.standing_s), one.client_id or "?")
        for one in group.stuck
    ]
    queues = [
        (
            one.topic,
            f"{one.broker}:{one.queue_id}",
            count_text(one.consumer_offset),
            count_text(one.max_queue_offset),
            count_text(one.lag),
            one.client_id or UNKNOWN,
        )
        for one in sorted(group.queues or (), key=lambda one: -one.lag)
    ]
    members = [
        (
            one.client_id,
            one.address,
            f"{one.language} {one.version}",
            UNKNOWN if one.queues is None else str(one.queues),
            count_text(one.lag),
            one.error or ", ".join(f"{wanted.topic} {wanted.expression}" for wanted in one.subscriptions or ()),
        )
        for one in group.member_list or ()
    ]
    return [
        facts,
        *(
            [_part("members contradict each other", ("topic or what", "reads or is", "members"), conflicts)]
            if conflicts
            else []
        ),
        *([_part("stuck", ("topic", "queue", "lag#", "for#", "held by"), stuck)] if stuck else []),
        _part("queues", ("topic", "queue", "consumed to#", "next#", "lag#", "held by"), queues),
        _part("members", ("client", "address", "version", "queues#", "lag#", "subscribes to"), members),
    ]


def alarm_parts(overview: Overview) -> list[Part]:
    """Return tables with all errors and alarms of a cluster, with their full texts."""
    rows = [("error", "", "", error) for error in overview.errors]
    rows += [
        (alarm.level, alarm.id, f"{alarm.subject} {alarm.broker}".strip(), f"{alarm.message} {_key(alarm.key)}".strip())
        for alarm in overview.alarms
    ]
    return [_part("alarms" if rows else "no alarms", ("level", "id", "what", "why"), rows)]


def _key(key: str) -> str:
    return f"[{key}]" if key else ""
