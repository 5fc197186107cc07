"""``flintmq demo``: a tour in some seconds: every flush strategy stores messages, and every message is checked."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import attrs
import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flintmq.plugins.cli import demo_run, options
from flintmq.plugins.cli.child import ServedChild
from flintmq.plugins.cli.connect import access_to_own
from flintmq.plugins.cli.demo_run import DemoResult, run_strategy
from flintmq.plugins.cli.exits import CommandError, ExitCode
from flintmq.plugins.cli.output import console, print_json, print_table
from flintmq.plugins.cli.parser import Command

STRATEGIES = ("group_commit", "flush_real_time", "commit_real_time")
SETTINGS = (
    "store.commit_log_file_bytes=64MiB",
    "index.max_hash_slot_num=100_000",
    "index.max_index_num=400_000",
    "flush.commit_real_time.pool_size=2",
)
"""Small files: a demo must not fill anybody's disk."""
NEXT = """\
What to try next:
  flintmq run --store ./store                     a name server and a broker of your own
  flintmq send Greetings hello                    a message (another terminal)
  flintmq consume Greetings                       and back
  flintmq status                                  how the broker is
  flintmq bench send                              how fast it is, measured properly
  flintmq run --set flush.strategy=group_commit   every acknowledged message on disk
  flintmq config show                             every setting, its origin, RocketMQ's name"""


@click.command(cls=Command)
@click.option("--store", type=options.PATH, metavar="DIR", help="Keep the stores here; else a folder that is removed.")
@click.option("--messages", type=click.IntRange(min=1), default=20000, metavar="N", help="Per flush strategy.")
@click.option("--keep", is_flag=True, help="Keep the temporary folder.")
@options.as_json
def demo(store: Path | None, messages: int, keep: bool, as_json: bool) -> None:
    root = _fresh(store)
    keeps = keep or store is not None
    if not as_json:
        print(f"stores in {root}{'' if keeps else ', removed at the end'}", flush=True)
    try:
        results = _run_all(root, messages, keeps, quiet=as_json)
    finally:
        if not keeps:
            shutil.rmtree(root, ignore_errors=True)
    wrong = [f"{result.strategy}: {problem}" for result in results for problem in result.problems]
    if as_json:
        rows = [attrs.asdict(result) | {"verified": not result.problems} for result in results]
        print_json({"ok": not wrong, "store": str(root), "kept": keeps, "strategies": rows})
    else:
        _show(results)
        if not wrong:
            print(NEXT)
    if wrong:
        raise CommandError(f"{len(wrong)} checks failed, first: {wrong[0]}")


def _fresh(store: Path | None) -> Path:
    if store is None:
        return Path(tempfile.mkdtemp(prefix="flintmq-demo-"))
    for strategy in STRATEGIES:
        if (store / strategy).exists():
            raise CommandError(f"--store: {store / strategy} exists already: name a new folder", ExitCode.USAGE)
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--store: {store}: {error.strerror or error}", ExitCode.STORE) from error
    return store.absolute()


def _run_all(root: Path, messages: int, keeps: bool, *, quiet: bool) -> list[DemoResult]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = []
    with Progress(*columns, console=console(stderr=True), disable=quiet) as bars:
        for strategy in STRATEGIES:
            task = bars.add_task(strategy, total=2 * messages)

            def progress(phase: str, more: int, task: int = task, strategy: str = strategy) -> None:
                bars.update(task, advance=more, description=f"{strategy}: {phase}")  # type: ignore[arg-type]

            results.append(_run_one(strategy, root / strategy, messages, progress))
            bars.update(task, description=f"{strategy}: {'failed' if results[-1].problems else 'checked'}")
            if not keeps:
                shutil.rmtree(root / strategy, ignore_errors=True)
    return results


def _run_one(strategy: str, store: Path, messages: int, progress: demo_run.Progress) -> DemoResult:
    given = (*SETTINGS, f"flush.strategy={strategy}")
    access = access_to_own(given)
    settings = [word for setting in given for word in ("--set", setting)]
    child = ServedChild(["--store", str(store), "--port", "0", "--namesrv-port", "0", *settings])
    with child:
        result = asyncio.run(run_strategy(strategy, child.namesrv, messages, progress, access))
    if child.exit_code != 0:
        result.problems.append(f"the broker ended with exit code {child.exit_code}: {child.errors}")
    return result


def _show(results: list[DemoResult]) -> None:
    print_table(
        ("strategy", "messages#", "sent/s#", "p50 ms#", "p99 ms#", "consumed/s#", "by key#", "by id#", "checked"),
        (
            (
                result.strategy,
                result.messages,
                round(result.send_per_s),
                f"{result.send_p50_ms:.2f}",
                f"{result.send_p99_ms:.2f}",
                round(result.consume_per_s),
                result.found_by_key,
                result.found_by_id,
                f"{len(result.problems)} problems" if result.problems else "every message",
            )
            for result in results
        ),
    )
