"""``flintmq store rebuild``, ``export``, ``compact`` and ``audit``: parallel work on large stores, on one or many machines.

The exit codes are those of ``flintmq store``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import click
from rich.progress import TaskProgressColumn

from flintmq.config import load_config
from flintmq.core.log.store_lock import is_locked
from flintmq.dispatchers.spark_feed.feed_file import feed_path, read_feed
from flintmq.plugins.spark.maintenance import engines
from flintmq.plugins.spark.maintenance.engines import Engine
from flintmq.programs.cli import options
from flintmq.programs.cli.exits import ExitCode, warn
from flintmq.programs.cli.output import print_found, progress_bars
from flintmq.programs.cli.parser import Command
from flintmq.programs.cli.store import store_dir_argument, told_delays
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.rebuild import log_folders

Report = Callable[[str, int, int], None]

out_dir_argument = click.argument("out", type=options.PATH, metavar="OUT", help="A new folder for the result.")
topics_option = click.option("--topic", "-t", "topics", multiple=True, help="Only this topic; may be repeated.")
broker_name_option = click.option("--broker-name", help="The value of the column brokerName.")
compression_option = click.option("--compression", default="zstd", metavar="NAME", help="zstd, snappy or none.")


def on_engine(command: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """Decorate a command that runs tasks on an engine: in this process, in several processes, or on Spark.

    The decorated command has the options ``--engine``, ``--workers``, ``--master``, ``--set`` and ``--json``, and prints the
    result that the original function returns. The function gets the engine as the argument ``runner``, and as ``report`` a
    function that shows the progress of each step.
    """

    @functools.wraps(command)
    def run(*, engine: str, workers: int | None, master: str, as_json: bool, **given: Any) -> None:
        with (
            closing(engines.engine_of(engine, workers=workers, master=master)) as runner,
            progress_bars(TaskProgressColumn()) as report,
        ):
            found = command(runner=runner, report=report, **given)
        print_found(found, as_json)
        if not found.get("sound", True):
            raise click.exceptions.Exit(ExitCode.FAILED)

    for option in (
        options.as_json,
        options.settings,
        click.option("--master", default="local[*]", metavar="URL", help="Where Spark runs, for --engine spark."),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            metavar="N",
            help="Number of processes, or cores of a local Spark. [all]",
        ),
        click.option(
            "--engine", default="process", metavar="NAME", help="inline, process (processes of this machine) or spark."
        ),
    ):
        run = option(run)
    return run


@click.command(cls=Command)
@store_dir_argument
@click.option(
    "--out", type=options.PATH, metavar="DIR", help="Write the result to this folder; the store is not changed."
)
@on_engine
def rebuild(store: Path, out: Path | None, settings: tuple[str, ...], runner: Engine, report: Report) -> dict[str, Any]:
    # The import is deferred until on_engine has checked that optional packages, such as pyarrow, are installed.
    from flintmq.plugins.spark.maintenance.rebuild import rebuild as make

    loaded = load_config(None, settings, {})
    return attrs.asdict(make(store, loaded.config, told_delays(loaded), runner, out=out, report=report))


@click.command(cls=Command)
@store_dir_argument
@out_dir_argument
@options.since
@options.until
@topics_option
@click.option("--system-topics", is_flag=True, help="Also export system topics.")
@broker_name_option
@compression_option
@on_engine
def export(
    store: Path,
    out: Path,
    since_ms: int | None,
    until_ms: int | None,
    topics: tuple[str, ...],
    settings: tuple[str, ...],
    runner: Engine,
    **columns: Any,
) -> dict[str, Any]:
    # The import is deferred until on_engine has checked that optional packages, such as pyarrow, are installed.
    from flintmq.plugins.spark.maintenance.export import export as write

    written = write(
        _files(store, settings),
        out,
        runner,
        begin_ms=since_ms,
        end_ms=until_ms,
        topics=frozenset(topics) or None,
        end_offset_bytes=_end(store),
        **columns,
    )
    return attrs.asdict(written)


@click.command(cls=Command)
@store_dir_argument
@out_dir_argument
@topics_option
@broker_name_option
@compression_option
@on_engine
def compact(
    store: Path, out: Path, topics: tuple[str, ...], settings: tuple[str, ...], runner: Engine, **columns: Any
) -> dict[str, Any]:
    # The import is deferred until on_engine has checked that optional packages, such as pyarrow, are installed.
    from flintmq.plugins.spark.maintenance.compact import compact as write

    only = frozenset(topics) or None
    written = write(_files(store, settings), out, runner, topics=only, end_offset_bytes=_end(store), **columns)
    return attrs.asdict(written)


@click.command(cls=Command)
@store_dir_argument
@click.option("--duplicates/--no-duplicates", default=True, help="Look for messages with the same unique key.")
@click.option(
    "--work", type=options.PATH, metavar="DIR", help="Folder for the workers' files, which all must reach. [temporary]"
)
@on_engine
def audit(store: Path, settings: tuple[str, ...], runner: Engine, **how: Any) -> dict[str, Any]:
    # The import is deferred until on_engine has checked that optional packages, such as pyarrow, are installed.
    from flintmq.plugins.spark.maintenance.audit import audit as look

    return look(_files(store, settings), runner, end_offset_bytes=_end(store), **how)


def _files(store: Path, settings: tuple[str, ...]) -> StoreFiles:
    return StoreFiles(store, log_folders=log_folders(load_config(None, settings, {}).config))


def _end(store: Path) -> int | None:
    """Return the physical offset at which to stop reading the store of a running broker. Return None if no broker runs, or if
    the broker has not written the file ``flint/feed``.

    The dispatcher ``spark_feed`` writes the offset to this file. Without the offset, the newest bytes of the log may look
    damaged, because the broker is still writing them.
    """
    if not is_locked(store):
        return None
    feed = read_feed(feed_path(store))
    if feed is None:
        warn(
            f"a broker runs on {store}: what it writes meanwhile may look like damage. "
            "With the dispatcher spark_feed it would say how far its log may be read"
        )
        return None
    return feed.end_offset_bytes()
