"""``flintmq store``: checks, explains, rebuilds, saves, compares and prints stores that no broker runs on.

Exit codes: 0 sound, same or done; 1 errors were found, or the stores differ; 3 the store cannot be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flintmq.plugins.cli import options, store_scale
from flintmq.plugins.cli.exits import CommandError, ExitCode, warn

if TYPE_CHECKING:
    from flintmq.config import LoadedConfig
    from flintmq.plugins.doctor.files import StoreFiles

app = typer.Typer(
    add_completion=False,
    help="Check, explain, rebuild, save, compare and print stores that no broker runs on.",
    no_args_is_help=True,
    epilog="Exit codes: 0 sound, same or done; 1 errors found, or stores differ; 2 usage; 3 the store cannot be opened.",
)

StoreDir = Annotated[Path, typer.Argument(metavar="STORE", help="The store's folder.")]


@app.command()
def verify(store: StoreDir, settings: options.Settings = None, as_json: options.AsJson = False) -> None:
    """Check every record, queue unit, index slot and configuration file. Changes nothing."""
    from flintmq.plugins.cli.output import print_json, print_table
    from flintmq.plugins.doctor.verify import verify as check

    files, loaded = _open(store, settings)
    with _progress(f"checking {store}", files.log_bytes) as progress:
        report = check(files, told_delays(loaded), progress)
    if as_json:
        print_json(report.to_json())
    else:
        if report.findings:
            print_table(
                ("level", "where", "what", "what to do"),
                [(found.level.value, found.where, found.what, found.advice) for found in report.findings],
            )
        print(
            f"{report.records:,} records up to {report.log_end_bytes:,}, {report.queues:,} queues with {report.units:,} units, "
            f"{report.index_entries:,} index entries: {'sound' if report.is_sound else 'NOT sound'}"
            + (f" ({report.more:,} more findings)" if report.more else "")
        )
    if not report.is_sound:
        raise typer.Exit(int(ExitCode.FAILED))


@app.command()
def explain(
    store: StoreDir,
    position: Annotated[int | None, typer.Option("--position", metavar="N", help="A physical offset.")] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="TOPIC/ID/OFFSET", help="A message of a queue.")
    ] = None,
    key: Annotated[
        tuple[str, str] | None, typer.Option("--key", metavar="TOPIC KEY", help="A key or unique id.")
    ] = None,
    settings: options.Settings = None,
    as_json: options.AsJson = False,
) -> None:
    """Explain a place, a message or a key; without any of them, what a start would decide."""
    from flintmq.plugins.doctor import explain as doctor

    files, loaded = _open(store, settings)
    if position is not None:
        found = doctor.explain_position(files, position)
    elif queue is not None:
        found = doctor.explain_queue_offset(files, *_queue_place(queue))
    elif key is not None:
        found = doctor.explain_key(files, *key)
    else:
        found = doctor.explain_start(files, loaded.config)
    show(found, as_json)


@app.command()
def repair(store: StoreDir, settings: options.Settings = None, as_json: options.AsJson = False) -> None:
    """Recover the log, then make queues and index anew from it; the old ones are kept in STORE/flint/replaced."""
    from flintmq.plugins.doctor.rebuild import fitting, has_damage, rebuild

    files, loaded = _open(store, settings)
    config = fitting(loaded.config, files)
    total = files.log_bytes
    with _progress(f"checking {store}", total) as progress:
        damaged = has_damage(files, config, progress)
    del files  # its maps must not hold what is about to be replaced
    with _progress(f"rebuilding {store}", total) as progress:
        end, kept = rebuild(store, config, told_delays(loaded), progress, damaged=damaged)
    show({"log_ends_at": end, "replaced_are_in": str(kept) if kept else None}, as_json)


@app.command()
def salvage(
    store: StoreDir,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A new folder.")],
    settings: options.Settings = None,
    as_json: options.AsJson = False,
) -> None:
    """Copy everything whole, also what lies behind damage, into a new store. The old one is not changed."""
    import attrs

    from flintmq.plugins.doctor.files import StoreFiles
    from flintmq.plugins.doctor.rebuild import fitting, rebuild
    from flintmq.plugins.doctor.salvage import salvage as save

    files, loaded = _open(store, settings)
    with _progress(f"saving {store}", files.log_bytes) as progress:
        saved = save(files, target, progress, told_delays(loaded))
    fitted = fitting(loaded.config, files)
    fitted = attrs.evolve(
        fitted,
        store=attrs.evolve(fitted.store, path=str(target), commit_log_paths=(), read_only_commit_log_paths=()),
    )
    with _progress(f"rebuilding {target}", StoreFiles(target).log_bytes) as progress:
        rebuild(target, fitted, told_delays(loaded), progress)
    show(attrs.asdict(saved), as_json)


@app.command()
def diff(
    store: StoreDir,
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="The store to compare with.")],
    as_json: options.AsJson = False,
) -> None:
    """Compare two stores: logs record by record, topics, groups and offsets. Differences are exit code 1."""
    from flintmq.plugins.doctor.compare import compare

    left, _ = _open(store, None)
    right, _ = _open(other, None)
    with _progress(f"comparing {store} and {other}", left.log_bytes) as progress:
        found = compare(left, right, progress)
    show(found, as_json)
    if not found["same"]:
        raise typer.Exit(int(ExitCode.FAILED))


@app.command()
def cat(
    store: StoreDir,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    queue_id: Annotated[int | None, typer.Option("--queue", metavar="ID", help="Only this queue.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only this tag.")] = None,
    since: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Stored at or after.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored before.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1)] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write Parquet (needs pyarrow).")
    ] = None,
) -> None:
    """Print messages as JSON lines, in the log's order, or write them as Parquet."""
    from flintmq.plugins.cli.output import print_json
    from flintmq.plugins.doctor.explain import record_json
    from flintmq.plugins.doctor.export import Wanted, messages, to_parquet

    files, _config = _open(store, None)
    wanted = Wanted(
        topic=topic,
        queue_id=queue_id,
        tag=tag,
        from_timestamp_ms=options.timestamp_ms(since, "--from") if since else None,
        until_timestamp_ms=options.timestamp_ms(until, "--until") if until else None,
        limit=limit,
    )
    if parquet is not None:
        with _progress(f"writing {parquet}", files.log_bytes) as progress:
            count = to_parquet(files, wanted, parquet, progress)
        print(f"{count:,} messages in {parquet}")
        return
    for record in messages(files, wanted):
        print_json(record_json(record, whole_body=True))


