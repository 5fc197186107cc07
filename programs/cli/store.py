"""``flintmq store`` checks, explains, rebuilds, salvages, compares and prints stores of stopped brokers.

Exit codes: 0 sound, same or done; 1 errors were found, or the stores differ; 3 the store cannot be opened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import click
from rich.progress import DownloadColumn

from flintmq.config import LoadedConfig, load_config
from flintmq.core.log.store_lock import is_locked
from flintmq.dispatchers.consume_queue.delay_times import DelayLevels
from flintmq.programs.cli import options
from flintmq.programs.cli.exits import CommandError, ExitCode, warn
from flintmq.programs.cli.message_output import is_utf8, json_with_body
from flintmq.programs.cli.output import print_found, print_json, print_line, print_table, progress_bars
from flintmq.programs.cli.parser import Command
from flintmq.programs.doctor import explain as doctor
from flintmq.programs.doctor.compare import compare
from flintmq.programs.doctor.explain import record_json
from flintmq.programs.doctor.export import Wanted, messages, to_parquet
from flintmq.programs.doctor.files import IndexGeometry, StoreFiles
from flintmq.programs.doctor.rebuild import fitting, has_damage, log_folders, rebuild
from flintmq.programs.doctor.salvage import salvage as save
from flintmq.programs.doctor.verify import verify as check
from flintmq.programs.doctor.walk import Piece
from flintmq.remoting.client.compression import decompressed_parts

store_dir_argument = click.argument("store", type=options.PATH, metavar="STORE", help="The store's folder.")


@click.command(cls=Command)
@store_dir_argument
@options.settings
@options.as_json
def verify(store: Path, settings: tuple[str, ...], as_json: bool) -> None:
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
        print_line(
            f"{report.records:,} records up to {report.log_end_bytes:,}, {report.queues:,} queues with {report.units:,} units, "
            f"{report.index_entries:,} index entries: {'sound' if report.is_sound else 'NOT sound'}"
            + (f" ({report.more:,} more findings)" if report.more else "")
        )
    if not report.is_sound:
        raise click.exceptions.Exit(ExitCode.FAILED)


@click.command(cls=Command)
@store_dir_argument
@click.option("--position", type=int, metavar="N", help="A physical offset.")
@click.option("--queue", metavar="TOPIC/ID/OFFSET", help="A message in a queue.")
@click.option("--key", nargs=2, metavar="TOPIC KEY", help="A key or unique id.")
@options.settings
@options.as_json
def explain(
    store: Path,
    position: int | None,
    queue: str | None,
    key: tuple[str, str] | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    files, loaded = _open(store, settings)
    if position is not None:
        found = doctor.explain_position(files, position)
    elif queue is not None:
        found = doctor.explain_queue_offset(files, *_queue_place(queue))
    elif key is not None:
        found = doctor.explain_key(files, *key)
    else:
        found = doctor.explain_start(files, loaded.config)
    print_found(found, as_json)


@click.command(cls=Command)
@store_dir_argument
@options.settings
@options.as_json
def repair(store: Path, settings: tuple[str, ...], as_json: bool) -> None:
    files, loaded = _open(store, settings)
    config = fitting(loaded.config, files)
    total = files.log_bytes
    with _progress(f"checking {store}", total) as progress:
        damaged = has_damage(files, config, progress)
    # ``files`` maps the store's files into memory, so ``files`` is deleted before rebuild() replaces the store's files.
    del files
    with _progress(f"rebuilding {store}", total) as progress:
        end, kept = rebuild(store, config, told_delays(loaded), progress, damaged=damaged)
    print_found({"log_ends_at": end, "replaced_are_in": str(kept) if kept else None}, as_json)


@click.command(cls=Command)
@store_dir_argument
@click.argument("target", type=options.PATH, metavar="TARGET", help="A new folder.")
@options.settings
@options.as_json
def salvage(store: Path, target: Path, settings: tuple[str, ...], as_json: bool) -> None:
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
    print_found(attrs.asdict(saved), as_json)


@click.command(cls=Command)
@store_dir_argument
@click.argument("other", type=options.PATH, metavar="OTHER", help="The store to compare with.")
@options.as_json
def diff(store: Path, other: Path, as_json: bool) -> None:
    left, _ = _open(store, ())
    right, _ = _open(other, ())
    with _progress(f"comparing {store} and {other}", left.log_bytes) as progress:
        found = compare(left, right, progress)
    print_found(found, as_json)
    if not found["same"]:
        raise click.exceptions.Exit(ExitCode.FAILED)


@click.command(cls=Command)
@store_dir_argument
@click.option("--topic", help="Only messages of this topic.")
@click.option("--queue", "queue_id", type=int, metavar="ID", help="Only messages in this queue.")
@click.option("--tag", help="Only messages with this tag.")
@options.since
@options.until
@click.option("--limit", type=click.IntRange(min=1), metavar="N")
@click.option("--parquet", type=options.PATH, metavar="FILE", help="Write Parquet (needs pyarrow).")
def cat(
    store: Path,
    topic: str | None,
    queue_id: int | None,
    tag: str | None,
    since_ms: int | None,
    until_ms: int | None,
    limit: int | None,
    parquet: Path | None,
) -> None:
    files, _config = _open(store, ())
    wanted = Wanted(
        topic=topic,
        queue_id=queue_id,
        tag=tag,
        from_timestamp_ms=since_ms,
        until_timestamp_ms=until_ms,
        limit=limit,
    )
    if parquet is not None:
        with _progress(f"writing {parquet}", files.log_bytes) as progress:
            count = to_parquet(files, wanted, parquet, progress, _warn_of_damage)
        print_line(f"{count:,} messages in {parquet}")
        return
    for record in messages(files, wanted, damaged=_warn_of_damage):
        fields = {name: value for name, value in record_json(record).items() if name not in ("body", "body_hex")}
        is_text = is_utf8(decompressed_parts(record.body, 0))
        for part in json_with_body(fields, decompressed_parts(record.body, 0), is_text=is_text, in_hex=True):
            sys.stdout.write(part)
        sys.stdout.flush()


def _warn_of_damage(piece: Piece) -> None:
    warn(f"bytes {piece.start} to {piece.end} of the log are left out, they cannot be read: {piece.reason}")


def _open(store: Path, settings: tuple[str, ...]) -> tuple[StoreFiles, LoadedConfig]:
    loaded = load_config(None, settings, {})
    geometry = None
    if any("slot" in text.lower() or "index" in text.lower() for text in settings):
        geometry = IndexGeometry(loaded.config.index.max_hash_slot_num, loaded.config.index.max_index_num)
    files = StoreFiles(store, geometry, log_folders(loaded.config))
    if is_locked(store):
        warn(f"a broker runs on {store}: what it writes meanwhile may look like damage")
    return files, loaded


def told_delays(loaded: LoadedConfig) -> dict[int, int] | None:
    """Return the delay levels in ms, keyed by level, if the command line sets them; else None."""
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
    with progress_bars(DownloadColumn(binary_units=True)) as report:
        yield lambda done: report(what, done, total_bytes)
