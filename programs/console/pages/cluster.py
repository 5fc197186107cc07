"""Pages for the cluster's state: overview, brokers, topics, groups, alarms."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from flintmq.programs.cluster_view.reports import start_facts
from flintmq.programs.cluster_view.values import GroupQueue, TopicView
from flintmq.programs.console import store_figures
from flintmq.programs.console.charts import Line, draw, table
from flintmq.programs.console.lists import listed
from flintmq.programs.console.texts import millis, rate, whole
from flintmq.programs.console.web import FormError, Visitor, page

PLACES_MAX: Final = 200
"""Maximum number of queues that an input field for a queue suggests."""
_SPANS_H: Final = (1, 6, 24)
_KINDS: Final = {"user": "users'", "retry": "retry", "dead_letter": "dead letters", "system": "the system's"}


_SENT: Final = Line("sent", lambda one: one.put_per_s, rate)
_CONSUMED: Final = Line("consumed", lambda one: one.get_per_s, rate)
_LAG: Final = Line("lag", lambda one: one.lag, whole)
_LATENCY: Final = Line("latency", lambda one: one.put_latency_99_ms, millis)


def _charts(visitor: Visitor, group: str = "") -> dict[str, Any]:
    """Return the charts of the cluster or of one group, with their data as a table."""
    samples = visitor.view.history.group(group) if group else visitor.view.history.cluster()
    now_s = visitor.console.clock.monotonic_s()
    pictures = {
        "throughput": ("Throughput", "messages/s", (_CONSUMED,) if group else (_SENT, _CONSUMED)),
        "lag": ("Lag" if group else "Lag of all groups", "messages", (_LAG,)),
        **({} if group else {"latency": ("Latency of a send, p99", "ms", (_LATENCY,))}),
    }
    lines = [line for _, _, each in pictures.values() for line in each]
    return {
        "charts": {name: draw(title, unit, each, samples, now_s) for name, (title, unit, each) in pictures.items()},
        "chart_headings": [line.label for line in lines],
        "chart_rows": table(lines, samples, now_s),
    }


async def hours(visitor: Visitor) -> Response:
    """Show charts of the cluster's figures over the last hours, with one sample per minute."""
    text = visitor.query("span", str(_SPANS_H[1]))
    span = next((one for one in _SPANS_H if str(one) == text), _SPANS_H[1])
    samples = visitor.console.hours.since(span * 3600.0)
    pictures = {
        "throughput": ("Throughput", "messages/s", (_SENT, _CONSUMED)),
        "lag": ("Lag of all groups", "messages", (_LAG,)),
        "latency": ("Latency of a send, p99", "ms", (_LATENCY,)),
    }
    now_s = visitor.console.clock.now_ms() / 1000
    lines = [line for _, _, each in pictures.values() for line in each]
    return visitor.render(
        "hours.html",
        found=bool(samples),
        span=span,
        spans=_SPANS_H,
        charts={
            name: draw(title, unit, each, samples, now_s, span * 3600.0)
            for name, (title, unit, each) in pictures.items()
        },
        chart_headings=[line.label for line in lines],
        chart_rows=table(lines, samples, now_s, span * 3600.0),
    )


async def overview(visitor: Visitor) -> Response:
    """Show the cluster's figures, its alarms, and the groups with the largest lag."""
    view = visitor.view
    found, groups, topics = await view.overview(), await view.groups(), await view.topics()
    behind = sorted((one for one in groups if one.lag and one.kind == "user"), key=lambda one: -(one.lag or 0))
    busy = sorted(
        (one for one in topics if one.put_per_s and one.kind == "user"), key=lambda one: -(one.put_per_s or 0)
    )
    return visitor.render(
        "overview.html",
        found=found,
        brokers=await view.brokers(),
        behind=behind[:8],
        busy=busy[:8],
        rates_known=all(one.put_per_s is not None for one in topics if one.kind == "user") and found.age_s is not None,
        **_charts(visitor),
    )


async def brokers(visitor: Visitor) -> Response:
    """List the brokers of the cluster."""
    return visitor.render("brokers.html", brokers=await visitor.view.brokers(), found=await visitor.view.overview())


