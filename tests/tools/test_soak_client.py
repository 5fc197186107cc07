"""The soak of the client finds nothing in a short run, and finds what is wrong if something is."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from flintmq.client import AdminClient, Message, TransactionState

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="measures memory and descriptors in /proc"
)


@pytest.fixture
def soak_client() -> ModuleType:
    """The tool as a module."""
    return importlib.import_module("soak_client")


def a_round(soak_client: ModuleType, tmp_path: Path, seed: int = 1) -> Any:
    words = argparse.Namespace(clients=1, seed=seed)
    return soak_client.Round(words, soak_client.Observed(), None, tmp_path, 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_soak_test_of_the_client_finds_no_fault(soak_client: ModuleType, tmp_path: Path) -> None:
    """The soak runs in a separate process, because it counts all threads, tasks and descriptors of the process."""
    command = [sys.executable, str(soak_client.__file__), "--minutes", "0.33", "--round-seconds", "8", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == [], f"of seed {found['seed']}"
    assert sum(found["troubles"].values()) >= 2
    assert all(one["acknowledged"] for one in found["rounds"])
    assert any(name.endswith("(sync).close") for name in found["calls"])


def test_the_first_client_of_every_soak_round_is_a_producer(soak_client: ModuleType, tmp_path: Path) -> None:
    """There are more kinds of clients than are open at a time, and a short round ends before each has had its turn."""
    for seed in range(20):
        trial = a_round(soak_client, tmp_path, seed=seed)
        dealt = [trial._deal().name for _ in trial._kinds]
        assert dealt[0].startswith("Producer")
        assert sorted(dealt) == sorted(kind.name for kind in trial._kinds)


def test_the_soak_test_reports_client_calls_that_raise_undocumented_exceptions_or_end_too_late(
    soak_client: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the asyncio and the blocking clients are checked; documented exceptions are no fault."""
    monkeypatch.setattr(soak_client, "MARGIN_S", 0.0)
    trial = a_round(soak_client, tmp_path)
    waiting, on_loop = trial._kinds[-1], trial._kinds[0]
    assert waiting.is_waiting
    assert not on_loop.is_waiting
    lasts = asyncio.Event()

    def fail(failure: type[BaseException]) -> Any:
        def work() -> None:
            raise failure("on purpose")

        return work

    def late() -> Any:
        asyncio.get_running_loop().call_later(0.05, lasts.set)
        return lasts.wait()

    async def perform() -> None:
        for kind in (waiting, on_loop):
            await trial._perform(kind, soak_client.Call("refused", fail(soak_client.FlintError), 5.0))
            await trial._perform(kind, soak_client.Call("expected", fail(ValueError), 5.0, expected=(ValueError,)))
            assert not trial._observed.faults
        for kind in (waiting, on_loop):
            await trial._perform(kind, soak_client.Call("wrong", fail(KeyError), 5.0))
        await trial._perform(on_loop, soak_client.Call("late", late, 0.0))
        await trial._perform(on_loop, soak_client.Call("cancelled", asyncio.Event().wait, 60.0), cancel_after_s=0.0)

    asyncio.run(perform())
    assert list(trial._observed.faults) == [
        f"{waiting.name}.wrong raised KeyError: 'on purpose'",
        f"{on_loop.name}.wrong raised KeyError: 'on purpose'",
        f"{on_loop.name}.late has not ended after 0 s",
    ]
    assert trial._observed.calls[f"{on_loop.name}.cancelled"].cancelled == 1


