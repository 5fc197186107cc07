"""The audit file counts each stored record exactly once, across restarts, crashes and rotations of the file."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from flintmq_audit.dispatcher import AuditDispatcher

from flintmq.core.kernel.ports import RecordBatch
from flintmq.testing.dispatcher_kit import check_dispatcher, sample_requests


def account(*paths: Path) -> dict[str, tuple[int, int]]:
    """Return the numbers of messages and bytes in the audit file, keyed by topic. These numbers do not depend on how records
    form batches."""
    totals: dict[str, tuple[int, int]] = {}
    for line in itertools.chain.from_iterable(path.read_text("utf-8").splitlines() for path in paths if path.exists()):
        entry = json.loads(line)
        messages, size = totals.get(entry["topic"], (0, 0))
        totals[entry["topic"]] = (messages + entry["messages"], size + entry["bytes"])
    return totals


def test_the_audit_dispatcher_passes_the_dispatcher_kit(tmp_path: Path) -> None:
    numbers = itertools.count()
    paths: dict[int, Path] = {}

    def make() -> AuditDispatcher:
        path = tmp_path / f"{next(numbers)}.jsonl"
        dispatcher = AuditDispatcher(path, 1 << 20)
        paths[id(dispatcher)] = path
        return dispatcher

    check_dispatcher(make, observe=lambda dispatcher: account(paths[id(dispatcher)]))


def test_a_restart_continues_at_the_end_of_the_audit_file(tmp_path: Path) -> None:
    path, requests = tmp_path / "audit.jsonl", sample_requests(20)
    first = AuditDispatcher(path, 1 << 20)
    first.dispatch(RecordBatch.of_requests(requests[:12]))
    first.close()
    second = AuditDispatcher(path, 1 << 20)
    second.dispatch(RecordBatch.of_requests(requests))
    second.close()
    assert sum(messages for messages, _ in account(path).values()) == 20


def test_a_restart_replaces_a_torn_last_line(tmp_path: Path) -> None:
    path, requests = tmp_path / "audit.jsonl", sample_requests(4)
    first = AuditDispatcher(path, 1 << 20)
    first.dispatch(RecordBatch.of_requests(requests[:2]))
    first.close()
    path.write_bytes(path.read_bytes() + b'{"topic":"Ord')
    second = AuditDispatcher(path, 1 << 20)
    second.dispatch(RecordBatch.of_requests(requests))
    second.close()
    assert sum(messages for messages, _ in account(path).values()) == 4


@pytest.mark.parametrize("restart", [False, True])
def test_a_rotated_audit_file_keeps_its_position_and_one_older_file(tmp_path: Path, restart: bool) -> None:
    path, requests = tmp_path / "audit.jsonl", sample_requests(30)
    dispatcher = AuditDispatcher(path, 600)
    for request in requests:
        dispatcher.dispatch(RecordBatch.of_requests([request]))
    if restart:
        dispatcher.close()
        dispatcher = AuditDispatcher(path, 600)
    size = path.stat().st_size
    dispatcher.dispatch(RecordBatch.of_requests(requests))
    dispatcher.close()
    assert path.stat().st_size == size <= 600
    assert path.with_name("audit.jsonl.1").stat().st_size <= 600
