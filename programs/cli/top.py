"""``flintmq top`` shows a cluster in the terminal; ``--once`` and ``--json`` print its current state."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import click

from flintmq.programs.cli import options
from flintmq.programs.cli.connect import with_admin
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import print_json, print_line, print_table
from flintmq.programs.cli.parser import Command
from flintmq.programs.cluster_view.poll import Pace
from flintmq.programs.cluster_view.values import as_json as values_json
from flintmq.programs.cluster_view.view import ClusterView
from flintmq.programs.top import tables
from flintmq.programs.top.tables import BROKERS, GROUPS, TOPICS, Kind
from flintmq.remoting.client.admin import AdminClient

BETWEEN_LOOKS_S: Final = 1.5
"""Seconds between two readings of a broker's figures, whose difference gives the rates."""
_ONCE: Final = Pace(lookups_per_s=200, lookup_s=0, progress_s=0)


@click.command(cls=Command)
@options.name_servers
@click.option("--once", is_flag=True, help="Print the current state as tables, without a full-screen view.")
@options.as_json
def top(once: bool, as_json: bool) -> None:
    if once or as_json:
        seen = with_admin(_look_once)
        if as_json:
            print_json(_json(seen))
        else:
            _print(seen)
        return
    if not sys.stdout.isatty():
        raise CommandError(
            "top needs a terminal; --once and --json print the state of the cluster once", ExitCode.USAGE
        )
    try:
        from flintmq.programs.top.app import TopApp
    except ModuleNotFoundError as error:
        raise CommandError(
            "Textual is not installed: pip install '.[top]' in FlintMQ's folder", ExitCode.USAGE
        ) from error

    async def work(admin: AdminClient) -> None:
        async with ClusterView(admin) as view:
            await TopApp(view).run_async()

    with_admin(work)


async def _look_once(admin: AdminClient) -> dict[str, Any]:
    """Return the state of a cluster, with the rates of all topics that a group consumes and of some 200 other topics. Further
    topics have no rates, because a rate takes two requests per topic and broker."""
    view = ClusterView(admin, _ONCE)
    overview = await view.overview()
    if not overview.brokers and overview.errors:
        raise CommandError(overview.errors[0], ExitCode.NETWORK)
    await asyncio.sleep(BETWEEN_LOOKS_S)
    await view.refresh(all_due=True)
    seen = {
        "overview": await view.overview(),
        BROKERS.title: await view.brokers(),
        TOPICS.title: await view.topics(),
        GROUPS.title: await view.groups(),
    }
    await view.close()
    return seen


def _json(seen: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [values_json(one) for one in value] if isinstance(value, tuple) else values_json(value)
        for name, value in seen.items()
    }


def _print(seen: dict[str, Any]) -> None:
    print_line(tables.overview_text(seen["overview"], "now"))
    for line in tables.alarm_lines(seen["overview"], 1_000):
        print_line(line)
    kinds: tuple[Kind[Any], ...] = (BROKERS, TOPICS, GROUPS)
    for kind in kinds:
        shown = tables.chosen(kind, seen[kind.title])
        headings = [f"{column.heading}{'#' if column.is_number else ''}" for column in kind.columns]
        rows = ([column.text(one) for column in kind.columns] for one in shown)
        print_table(headings, rows, title=f"{len(shown)} {kind.title} by {kind.sorted_by}")
