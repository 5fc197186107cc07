"""``flintmq bench recover``: how fast a broker starts on a store, after a crash and after a stop."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from flintmq.config import load_config
from flintmq.plugins.bench.recover import bench_recover
from flintmq.plugins.cli import options
from flintmq.plugins.cli.output import print_json
from flintmq.plugins.cli.parser import Command
from flintmq.plugins.delay.delay_levels import DelayLevels

store_dir_option = click.option(
    "--store", type=options.PATH, required=True, metavar="DIR", help="A store; it is only read, copies are measured."
)
work_dir_option = click.option(
    "--work", type=options.PATH, metavar="DIR", help="Where copies are made; else the folder for temporary files."
)


@click.command(cls=Command)
@store_dir_option
@work_dir_option
@options.settings
def recover(store: Path, work: Path | None, settings: tuple[str, ...]) -> None:
    """Measure starts on a store (after a crash, a kill, a stop, without queues and index) and look-ups. One line of JSON."""
    config = load_config(None, settings, {}).config
    levels = DelayLevels(config.delay.levels)
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="flintmq-recover-", dir=work) as folder:
        result = bench_recover(store, Path(folder), config, {level: levels.delay_ms(level) for level in levels})
        print_json(result.as_json())
