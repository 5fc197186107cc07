"""``flintmq pipeline`` runs pipelines on Spark: messages through SQL into sinks, as described in a YAML file."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flintmq.core.errors import RefusedError
from flintmq.plugins.spark.pipeline.load import load_pipeline
from flintmq.plugins.spark.pipeline.planning import PlannedPipeline, check_source, pipeline_session, plan
from flintmq.plugins.spark.pipeline.preflight import check_places
from flintmq.plugins.spark.pipeline.references import require
from flintmq.plugins.spark.pipeline.running import PipelineError, PipelineResult, bound_sinks
from flintmq.plugins.spark.pipeline.running import run as run_pipeline
from flintmq.plugins.spark.pipeline.sinks import is_remote
from flintmq.programs.cli import options
from flintmq.programs.cli.child import ServedChild
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import console, print_json, print_line, print_table, print_text, safe
from flintmq.programs.cli.parser import Command
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer

TOPIC: Final = "Orders"
QUEUES: Final = 4
CITIES: Final = ("Aachen", "Bergen", "Cádiz", "Dublin", "Évora")
BROKEN_EVERY: Final = 100
"""Number of generated messages of which one has a body that is not JSON, to show how a pipeline treats such a body."""
BATCH: Final = 500


@click.command(cls=Command)
@click.argument("file", type=options.PATH, help="The pipeline, a YAML file (docs/pipelines.md).")
@click.option("--master", metavar="URL", help="local[*] (the default), spark://…, k8s://…, yarn, sc://… (Connect).")
@click.option("--explain", is_flag=True, help="Print Spark's plan for each sink, without running the pipeline.")
@click.option("--dry-run", is_flag=True, help="Check schemas, SQL, paths and topics, without running the pipeline.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key that overrides the file: source.path=/data/store. May be repeated.",
)
@options.as_json
def run(file: Path, master: str | None, explain: bool, dry_run: bool, settings: tuple[str, ...], as_json: bool) -> None:
    loaded = load_pipeline(file, settings or ())
    # The source is checked before the Spark session starts, because the start of a session takes seconds.
    check_source(loaded)
    with pipeline_session(loaded, master) as spark:
        planned = plan(spark, loaded)
        if explain or dry_run:
            bound_sinks(planned)
            if dry_run and not is_remote(spark):
                check_places(loaded)
            _describe(planned, explain=explain, as_json=as_json)
            return
        _report(_run(planned, as_json=as_json), as_json=as_json)


def _run(planned: PlannedPipeline, *, as_json: bool) -> PipelineResult:
    def show(name: str, table: str) -> None:
        print_text(f"{safe(name)}\n{table}\n", file=sys.stderr if as_json else sys.stdout)

    columns: tuple[Any, ...] = (TextColumn("{task.description}", markup=False), BarColumn())
    columns += (
        (TimeElapsedColumn(),) if planned.loaded.pipeline.is_streaming else (MofNCompleteColumn(), TimeElapsedColumn())
    )
    with _interrupted_by_sigterm(), Progress(*columns, console=console(stderr=True), disable=as_json) as bars:
        try:
            return run_pipeline(planned, show=show, bars=None if as_json else bars)
        except PipelineError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError(
                "the pipeline was stopped; a streaming pipeline continues from its checkpoint", ExitCode.INTERRUPTED
            ) from None


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM, so that a stream's queries and session are stopped properly."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _describe(planned: PlannedPipeline, *, explain: bool, as_json: bool) -> None:
    pipeline = planned.loaded.pipeline
    views = {name: json.loads(frame.schema.json())["fields"] for name, frame in planned.frames.items()}
    plans = {sink.name: planned.explain(place) for place, sink in enumerate(pipeline.sinks)} if explain else {}
    if as_json:
        found: dict[str, Any] = {"ok": True, "pipeline": pipeline.name, "streaming": pipeline.is_streaming}
        found["views"] = views
        found["sinks"] = [
            {"name": sink.name, "format": sink.format, "view": sink.view or pipeline.views[-1]}
            for sink in pipeline.sinks
        ]
        print_json(found | ({"plans": plans} if explain else {}))
        return
    for name, text in plans.items():
        print_text(f"--- {safe(name)}\n{text}\n\n")
    if not explain:
        rows = [
            (name, f"{field['name']} {_type_text(field['type'])}") for name, fields in views.items() for field in fields
        ]
        print_table(("view", "column"), rows)
        print_line(f"{planned.loaded.file}: ok, {len(pipeline.steps)} steps, {len(pipeline.sinks)} sinks")


def _type_text(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _report(result: PipelineResult, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {"ok": True, "pipeline": result.name, "streaming": result.streaming}
            | {"sinks": [attrs.asdict(sink) for sink in result.sinks]}
        )
        return
    print_table(
        ("sink", "format", "rows#", "batches#", "seconds#"),
        (
            (sink.name, sink.format, "-" if sink.rows is None else sink.rows, sink.batches, f"{sink.seconds:.1f}")
            for sink in result.sinks
        ),
    )


@click.command(cls=Command)
@click.option(
    "--folder", type=options.PATH, metavar="DIR", help="Keep all files in this folder; by default a temporary one."
)
@click.option(
    "--messages", type=click.IntRange(min=100), default=20000, metavar="N", help="Number of orders in the store."
)
@options.as_json
def demo(folder: Path | None, messages: int, as_json: bool) -> None:
    require("spark", "a pipeline")
    if folder is not None and folder.exists():
        raise CommandError(f"--folder: {folder} exists already: name a new one", ExitCode.USAGE)
    with contextlib.ExitStack() as stack:
        if folder is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-pipeline-")))
        else:
            place = folder.absolute()
            place.mkdir(parents=True)
        file = make_store(place, messages)
        loaded = load_pipeline(file)
        spark = stack.enter_context(pipeline_session(loaded, "local[2]"))
        result = _run(plan(spark, loaded), as_json=as_json)
        _report(result, as_json=as_json)
        rows = {sink.name: sink.rows for sink in result.sinks}
        broken = messages // BROKEN_EVERY
        if (rows["orders"], rows["rejects"]) != (messages - broken, broken):
            raise CommandError(
                f"{messages - broken} orders and {broken} other messages were stored, but the pipeline wrote {rows}"
            )
    if not as_json:
        print_line(f"every one of {messages} messages came out{'' if folder is None else f'; next: edit {file}'}")


def orders(count: int) -> Iterator[bytes]:
    """Yield bodies of messages with orders as JSON. Some of the bodies are not valid JSON."""
    for number in range(count):
        if number % BROKEN_EVERY == BROKEN_EVERY - 1:
            yield b'{"id": '
        else:
            order = {"id": number, "city": CITIES[number % len(CITIES)], "amount": number * 7919 % 100_000 / 100}
            yield json.dumps(order, ensure_ascii=False).encode()


def make_store(folder: Path, count: int) -> Path:
    """Start a broker, send messages with orders to it, and stop it. Return the file of the demo's pipeline.

    Raises:
        CommandError: the broker does not start, or does not stop properly.
    """
    small_files = ("--set", "store.commit_log_file_bytes=64MiB")
    child = ServedChild(["--store", str(folder / "store"), "--port", "0", "--namesrv-port", "0", *small_files])
    with child:
        asyncio.run(_send(child.namesrv, list(orders(count))))
    if child.exit_code != 0:
        raise CommandError(f"the broker ended with exit code {child.exit_code}: {child.errors}")
    pipeline = folder / "demo.yaml"
    example = importlib.resources.files("flintmq") / "examples" / "pipelines" / "demo.yaml"
    pipeline.write_text(example.read_text("utf-8").replace("./", f"{folder}/"), "utf-8")
    return pipeline


async def _send(namesrv: str, bodies: list[bytes]) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
        # The request for the route is repeated, because a name server learns of a new topic some time after the broker.
        for _ in range(100):
            try:
                await admin.topic_route(TOPIC)
                break
            except RefusedError:
                await asyncio.sleep(0.1)
    async with Producer("pipeline-demo", namesrv) as producer:
        for start in range(0, len(bodies), BATCH):
            messages = [Message(TOPIC, body) for body in bodies[start : start + BATCH]]
            await producer.send_batch(messages, timeout_ms=15_000)