store_scale.add_to(app)


# parts


def _open(store: Path, settings: list[str] | None) -> tuple[StoreFiles, LoadedConfig]:
    from flintmq.config import load_config
    from flintmq.core.log.store_lock import is_locked
    from flintmq.plugins.doctor.files import IndexGeometry, StoreFiles

    loaded = load_config(None, settings or (), {})
    config = loaded.config
    geometry = None
    if settings and any("slot" in text.lower() or "index" in text.lower() for text in settings):
        geometry = IndexGeometry(config.index.max_hash_slot_num, config.index.max_index_num)
    folders = [Path(path) for path in (*config.store.commit_log_paths, *config.store.read_only_commit_log_paths)]
    files = StoreFiles(store, geometry, folders)
    if is_locked(store):
        warn(f"a broker runs on {store}: what it writes meanwhile may look like damage")
    return files, loaded


def told_delays(loaded: LoadedConfig) -> dict[int, int] | None:
    """Delay level to milliseconds, where the command line says so; None where only a default would."""
    from flintmq.core.broker.delay_levels import DelayLevels

    if loaded.origins["delay.levels"].kind == "default":
        return None
    levels = DelayLevels(loaded.config.delay.levels)
    return {level: levels.delay_ms(level) for level in levels}


def _queue_place(text: str) -> tuple[str, int, int]:
    topic, _, rest = text.partition("/")
    queue_id, _, queue_offset = rest.partition("/")
    if not (topic and queue_id.isdecimal() and queue_offset.isdecimal()):
        raise CommandError(f"--queue takes TOPIC/ID/OFFSET, such as Orders/0/17, not '{text[:80]}'", ExitCode.USAGE)
    return topic, int(queue_id), int(queue_offset)


@contextmanager
def _progress(what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; none where stderr is no terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from flintmq.plugins.cli.output import console

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    target = console(stderr=True)
    with Progress(*columns, console=target, disable=not target.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=max(total_bytes, 1))

        def update(done: int) -> None:
            bar.update(task, completed=done)

        yield update


def show(found: dict[str, Any], as_json: bool) -> None:
    """Prints a result as JSON or as indented lines."""
    from flintmq.plugins.cli.output import print_json

    if as_json:
        print_json(found)
        return
    for line in _lines(found):
        print(line)


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    """A nested result as indented lines."""
    if isinstance(value, dict):
        for key, member in value.items():
            if isinstance(member, dict | list) and member:
                yield f"{indent}{key}:"
                yield from _lines(member, indent + "  ")
            else:
                yield f"{indent}{key}: {'none' if member in (None, [], {}) else member}"
    elif isinstance(value, list):
        for member in value:
            if isinstance(member, dict | list):
                yield f"{indent}-"
                yield from _lines(member, indent + "  ")
            else:
                yield f"{indent}- {member}"