async def broker(visitor: Visitor) -> Response:
    """Show one broker: figures, store, plugins, settings."""
    name, text = visitor.query("name"), visitor.query("id", "0")
    found = await visitor.view.broker(name, visitor.number("The id of a broker", text, 0, 2**31))
    if found is None:
        raise FormError(f"No name server names a broker {name[:200]} with the id {text}.", 404)
    start = list(start_facts(found.report)) if found.report is not None else []
    return visitor.render("broker.html", broker=found, store=store_figures.of(found.figures), start=start)


async def topics(visitor: Visitor) -> Response:
    """List the topics of one kind, such as users' topics."""
    kind = _kind(visitor)
    rows = [one for one in await visitor.view.topics() if kind in (one.kind, "all")]
    found = listed(
        visitor,
        rows,
        _topic_name,
        {
            "rate": lambda one: one.put_per_s,
            "messages": lambda one: one.messages,
            "lag": lambda one: one.lag,
            "last": lambda one: one.last_write_ms,
        },
        kind=kind if kind != "user" else "",
    )
    return visitor.render("topics.html", listed=found, kind=kind, kinds=_KINDS, found=await visitor.view.overview())


def _topic_name(one: TopicView) -> str:
    return one.name


def _kind(visitor: Visitor) -> str:
    kind = visitor.query("kind", "user")
    return kind if kind in _KINDS or kind == "all" else "user"


async def topic(visitor: Visitor) -> Response:
    """Show one topic with its queues and the groups that consume it."""
    name = visitor.query("name")
    found = await visitor.view.topic(name)
    if found is None:
        raise FormError(f"No broker has a topic {name[:200]}.", 404)
    lags = {one.name: one for one in await visitor.view.groups()}
    return visitor.render("topic.html", topic=found, groups=[(one, lags.get(one)) for one in found.groups])


async def groups(visitor: Visitor) -> Response:
    """List the consumer groups of one kind, each with its lag, members, rate and problems. The URL's parameter ``kind`` is
    ``user``, ``system`` or ``all``; without it, users' groups are listed."""
    kind = "user" if visitor.query("kind") not in ("system", "all") else visitor.query("kind")
    rows = [one for one in await visitor.view.groups() if kind in (one.kind, "all")]
    found = listed(
        visitor,
        rows,
        lambda one: one.name,
        {
            "lag": lambda one: one.lag,
            "members": lambda one: one.members,
            "rate": lambda one: one.get_per_s,
            "trouble": lambda one: 2 * bool(one.conflict) + bool(one.stuck),
        },
        kind=kind if kind != "user" else "",
    )
    return visitor.render("groups.html", listed=found, kind=kind, found=await visitor.view.overview())


async def group(visitor: Visitor) -> Response:
    """Show one group: its queues, their owners, its members and their conflicts."""
    name = visitor.query("name")
    found = await visitor.view.group(name)
    if found is None:
        raise FormError(f"No broker has a consumer group {name[:200]}.", 404)
    topics = sorted({queue.topic for queue in found.queues or ()} | set(found.topics))
    places = sorted({f"{queue.broker}:{queue.queue_id}" for queue in found.queues or ()})[:PLACES_MAX]
    held: dict[str, list[GroupQueue]] = {}
    for queue in found.queues or ():
        held.setdefault(queue.client_id or "", []).append(queue)
    return visitor.render("group.html", group=found, topics=topics, places=places, held=held, **_charts(visitor, name))


async def alarms(visitor: Visitor) -> Response:
    """List the current alarms of the cluster."""
    found = await visitor.view.overview()
    ordered = sorted(found.alarms, key=lambda one: (one.level != "critical", one.id, one.broker, one.subject))
    return visitor.render("alarms.html", found=found, alarms=ordered)


ROUTES: Final = (
    page("/", overview),
    page("/hours", hours),
    page("/brokers", brokers),
    page("/broker", broker),
    page("/topics", topics),
    page("/topic", topic),
    page("/groups", groups),
    page("/group", group),
    page("/alarms", alarms),
)
