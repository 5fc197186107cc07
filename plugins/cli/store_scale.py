"""``flintmq store rebuild|export|compact|audit``: work on large stores, on as many processors or machines as there are.

Exit codes as for the other commands of ``flintmq store``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from flintmq.plugins.cli import options
from flintmq.plugins.cli.exits import ExitCode, warn

if TYPE_CHECKING:
    from flintmq.plugins.doctor.files import StoreFiles
    from flintmq.plugins.spark.maintenance.engines import Engine

StoreDir = Annotated[Path, typer.Argument(metavar="STORE", help="The store's folder.")]
OutDir = Annotated[Path, typer.Argument(metavar="OUT", help="A new folder for the result.")]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="inline, process (processes of this machine) or spark.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", min=1, help="Processes, or cores of a local Spark. [all]")
]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs, for --engine spark.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic; may be repeated.")]
BrokerName = Annotated[str | None, typer.Option("--broker-name", help="For the column brokerName.")]
Compression = Annotated[str, typer.Option("--compression", metavar="NAME", help="zstd, snappy or none.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands to ``flintmq store``."""
    for command, example in (
        (rebuild, "flintmq store rebuild /data/store --engine process"),
        (export, "flintmq store export /data/store /lake/day --from 2026-11-01T00:00 --until 2026-11-02T00:00"),
        (compact, "flintmq store compact /data/store /lake/newest --topic prices"),
        (audit, "flintmq store audit /data/store --engine spark --master 'local[8]' --json"),
    ):
        app.command(epilog=f"Example: {example}")(command)


def rebuild(
    store: StoreDir,
    engine: EngineName = "process",
    workers: Workers = None,
    master: Master = "local[*]",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Leave the result there; the store is not changed.")
    ] = None,
    settings: options.Settings = None,
    as_json: options.AsJson = False,
) -> None:
    """Make queues and index anew from the log of a large, sound store, in parallel; see 'repair' for one that is not."""
    from flintmq.config import load_config

    loaded = load_config(None, settings or (), {})
    with _engine(engine, workers, master) as runner, _bars() as report:
        from flintmq.plugins.cli.store import told_delays
        from flintmq.plugins.spark.maintenance.rebuild import rebuild as make

        made = make(store, loaded.config, told_delays(loaded), runner, out=out, report=report)
    _show(attrs.asdict(made), as_json)


def export(
    store: StoreDir,
    out: OutDir,
    since: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Stored at or after.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored before.")] = None,
    topic: Topics = None,
    system_topics: Annotated[bool, typer.Option("--system-topics", help="The broker's own topics too.")] = False,
    broker_name: BrokerName = None,
    compression: Compression = "zstd",
    engine: EngineName = "process",
    workers: Workers = None,
    master: Master = "local[*]",
    settings: options.Settings = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the messages of a time range into Parquet files."""
    with _engine(engine, workers, master) as runner, _bars() as report:
        from flintmq.plugins.spark.maintenance.export import export as write

        written = write(
            _files(store, settings),
            out,
            runner,
            begin_ms=options.timestamp_ms(since, "--from") if since else None,
            end_ms=options.timestamp_ms(until, "--until") if until else None,
            topics=frozenset(topic) if topic else None,
            system_topics=system_topics,
            broker_name=broker_name,
            compression=compression,
            end_offset_bytes=_end(store),
            report=report,
        )
    _show(attrs.asdict(written), as_json)


def compact(
    store: StoreDir,
    out: OutDir,
    topic: Topics = None,
    broker_name: BrokerName = None,
    compression: Compression = "zstd",
    engine: EngineName = "process",
    workers: Workers = None,
    master: Master = "local[*]",
    settings: options.Settings = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the newest message of each key (KEYS) of each topic into Parquet files. The store is not changed."""
    with _engine(engine, workers, master) as runner, _bars() as report:
        from flintmq.plugins.spark.maintenance.compact import compact as write

        written = write(
            _files(store, settings),
            out,
            runner,
            topics=frozenset(topic) if topic else None,
            broker_name=broker_name,
            compression=compression,
            end_offset_bytes=_end(store),
            report=report,
        )
    _show(attrs.asdict(written), as_json)


def audit(
    store: StoreDir,
    duplicates: Annotated[bool, typer.Option(help="Look for messages with the same unique key.")] = True,
    work: Annotated[
        Path | None,
        typer.Option("--work", metavar="DIR", help="For what workers leave; all must reach it. [temporary]"),
    ] = None,
    engine: EngineName = "process",
    workers: Workers = None,
    master: Master = "local[*]",
    settings: options.Settings = None,
    as_json: options.AsJson = False,
) -> None:
    """Look for holes in queues, changed bodies and messages that are there twice, and count by topic. Changes nothing."""
    with _engine(engine, workers, master) as runner, _bars() as report:
        from flintmq.plugins.spark.maintenance.audit import audit as look

        found = look(
            _files(store, settings),
            runner,
            duplicates=duplicates,
            end_offset_bytes=_end(store),
            work=work,
            report=report,
        )
    _show(found, as_json)
    if not found["sound"]:
        raise typer.Exit(int(ExitCode.FAILED))


# parts


@contextmanager
def _engine(name: str, workers: int | None, master: str) -> Iterator[Engine]:
    from flintmq.plugins.spark.maintenance import engines

    with closing(engines.engine_of(name, workers=workers, master=master)) as engine:
        yield engine


def _files(store: Path, settings: list[str] | None) -> StoreFiles:
    from flintmq.config import load_config
    from flintmq.plugins.doctor.files import StoreFiles

    config = load_config(None, settings or (), {}).config
    folders = [Path(path) for path in (*config.store.commit_log_paths, *config.store.read_only_commit_log_paths)]
    return StoreFiles(store, log_folders=folders)


def _end(store: Path) -> int | None:
    """Where to stop reading while a broker runs: what its feed says. Without one the log's newest bytes may look torn."""
    from flintmq.core.log.store_lock import is_locked
    from flintmq.core.store.feed_file import feed_path, read_feed

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


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr for each step; none where stderr is no terminal."""
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from flintmq.plugins.cli.output import console

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    target = console(stderr=True)
    with Progress(*columns, console=target, disable=not target.is_terminal, transient=True) as bar:
        steps: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in steps:
                steps[what] = bar.add_task(what, total=max(total, 1))
            bar.update(steps[what], completed=done)

        yield report


def _show(found: dict[str, Any], as_json: bool) -> None:
    from flintmq.plugins.cli.store import show

    show(found, as_json)