def test_the_soak_test_reports_the_loss_of_an_acknowledged_message(
    soak_client: ModuleType, tmp_path: Path, name_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was acknowledged, a transaction that was committed, and what a group was not given."""
    monkeypatch.setattr(soak_client, "CHECK_TIMEOUT_S", 0.0)
    trial = a_round(soak_client, tmp_path)
    ledger = trial._ledger
    ledger.acknowledged.add(b"lost")
    ledger.ended.add(b"also lost")
    ledger.decided[b"also lost"] = TransactionState.COMMIT
    ledger.heard(soak_client.group_of("plain", ledger), [])

    async def check() -> None:
        async with AdminClient(name_server) as admin:
            for topic in (ledger.topic, ledger.transaction_topic):
                await admin.create_topic(topic, queues=1)
                while topic not in await admin.topic_list():  # the broker registers it beside its answer
                    pass
        world = soak_client.World(name_server, "", ledger, tmp_path)
        await trial._check_stored(world)
        await trial._check_delivered("plain", world)

    asyncio.run(check())
    assert list(trial._observed.faults) == [
        "messages were acknowledged and are lost",
        "transactions were committed and are lost",
        "group soak-plain was not given all",
    ]


def test_an_undecided_transaction_is_rolled_back_at_the_end_of_a_soak_test(
    soak_client: ModuleType, tmp_path: Path
) -> None:
    """Its send has failed, but its half message is stored. The broker is told, and asks about it no more."""
    ledger = a_round(soak_client, tmp_path)._ledger
    undecided, committed = (Message(ledger.transaction_topic, word) for word in (b"undecided 1", b"committed 1"))
    ledger.decided[b"committed"] = TransactionState.COMMIT
    assert [ledger.check(one) for one in (undecided, committed)] == [TransactionState.UNKNOWN, TransactionState.COMMIT]
    assert not ledger.rolled_back()
    ledger.is_over = True
    assert [ledger.check(one) for one in (undecided, committed)] == [TransactionState.ROLLBACK, TransactionState.COMMIT]
    assert ledger.rolled_back() == {b"undecided"}


def test_the_soak_test_reports_growth_of_memory_after_the_warm_up(soak_client: ModuleType) -> None:
    """A small growth of memory is noise, but any growth of the number of descriptors is a fault."""
    observed = soak_client.Observed()
    flat = soak_client.Measured(rss_mib=50.0, objects=30_000, descriptors=13, threads=5, tasks=1)
    warm = [attrs.evolve(flat, rss_mib=10.0, descriptors=5)] * 2
    soak_client.check_flat([*warm, *[flat] * 3, *[attrs.evolve(flat, rss_mib=55.0, objects=31_000)] * 3], observed)
    assert not observed.faults
    soak_client.check_flat([*warm, *[flat] * 3, *[attrs.evolve(flat, rss_mib=70.0, descriptors=14)] * 3], observed)
    assert list(observed.faults) == ["rss_mib grew from 50 to 70", "descriptors grew from 13 to 14"]


def test_the_soak_test_reports_a_blocked_event_loop(soak_client: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The soak must end and report it, because it would otherwise wait forever."""

    class HeldLoop:
        def start(self, work: Any) -> Future[int]:
            work.close()
            return Future()

    observed = soak_client.Observed()
    module = importlib.import_module("client_soak.observed")
    monkeypatch.setattr(module, "ANSWER_S", 0.01)
    monkeypatch.setattr(module, "shared_loop", HeldLoop)
    with pytest.raises(TimeoutError):
        asyncio.run(soak_client.measure(observed))
    assert list(observed.faults) == ["the loop of all synchronous clients stands still"]


def test_the_soak_test_reports_an_unfinished_task(soak_client: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = soak_client.Observed()
    module = importlib.import_module("client_soak.observed")
    monkeypatch.setattr(module, "LEFT_WAIT_S", 0.1)

    async def leave() -> None:
        left = asyncio.create_task(asyncio.Event().wait(), name="nobody's")
        await soak_client.measure(observed)
        left.cancel()

    asyncio.run(leave())
    assert "left after close: task nobody's of Event.wait" in observed.faults


def test_a_server_that_takes_over_the_port_of_a_stopped_broker_cannot_answer_clients(
    soak_client: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker may listen at the port of one that was killed, or that has not begun to listen: it would acknowledge
    messages that nobody finds again."""
    module = importlib.import_module("client_soak.troubled_broker")
    program = tmp_path / "broker.sh"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    async def use() -> None:
        starts, serves = asyncio.Event(), asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"stored")
            writer.close()

        async def ready(process: Any, printed: Any) -> dict[str, str]:
            starts.set()
            await serves.wait()
            return {"broker": "127.0.0.1"}

        other = await asyncio.start_server(answer, "127.0.0.1", 0)
        monkeypatch.setattr(module, "free_port", lambda: other.sockets[0].getsockname()[1])
        monkeypatch.setattr(module, "read_ready_words", ready)
        broker = module.TroubledBroker(tmp_path, 1)
        broker._is_calm.set()  # it is started again at once

        async def said(port: int) -> bytes:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                said = await reader.read()
            except ConnectionError:
                return b"nothing"
            writer.close()
            return said

        for work in (broker.start, broker._kill):
            starting = asyncio.create_task(work())
            await starts.wait()
            assert [await said(port) for port in (broker._broker_port, broker.namesrv_port)] == [b"nothing"] * 2
            serves.set()
            await starting
            assert [await said(port) for port in (broker._broker_port, broker.namesrv_port)] == [b"stored"] * 2
            starts.clear()
            serves.clear()
        await broker.end()
        other.close()

    asyncio.run(use())
