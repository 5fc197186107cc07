"""``flintmq store backup`` backs up a store while its broker runs; ``flintmq store restore`` restores the backup.

The exit codes are those of ``flintmq store``: 1 if a check finds an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from rich.progress import DownloadColumn

from flintmq.config import load_config
from flintmq.config.errors import ConfigError
from flintmq.config.units import parse_size
from flintmq.programs.backup.backup import BackupPlan, make_backup
from flintmq.programs.backup.check import check_backup
from flintmq.programs.backup.log_copy import DamagedBackupError
from flintmq.programs.backup.restore import RestorePlan, restore_backup
from flintmq.programs.backup.writing import Pace
from flintmq.programs.cli import options
from flintmq.programs.cli.exits import CommandError, ExitCode, warn
from flintmq.programs.cli.output import print_found, progress_bars
from flintmq.programs.cli.parser import Command
from flintmq.programs.cli.store import store_dir_argument, told_delays

backup_dir_argument = click.argument("backup", type=options.PATH, metavar="BACKUP", help="The backup's folder.")
_SIZES = (
    "store.consume_queue_file_bytes",
    "store.consume_queue_ext_file_bytes",
    "index.max_hash_slot_num",
    "index.max_index_num",
)


@click.command(cls=Command)
@store_dir_argument
@backup_dir_argument
@click.option("--limit", metavar="SIZE", help="The most bytes of the log to copy per second, such as 50MiB.")
@click.option("--prune", is_flag=True, help="Remove files from the backup that retention has deleted in the store.")
@click.option("--keep-damage", is_flag=True, help="Copy damaged parts of the log unchanged, instead of failing.")
@click.option("--verify", "verifies", is_flag=True, help="Check the whole backup afterwards.")
@options.settings
@options.as_json
def backup(
    store: Path,
    backup: Path,
    limit: str | None,
    prune: bool,
    keep_damage: bool,
    verifies: bool,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    config = load_config(None, settings, {}).config
    plan = BackupPlan(store=store, target=backup, config=config, prune=prune, keep_damage=keep_damage)
    with progress_bars(DownloadColumn(binary_units=True)) as report:
        try:
            made = make_backup(plan, pace=Pace(_bytes_per_s(limit)), progress=_step(report, f"backing up {store}"))
        except DamagedBackupError as error:
            if not verifies:
                raise
            checked = check_backup(backup, _step(report, f"checking {backup}"))
            print_found(checked.to_json(), as_json)
            raise CommandError(str(error)) from error
        found = made.to_json()
        if verifies:
            checked = check_backup(backup, _step(report, f"checking {backup}"))
            found |= {"sound": checked.is_sound, "findings": list(checked.findings)}
    for one in made.manifest.damage:
        warn(f"damage was copied as it is: {one}")
    print_found(found, as_json)
    if not found.get("sound", True):
        raise click.exceptions.Exit(ExitCode.FAILED)


@click.command(cls=Command)
@backup_dir_argument
@click.argument("store", type=options.PATH, metavar="STORE", required=False, help="The new store's folder.")
@click.option("--verify", "verifies", is_flag=True, help="Only check the backup; nothing is restored.")
@click.option("--keep-damage", is_flag=True, help="Restore the undamaged part of a damaged backup, instead of failing.")
@options.settings
@options.as_json
def restore(
    backup: Path, store: Path | None, verifies: bool, keep_damage: bool, settings: tuple[str, ...], as_json: bool
) -> None:
    if verifies != (store is None):
        raise CommandError("give either the folder STORE, to which the backup is restored, or --verify", ExitCode.USAGE)
    loaded = load_config(None, settings, {})
    with progress_bars(DownloadColumn(binary_units=True)) as report:
        if store is None:
            checked = check_backup(backup, _step(report, f"checking {backup}"))
            found = checked.to_json()
        else:
            plan = RestorePlan(
                backup=backup,
                store=store,
                config=loaded.config,
                chosen=frozenset(key for key in _SIZES if loaded.origins[key].kind != "default"),
                delay_level_ms=told_delays(loaded),
                keep_damage=keep_damage,
            )
            copied, total = _step(report, f"restoring {store}"), 0

            def copy(done: int, of: int) -> None:
                nonlocal total
                total = of
                copied(done, of)

            made = restore_backup(
                plan, progress=copy, rebuilding=lambda done: report("making queues and index", done, total)
            )
            found = made.to_json()
    print_found(found, as_json)
    if not found.get("sound", True):
        raise click.exceptions.Exit(ExitCode.FAILED)


def _step(report: Callable[[str, int, int], None], what: str) -> Callable[[int, int], None]:
    return lambda done, total: report(what, done, total)


def _bytes_per_s(text: str | None) -> int:
    try:
        size = parse_size(text) if text is not None else 0
    except ConfigError as error:
        raise CommandError(f"--limit {error.message}", ExitCode.USAGE) from error
    if text is not None and not size:
        raise CommandError("--limit must be more than 0", ExitCode.USAGE)
    return size
