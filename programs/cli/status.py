"""``flintmq status`` shows clusters, brokers and their state and, with ``--topic``, the lag of a topic's groups."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from flintmq.config.units import size_text
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.errors import FlintError
from flintmq.core.kernel.ports.alarm import CRITICAL
from flintmq.programs.broker.plugin_figures import plugins_of
from flintmq.programs.cli import options
from flintmq.programs.cli.connect import with_admin
from flintmq.programs.cli.exits import ExitCode
from flintmq.programs.cli.output import lag_text, print_json, print_line, print_rows, print_table, span_text
from flintmq.programs.cli.parser import Command
from flintmq.programs.cluster_view.alarms import all_alarms, told_alarms
from flintmq.programs.cluster_view.detail import find_group, report_of
from flintmq.programs.cluster_view.figures import main_figures, number, replication_of, uptime_s
from flintmq.programs.cluster_view.memory import BrokerMemory, registered, speakers
from flintmq.programs.cluster_view.poll import is_flintmq
from flintmq.programs.cluster_view.reports import in_a_line, needs_a_look
from flintmq.programs.cluster_view.rows import broker_row
from flintmq.programs.cluster_view.values import PlacedAlarm, plain
from flintmq.programs.cluster_view.values import as_json as values_json
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.wire.broker_report import BrokerReport


@click.command(cls=Command)
@options.name_servers
@click.option("--topic", "-t", help="Also show the lag of this topic's groups.")
@options.as_json
def status(topic: str | None, as_json: bool) -> None:

    async def work(admin: AdminClient) -> dict[str, Any]:
        reports = await _brokers(admin)
        brokers = [broker for broker, _ in reports]
        found: dict[str, Any] = {
            "name_servers": list(admin.client.routes.name_servers),
            "brokers": [_row(*each) for each in reports],
            "topics": len(await admin.topic_list()),
            "alarms": list(map(values_json, _alarms(brokers))),
        }
        if topic is not None:
            found["topic"] = topic
            found["groups"] = await _groups(admin, topic, brokers)
        return found

    found = with_admin(work)
    if as_json:
        print_json(found)
    else:
        _show(found)
    if any(alarm["level"] == CRITICAL for alarm in found["alarms"]) or any("alarm" in row for row in found["brokers"]):
        raise click.exceptions.Exit(ExitCode.FAILED)


async def _brokers(admin: AdminClient) -> list[tuple[BrokerMemory, BrokerReport | None]]:
    found = registered(await admin.cluster_info())
    reports = await asyncio.gather(*(_ask(admin, broker) for broker in found))
    return list(zip(found, reports, strict=True))


async def _ask(admin: AdminClient, broker: BrokerMemory) -> BrokerReport | None:
    """Store a broker's figures in ``broker.info``, and return the broker's report; None for a RocketMQ broker, which has none.

    If the broker does not answer, set ``broker.error`` and return None.
    """
    try:
        broker.info = await admin.runtime_info(broker.address)
        return await report_of(admin, broker.address) if is_flintmq(broker) else None
    except FlintError as error:
        broker.error = str(error)
        return None


def _alarms(brokers: list[BrokerMemory]) -> tuple[PlacedAlarm, ...]:
    """Return all alarms, as ``flintmq top`` and the console show them."""
    return all_alarms([broker_row(one, 0.0, told_alarms(one)) for one in brokers], {}, is_empty=not brokers)


def _row(broker: BrokerMemory, report: BrokerReport | None) -> dict[str, Any]:
    info = dict(broker.info)
    place = {"cluster": broker.cluster, "broker": broker.name, "id": broker.broker_id, "address": broker.address}
    if broker.error:
        return {**place, "error": broker.error}
    return {
        **place,
        "version": info.get("brokerVersionDesc", ""),
        "uptime": info.get("runtime", "").strip("[] "),
        "uptime_s": uptime_s(info.get("runtime", "")),
        **main_figures(info),
        **({"replication": replication} if (replication := replication_of(info)) else {}),
        **plugins_of(info),
        **_supervised(info),
        **_feed(info),
        **(_reported(report) if report is not None else {}),
        **({"alarm": info["flintAlarm"]} if "flintAlarm" in info else {}),
    }


def _reported(report: BrokerReport) -> dict[str, Any]:
    """Return the last start of a broker, and its quarantine: the files with the parts that were removed from the log. If the
    store was not closed in order, a sentence about the recovery is added."""
    found = {"last_start": plain(report.start), "quarantine": plain(report.quarantine)}
    return found | ({"recovered": in_a_line(report)} if needs_a_look(report) else {})


def _supervised(info: dict[str, str]) -> dict[str, Any]:
    """Return how often a supervisor restarted a broker, and why; empty without a supervisor."""
    if "supervisorRestarts" not in info:
        return {}
    return {"restarts": number(info, "supervisorRestarts"), "last_end": info.get("supervisorLastEnd", "")}


def _feed(info: dict[str, str]) -> dict[str, Any]:
    """Return the figures of the dispatcher spark_feed; empty if the broker does not use this dispatcher."""
    if "sparkFeedEndOffset" not in info:
        return {}
    feed: dict[str, Any] = {
        "end_offset": number(info, "sparkFeedEndOffset"),
        "messages": number(info, "sparkFeedMessages"),
    }
    if "sparkFeedLandingState" in info:
        feed["landing"] = {
            "state": info["sparkFeedLandingState"],
            "committed_offset": number(info, "sparkFeedLandingCommittedOffset"),
            "lag_bytes": number(info, "sparkFeedLandingLagBytes"),
            "lag_ms": number(info, "sparkFeedLandingLagMillis"),
            "rows": number(info, "sparkFeedLandingRows"),
            "files": number(info, "sparkFeedLandingFiles"),
            "failures": number(info, "sparkFeedLandingFailures"),
            "lost_bytes": number(info, "sparkFeedLandingLostBytes"),
            "error": info.get("sparkFeedLandingError", ""),
        }
    return {"feed": feed}


async def _groups(admin: AdminClient, topic: str, brokers: list[BrokerMemory]) -> list[dict[str, Any]]:
    """Return the groups that consume a topic, with their lag over the queues of all answering brokers."""
    route = await admin.client.routes.route(topic)
    holding = [broker for broker in speakers(brokers) if not broker.error and broker.name in route.broker_addrs]
    for broker in holding:
        groups = await admin.topic_groups(topic, broker.address)
        broker.groups = {group: SubscriptionGroupConfig(group_name=group) for group in groups}
    names = sorted({group for broker in holding for group in broker.groups})
    found = [await find_group(admin, group, holding, topic) for group in names]
    return [{"group": one.name, "lag": one.lag} for one in found if one is not None]


def _show(found: dict[str, Any]) -> None:
    brokers = found["brokers"]
    headings = (
        "broker",
        "cluster",
        "address",
        "version",
        "put/s#",
        "get/s#",
        "put today#",
        "got today#",
        "log#",
        "disk#",
    )
    count = f"{len(brokers)} broker{'' if len(brokers) == 1 else 's'}"
    print_table(
        (*headings, "up", "state"),
        map(_cells, brokers),
        title=f"name servers {', '.join(found['name_servers'])}: {count}, {found['topics']} topics",
    )
    for row in brokers:
        if "alarm" in row:
            print_line(f"ALARM {row['broker']}:{row['id']} {row['address']}: {row['alarm']}")
    if found["alarms"]:
        columns = {
            "broker": "broker",
            "level": "level",
            "alarm": "id",
            "of": "subject",
            "what is wrong": "message",
            "see key": "key",
        }
        print_rows(found["alarms"], columns, title="alarms")
    _show_troubles(brokers)
    if "groups" in found:
        rows = [row | {"lag": lag_text(row["lag"])} for row in found["groups"]]
        print_rows(rows, {"group": "group", "lag#": "lag"}, title=f"groups of {found['topic']}")


def _show_troubles(brokers: list[dict[str, Any]]) -> None:
    """Print tables about brokers: landing zones (folders of Parquet or Delta files), failed plugins, stores that a start had to
    recover, quarantines, restarts and blocked event loops. A table without rows is left out."""
    if landings := [
        {"broker": row["broker"], **row["feed"]["landing"]} for row in brokers if "landing" in row.get("feed", {})
    ]:
        for landing in landings:
            landing |= {"behind": size_text(landing["lag_bytes"]), "lost": size_text(landing["lost_bytes"])}
            landing["lag_s"] = landing["lag_ms"] / 1000
        columns = {
            "broker": "broker",
            "landing": "state",
            "behind#": "behind",
            "for#": "{lag_s:.1f} s",
            "rows#": "rows",
            "files#": "files",
            "lost#": "lost",
            "why": "error",
        }
        print_rows(landings, columns, title="landing zones")
    plugins = [{"broker": row["broker"], **plugin} for row in brokers for plugin in row.get("plugins", ())]
    if failed := [plugin for plugin in plugins if plugin["errors"] or plugin["switched_off_times"]]:
        columns = {
            "broker": "broker",
            "plugin": "name",
            "errors#": "errors",
            "the last one": "last_error",
            "switched off": "switched_off",
        }
        print_rows(failed, columns, title="plugins that failed")
    if recovered := [row for row in brokers if row.get("recovered")]:
        columns = {"broker": "broker", "took#": "{last_start[recovery_ms]:,} ms", "at its last start": "recovered"}
        print_rows(recovered, columns, title="stores that were not left in order")
    if kept := [row for row in brokers if row.get("quarantine", {}).get("file_count")]:
        for row in kept:
            row["kept"] = size_text(row["quarantine"]["size_bytes"])
        columns = {"broker": "broker", "files#": "{quarantine[file_count]:,}", "size#": "kept"}
        print_rows(kept, columns, title="quarantine")
    if restarted := [row for row in brokers if row.get("restarts")]:
        columns = {"broker": "broker", "times#": "restarts", "the last time because it": "last_end"}
        print_rows(restarted, columns, title="started again")
    if blocked := [row for row in brokers if row.get("loop_blocked", {}).get("times")]:
        columns = {
            "broker": "broker",
            "times#": "{loop_blocked[times]:,}",
            "longest#": "{loop_blocked[max_ms]} ms",
            "the last time by": "{loop_blocked[by]}",
        }
        print_rows(blocked, columns, title="the event loop stood still")


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    place = (f"{row['broker']}:{row['id']}", row["cluster"], row["address"])
    if "error" in row:
        return (*place, *[""] * 8, row["error"])
    return (
        *place,
        row["version"],
        f"{row['put_per_s']:,.1f}",
        f"{row['get_per_s']:,.1f}",
        row["put_today"],
        row["got_today"],
        size_text(row["commit_log_bytes"]),
        f"{row['disk_ratio']:.0%}",
        span_text(row["uptime_s"]),
        "answers",
    )
