"""``flintmq spark offsets`` shows the offset of a streaming query, and moves the query to another offset."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flintmq.plugins.spark.errors import SparkPluginError
from flintmq.plugins.spark.pipeline.references import require
from flintmq.programs.cli import options
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import print_done, print_json, print_line, print_table
from flintmq.programs.cli.parser import Command

if TYPE_CHECKING:
    from flintmq.core.broker.topic_config import MessageQueue
    from flintmq.plugins.spark.checkpoint import Checkpoint, CheckpointEntry
    from flintmq.plugins.spark.ports import Offset
    from flintmq.plugins.spark.store.transport import StoreTransport
    from flintmq.plugins.spark.wire_transport import WireTransport

    Transport = StoreTransport | WireTransport


@click.command(cls=Command)
@click.argument(
    "checkpoint", type=options.PATH, metavar="CHECKPOINT", help="The query's checkpointLocation, a local folder."
)
@click.option(
    "--source",
    "source",
    multiple=True,
    metavar="OPTION=VALUE",
    help="An option of the query's source, such as path=/data/store, nameServer=h:9876, subscribe=orders, to compare the "
    "offset with the source. May be repeated.",
)
@click.option(
    "--reset",
    metavar="START",
    help="Continue from here; a value of startingOffsets (earliest, latest, -100, -10m, JSON). Needs --source.",
)
@click.option(
    "--move",
    type=click.Choice(["files", "wire"]),
    help="Continue at the same messages, but read files or brokers. Needs --source path=STORE, the store of the only broker.",
)
@options.as_json
def offsets(checkpoint: Path, source: tuple[str, ...], reset: str | None, move: str | None, as_json: bool) -> None:
    require("spark", "a checkpoint")
    from flintmq.plugins.spark.checkpoint import Checkpoint

    if reset is not None and move is not None:
        raise CommandError("give either --reset or --move", ExitCode.USAGE)
    if (reset is not None or move is not None) and not source:
        raise CommandError(f"--{'reset' if reset else 'move'} needs --source", ExitCode.USAGE)
    given = _source(source)
    try:
        kept = Checkpoint(checkpoint)
        entry = kept.newest()
        if reset is not None:
            given["startingOffsets"] = reset
        with contextlib.ExitStack() as stack:
            transport = _transport(given, stack) if source else None
            if reset is None and move is None:
                _show(entry, transport, as_json)
                return
            assert transport is not None
            to = _reset(entry, transport) if move is None else _moved(entry, transport, move)
        _go_on(kept, entry, to, as_json)
    except SparkPluginError as error:
        raise CommandError(str(error)) from error


def _source(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"--source is OPTION=VALUE, not {pair[:80]!r}", ExitCode.USAGE)
        found[name.strip()] = value
    return found


def _transport(given: Mapping[str, str], stack: contextlib.ExitStack) -> Transport:
    from flintmq.plugins.spark.options import ReadOptions

    parsed = ReadOptions.parse(given)
    if parsed.transport == "store":
        from flintmq.plugins.spark.store.transport import StoreTransport

        return StoreTransport(parsed)
    from flintmq.plugins.spark.wire_transport import WireTransport

    return stack.enter_context(contextlib.closing(WireTransport(parsed)))


def _reset(entry: CheckpointEntry, transport: Transport) -> Offset:
    """Return the offset for ``--reset``, at which a new query would begin according to the option startingOffsets. Raises
    CommandError if the source and the checkpoint have different transports."""
    found = transport.initial("latest")
    _check_same(entry.offset, found)
    return found


def _check_same(offset: Offset, other: Offset) -> None:
    if offset["transport"] != other["transport"]:
        raise CommandError(
            f"the checkpoint has transport {offset['transport']!r}, which differs from the transport of --source: "
            "change --source, or use --move",
            ExitCode.USAGE,
        )


def _moved(entry: CheckpointEntry, transport: Transport, way: str) -> Offset:
    from flintmq.plugins.spark.store.queue_places import offset_at, queues_at
    from flintmq.plugins.spark.store.transport import StoreTransport
    from flintmq.plugins.spark.wire.ranges import offset_of, queues_of

    if not isinstance(transport, StoreTransport):
        raise CommandError("--move needs --source path=STORE, to find positions in the log", ExitCode.USAGE)
    if entry.offset["transport"] == ("store" if way == "files" else "broker"):
        raise CommandError(f"there is nothing to move: the checkpoint's offsets are already for {way}", ExitCode.USAGE)
    if way == "files":
        return offset_at(transport, queues_of(entry.offset))
    return offset_of(queues_at(transport, entry.offset))


def _go_on(kept: Checkpoint, entry: CheckpointEntry, offset: Offset, as_json: bool) -> None:
    batch = kept.move(entry, offset)
    text = f"batch {batch} is noted as done: the query goes on where it ends. Before: batch {entry.batch}"
    print_done(text, as_json, ok=True, batch=batch, offset=offset, before=entry.offset)


def _show(entry: CheckpointEntry, transport: Transport | None, as_json: bool) -> None:
    offset = entry.offset
    there = transport.latest() if transport is not None else None
    if transport is not None and there is not None:
        _check_same(offset, there)
        there = transport.reported(offset, there)
    if as_json:
        print_json({"batch": entry.batch, "done": entry.is_done, "offset": offset, "latest": there})
        return
    state = "done" if entry.is_done else "planned, and not done: a start runs it again"
    print_line(f"batch {entry.batch}, {state}")
    if offset["transport"] == "store":
        _show_store(offset, there, transport)
    else:
        from flintmq.plugins.spark.wire.ranges import queues_of

        ends = queues_of(there) if there is not None else {}
        _show_queues(queues_of(offset), ends)
    if there is not None:
        lag = there["lag"]
        print_line(f"behind by {_told(lag['messages'])} messages, {_told(lag['bytes'])} bytes, {_told(lag['ms'])} ms")


def _show_store(offset: Offset, there: Offset | None, transport: Any) -> None:
    print_line(
        f"physical offset {offset['phys']:,}, store {offset.get('store', '-')}, epoch {offset.get('epoch', '-')}"
    )
    if there is not None:
        from flintmq.plugins.spark.store.queue_places import queues_at
        from flintmq.plugins.spark.store.topic_table import broker_name_of

        print_line(f"the log can be read to {there['phys']:,}")
        if broker_name_of(transport.root, transport.options) is not None:
            _show_queues(queues_at(transport, offset), queues_at(transport, {**there}))


def _show_queues(queues: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> None:
    rows = []
    for queue in sorted({*queues, *ends}, key=lambda one: (one.topic, one.broker_name, one.queue_id)):
        at, end = queues.get(queue), ends.get(queue)
        behind = end - at if at is not None and end is not None else None
        rows.append((queue.topic, queue.broker_name, queue.queue_id, _told(at), _told(end), _told(behind)))
    print_table(("topic", "broker", "queue#", "queue offset#", "end#", "behind#"), rows)


def _told(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
