"""A broker inside somebody's program: it starts, serves, and leaves nothing behind.

What an embedder cannot see must not be there: threads, tasks, descriptors, locks, half-started sockets.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.core.errors import PluginError, RefusedError, RemotingError, StoreFormatError, StoreLockedError
from flintmq.core.kernel.hookspecs import RegisterFlushStrategy, hookimpl
from flintmq.core.kernel.ports import FlushStatus, FlushStrategy
from flintmq.core.log.store_lock import StoreLock
from flintmq.testing.store import ImmediateFlush

STRATEGIES = ("group_commit", "flush_real_time", "commit_real_time")


def descriptors() -> dict[str, str]:
    gc.collect()
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the listing's own
    return found


@contextmanager
def nothing_left(store: Path | None = None) -> Iterator[None]:
    """Fails when threads or descriptors are left, or the store is not free.

    Other tests share a broker that lives in this process: what it syncs or writes just now is gone at another look.
    """
    with asyncio.Runner(loop_factory=loop_factories()[-1]) as runner:
        runner.run(asyncio.sleep(0))  # uvloop opens a pipe of its own with its first loop
    before, threads = descriptors(), set(threading.enumerate())
    yield
    give_up_s = time.monotonic() + 5
    while True:
        left = {name: target for name, target in descriptors().items() if before.get(name) != target}
        left |= {thread.name: "thread" for thread in set(threading.enumerate()) - threads}
        if not left or time.monotonic() > give_up_s:
            break
        time.sleep(0.02)
    assert not left
    if store is not None and store.exists():
        assert not (store / "abort").exists()
        StoreLock(store).release()


def run(work: Callable[[], Any], factory: Any = None) -> Any:
    """Runs a coroutine function, and fails when it leaves tasks behind."""

    async def checked() -> Any:
        result = await work()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(checked())


def loop_factories() -> list[Any]:
    try:
        import uvloop
    except ImportError:
        return [None]
    return [None, uvloop.new_event_loop]


@pytest.mark.parametrize("factory", loop_factories(), ids=lambda factory: "uvloop" if factory else "asyncio")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_embedded_servers_leave_no_resources_open_after_their_stop(
    configure: Any, tmp_path: Path, strategy: str, factory: Any, unexpected: list[str]
) -> None:
    """The promise of embedding, for every flush strategy and both event loops."""
    config = configure(f"flush.strategy={strategy}")

    async def live() -> None:
        async with flintmq.NameServer(config) as namesrv:
            loaded = config.with_overrides([f"namesrv.addresses={namesrv.address}"])
            async with flintmq.Broker(loaded) as broker:
                put = await broker.put([flintmq.Message("T", b"one"), flintmq.Message("T", b"two")])
                assert put.status is FlushStatus.FLUSHED
                assert broker.port > 0

    with nothing_left(tmp_path / "store"):
        run(live, factory)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_embedded_broker_in_a_separate_thread_leaves_no_resources_open(
    configure: Any, connect: Any, tmp_path: Path, strategy: str, unexpected: list[str]
) -> None:
    """``with`` is what scripts and tests use; a client that is still connected must not keep the broker alive."""
    with nothing_left(tmp_path / "store"):
        with flintmq.NameServer(configure()) as namesrv:
            config = configure(f"flush.strategy={strategy}", f"namesrv.addresses={namesrv.address}")
            with flintmq.Broker(config) as broker:
                wire = connect(broker)
                assert wire.send("T", b"over the wire").code == 0
                put = broker.put([flintmq.Message("T", b"in process")])
                assert put.status is FlushStatus.FLUSHED
                assert wire.is_served()
        assert wire.is_closed_by_peer()
        wire.close()


def test_a_broker_configured_to_use_uvloop_runs_in_an_event_loop_of_uvloop(configure: Any) -> None:
    """``listen.loop`` is one line of YAML; it must reach the thread."""
    pytest.importorskip("uvloop")
    with flintmq.Broker(configure("listen.loop=uvloop")) as broker:

        async def loop_type() -> str:
            return type(asyncio.get_running_loop()).__module__

        assert broker.call(loop_type).startswith("uvloop")


def test_an_event_loop_package_that_is_not_installed_raises_import_error(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the thread before the loop runs must reach the caller, who waits for the start."""
    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    with nothing_left(), pytest.raises(ImportError), flintmq.Broker(configure("listen.loop=uvloop")):
        pass


def test_several_brokers_run_in_one_process(configure: Any, connect: Any, tmp_path: Path) -> None:
    """Nothing of a broker is global: each has its store, its offsets, its port."""
    with nothing_left():
        names = ("a", "b", "c")
        brokers = [flintmq.Broker(configure(f"broker.name={name}", store=name)) for name in names]
        for broker in brokers:
            broker.__enter__()
        try:
            for number, broker in enumerate(brokers):
                wire = connect(broker)
                for _ in range(number + 1):
                    last = wire.send("T", names[number].encode())
                assert last.queue_offset == number
                assert {record.body for record in wire.pull_all("T")} == {names[number].encode()}
                wire.close()
        finally:
            for broker in brokers:
                broker.__exit__(None, None, None)
        assert all((tmp_path / name / "commitlog").is_dir() for name in names)


# put


def test_putting_messages_in_process_returns_the_queue_id_and_queue_offset_of_each_message(configure: Any) -> None:
    """An embedder needs what a producer is told: queue, offset, both ids."""

    async def live() -> None:
        async with flintmq.Broker(configure("flush.strategy=group_commit")) as broker:
            batch = broker.put([flintmq.Message("T", b"%d" % number, tags="x") for number in range(8)])
            assert len(batch) == 8
            assert batch.status in (None, FlushStatus.FLUSHED)
            done = await batch
            assert done is batch
            assert batch.status is FlushStatus.FLUSHED
            assert sorted((result.queue_id, result.queue_offset) for result in batch) == [
                (queue, offset) for queue in range(4) for offset in range(2)
            ]
            assert len({result.message_id for result in batch}) == len({result.unique_key for result in batch}) == 8
            store = broker.state.store
            assert store.watermarks.flushed == store.watermarks.wrote  # awaited means synced
            for number, result in enumerate(batch):
                record = store.reader.message_at(result.commit_log_offset_bytes)
                assert record is not None
                assert record.body == b"%d" % number
            assert len(await broker.put([])) == 0

    run(live)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (flintmq.Message("no topic", b""), "topic.illegal"),
        (flintmq.Message("t" * 128, b""), "topic.too_long"),
        (flintmq.Message("../../etc", b""), "topic.illegal"),
        (flintmq.Message("SCHEDULE_TOPIC_XXXX", b""), "topic.forbidden"),
        (flintmq.Message("T", b"x" * (4 * 1024 * 1024 + 1)), "message.body_too_long"),
        (flintmq.Message("T", b"", keys="k" * 33_000), "message.properties_too_long"),
    ],
    ids=["blank", "long", "path", "forbidden", "body", "properties"],
)
@pytest.mark.parametrize("own_thread", [True, False])
def test_an_in_process_put_is_refused_for_the_same_reasons_as_a_send(
    configure: Any, message: flintmq.Message, reason: str, own_thread: bool
) -> None:
    """The same checks apply in the process and over the wire; nothing of a refused batch is stored."""
    config = configure()
    batch = [flintmq.Message("T", b"good"), message]
    if own_thread:
        with flintmq.Broker(config) as broker:
            with pytest.raises(RefusedError) as refused:
                broker.put(batch)
            assert broker.state.store.watermarks.wrote == 0
    else:

        async def live() -> None:
            async with flintmq.Broker(config) as broker:
                with pytest.raises(RefusedError) as caught:
                    broker.put(batch)
                assert caught.value.reason == reason
                assert broker.state.store.watermarks.wrote == 0

        run(live)
        return
    assert refused.value.reason == reason


def test_an_in_process_put_before_the_start_and_after_the_stop_of_the_broker_is_refused(
    configure: Any, tmp_path: Path
) -> None:
    """A message that comes when the store is closed must not be written behind its lock."""
    broker = flintmq.Broker(configure())
    with pytest.raises(flintmq.FlintError):
        broker.put([flintmq.Message("T", b"early")])
    with broker:
        broker.put([flintmq.Message("T", b"in time")])
    wrote = broker.state.store.watermarks.wrote
    with pytest.raises(flintmq.FlintError):
        broker.put([flintmq.Message("T", b"late")])
    assert broker.state.store.watermarks.wrote == wrote

    async def live() -> None:
        async with flintmq.Broker(configure(store="other")) as other:
            await other.put([flintmq.Message("T", b"in time")])
        with pytest.raises(flintmq.FlintError):
            other.put([flintmq.Message("T", b"late")])

    run(live)


class OffTheLoop:
    """Finds out who appends: only the loop's thread may."""

    def __init__(self, broker: flintmq.Broker) -> None:
        self.threads: set[int] = set()
        append = broker.state.store.commit_log.append

        def watched(messages: Any) -> Any:
            self.threads.add(threading.get_ident())
            return append(messages)

        broker.state.store.commit_log.append = watched  # type: ignore[method-assign]


def test_a_put_from_another_thread_appends_messages_in_the_thread_of_the_event_loop(configure: Any) -> None:
    """The log's tail has one writer: threads that append beside the loop would tear it. They get what ``with`` gives."""

    async def live() -> None:
        async with flintmq.Broker(configure("flush.strategy=group_commit", "topics.default_queue_nums=1")) as broker:
            watch, store = OffTheLoop(broker), broker.state.store

            def put_some(thread: int) -> list[int]:
                places = []
                for number in range(20):
                    (result,) = batch = broker.put([flintmq.Message("T", b"%d-%d" % (thread, number))])
                    assert batch.status is FlushStatus.FLUSHED
                    assert store.watermarks.flushed > result.commit_log_offset_bytes
                    places.append(result.queue_offset)
                return places

            found = await asyncio.gather(*(asyncio.to_thread(put_some, thread) for thread in range(6)))
            await broker.put([flintmq.Message("T", b"here")])
            assert sorted(place for places in found for place in places) == list(range(120))
            assert watch.threads == {threading.get_ident()}

    run(live)


def test_a_put_from_another_event_loop_can_be_awaited_in_that_loop(configure: Any) -> None:
    """That loop must not stand still for a disk: it is told where messages are, and waits for their sync as it likes."""

    async def live() -> None:
        async with flintmq.Broker(configure("flush.strategy=group_commit")) as broker:
            watch = OffTheLoop(broker)

            async def elsewhere() -> bool:
                batches = [broker.put([flintmq.Message("T", b"%d" % n) for n in range(4)]) for _ in range(5)]
                for batch in batches:
                    assert (await batch).status is FlushStatus.FLUSHED
                return len({result.message_id for batch in batches for result in batch}) == 20

            assert await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
            assert watch.threads == {threading.get_ident()}

    run(live)


def test_a_put_called_on_the_thread_of_the_event_loop_does_not_deadlock(configure: Any) -> None:
    """A callback, a hook of ``with`` and a program whose loop rests just now would wait for themselves."""
    with asyncio.Runner() as runner:
        broker = flintmq.Broker(configure())
        runner.run(broker.start())
        assert len(broker.put([flintmq.Message("T", b"the loop rests")])) == 1

        async def in_a_callback() -> None:
            done = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(lambda: done.set_result(broker.put([flintmq.Message("T", b"")])))
            await (await done)

        runner.run(in_a_callback())
        runner.run(broker.stop())
    with flintmq.Broker(configure(store="own thread")) as other:

        async def on_the_loop() -> int:
            return len(await other.put([flintmq.Message("T", b"")]))

        assert other.call(on_the_loop) == 1


def test_a_put_from_another_thread_raises_an_error_if_the_event_loop_of_the_broker_is_not_running(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so instead of hanging, and what it gave up is not stored later."""
    monkeypatch.setattr("flintmq.programs.broker.service._STOPPED_POLL_S", 0.05)
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as threads:
        broker = flintmq.Broker(configure())
        runner.run(broker.start())
        with pytest.raises(flintmq.FlintError, match="its event loop does not run"):
            threads.submit(broker.put, [flintmq.Message("T", b"")]).result()
        runner.run(asyncio.sleep(0.01))
        assert broker.state.store.watermarks.wrote == 0
        runner.run(broker.stop())
        with pytest.raises(flintmq.FlintError, match="does not run"):
            threads.submit(broker.put, [flintmq.Message("T", b"")]).result()


class NeverDurable(ImmediateFlush):
    """A disk that has hung: no promise is ever kept."""

    class Pending:
        status = None

        def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None: ...

    def submit(self, end_offset_bytes: int) -> Any:
        return self.Pending()


class HungDisk:
    """Registers it."""

    @hookimpl
    def flintmq_flush_services(self, register: RegisterFlushStrategy) -> None:
        register(FlushStrategy("hung", NeverDurable, synchronous=True))


def test_a_put_does_not_wait_for_the_flush_if_wait_store_is_false_for_every_message(configure: Any) -> None:
    """WAIT=false is answered when it is appended, over the wire as in-process; one that waits makes its batch wait."""
    quick, slow = flintmq.Message("T", b"", wait_store=False), flintmq.Message("T", b"")
    named = flintmq.Message("T", b"", properties={"a": "b"}, wait_store=False, delay_level=1)
    with flintmq.Broker(configure("flush.strategy=hung"), plugins=[HungDisk()]) as broker:
        assert broker.put([quick, named]).status is FlushStatus.FLUSHED

        async def on_the_loop() -> None:
            async with asyncio.timeout(5):
                assert (await broker.put([quick, named])).status is FlushStatus.FLUSHED
            assert broker.put([quick, slow]).status is None

        broker.call(on_the_loop)


def test_messages_put_during_the_stop_of_a_broker_are_stored_or_refused(configure: Any) -> None:
    """Whatever is put while a broker stops is either stored or refused, never half of both."""

    async def live() -> None:
        broker = flintmq.Broker(configure())
        await broker.start()
        accepted: list[int] = []
        stopping = asyncio.create_task(broker.stop())
        while not stopping.done():
            with suppress(flintmq.FlintError):
                accepted += [r.commit_log_offset_bytes for r in broker.put([flintmq.Message("T", b"x" * 10)])]
            await asyncio.sleep(0)
        await stopping
        async with flintmq.Broker(configure()) as again:
            store = again.state.store
            assert store.started_clean
            assert [store.reader.message_at(offset) is not None for offset in accepted] == [True] * len(accepted)

    run(live)


# life


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_queue_offsets_continue_after_a_clean_restart_of_the_broker(
    configure: Any, connect: Any, strategy: str
) -> None:
    """Offsets continue, old messages are there, and the second start is a clean one."""
    for life in range(3):
        with flintmq.Broker(configure(f"flush.strategy={strategy}")) as broker:
            assert broker.state.store.started_clean
            wire = connect(broker)
            for number in range(10):
                assert wire.send("T", b"%d-%d" % (life, number)).queue_offset == life * 10 + number
            assert len(wire.pull_all("T", at_least=(life + 1) * 10)) == (life + 1) * 10


def test_the_stop_of_a_broker_can_be_called_twice_and_without_a_start(configure: Any) -> None:
    """Cleaning up twice is what ``finally`` blocks do."""

    async def live() -> None:
        broker = flintmq.Broker(configure())
        await broker.stop()
        await broker.start()
        await asyncio.gather(broker.stop(), broker.stop())
        await broker.stop()
        namesrv = flintmq.NameServer(configure())
        await namesrv.stop()
        await namesrv.start()
        await namesrv.stop()
        await namesrv.stop()

    with nothing_left():
        run(live)


def test_an_error_in_the_body_of_a_with_statement_stops_the_broker(configure: Any, tmp_path: Path) -> None:
    """``with`` is for errors first of all."""
    with nothing_left(tmp_path / "store"), pytest.raises(ZeroDivisionError), flintmq.Broker(configure()):
        raise ZeroDivisionError


def test_canceling_the_task_of_an_embedded_broker_stops_the_broker(configure: Any, tmp_path: Path) -> None:
    """Control-C cancels the main task in the middle of the body."""

    async def live() -> None:
        async def body() -> None:
            async with flintmq.Broker(configure()) as broker:
                await broker.put([flintmq.Message("T", b"")])
                ready.set()
                await asyncio.Event().wait()

        ready = asyncio.Event()
        task = asyncio.create_task(body())
        await ready.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with nothing_left(tmp_path / "store"):
        run(live)


# starts that fail


@contextmanager
def port_taken(configure: Any) -> Iterator[Any]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        yield configure(f"listen.port={other.getsockname()[1]}")


@contextmanager
def store_locked(configure: Any) -> Iterator[Any]:
    config = configure()
    Path(config.config.store.path).mkdir()
    lock = StoreLock(Path(config.config.store.path))
    yield config
    lock.release()


@contextmanager
def plugin_unknown(configure: Any) -> Iterator[Any]:
    yield configure("plugins=nobody.has_this:plugin")


@contextmanager
def strategy_unknown(configure: Any) -> Iterator[Any]:
    yield configure("flush.strategy=nobody_has_this")


@contextmanager
def other_file_size(configure: Any) -> Iterator[Any]:
    with flintmq.Broker(configure()) as broker:
        broker.put([flintmq.Message("T", b"x" * 1000) for _ in range(2000)])  # several files
    yield configure("store.commit_log_file_bytes=2097152")


@contextmanager
def stray_file(configure: Any) -> Iterator[Any]:
    with flintmq.Broker(configure()) as broker:
        broker.put([flintmq.Message("T", b"x")])
        path = broker.store_path
    (path / "commitlog" / "notes.txt").write_text("not mine")
    yield configure("flush.strategy=commit_real_time")
    (path / "commitlog" / "notes.txt").unlink()


class Unwilling:
    """A plugin that raises when the broker is about to listen."""

    plugin_name = "unwilling"

    @flintmq.hookimpl
    def flintmq_dispatchers(self, register: Any) -> None:
        def factory(context: Any) -> Any:
            raise RuntimeError("not today")

        register("consume_queue", factory, essential=True)


@pytest.mark.parametrize("own_thread", [True, False])
@pytest.mark.parametrize(
    ("why", "error"),
    [
        (port_taken, RemotingError),
        (store_locked, StoreLockedError),
        (plugin_unknown, PluginError),
        (strategy_unknown, PluginError),
        (other_file_size, StoreFormatError),
        (stray_file, StoreFormatError),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_failed_broker_start_leaves_no_resources_open_and_can_be_repeated(
    configure: Any, why: Any, error: type[Exception], own_thread: bool, tmp_path: Path
) -> None:
    """Whoever catches the error tries again with other settings in the same process."""
    with why(configure) as config, nothing_left():
        if own_thread:
            with pytest.raises(error), flintmq.Broker(config):
                pass
        else:

            async def live() -> None:
                with pytest.raises(error):
                    await flintmq.Broker(config).start()

            run(live)
    if (tmp_path / "store").exists():
        StoreLock(tmp_path / "store").release()
    with flintmq.Broker(configure()) as broker:
        broker.put([flintmq.Message("T", b"now it works")])


def test_a_broker_start_that_fails_in_a_plugin_leaves_no_resources_open(configure: Any, tmp_path: Path) -> None:
    """The store is open by then: it must be closed again, and stay clean."""
    started = flintmq.Broker(configure(), plugins=[Unwilling()])
    with nothing_left(tmp_path / "store"), pytest.raises(PluginError, match=r"'unwilling'.*not today"), started:
        pass
    with flintmq.Broker(configure()) as broker:
        assert broker.state.store.started_clean


def test_a_failed_broker_start_after_a_crash_keeps_the_abort_file(configure: Any, tmp_path: Path) -> None:
    """Only a stop that put everything on disk may call the store clean."""
    with flintmq.Broker(configure()) as broker:
        broker.put([flintmq.Message("T", b"x")])
    (tmp_path / "store" / "abort").touch()
    with (
        pytest.raises(PluginError, match=r"'unwilling'.*not today"),
        flintmq.Broker(configure(), plugins=[Unwilling()]),
    ):
        pass
    assert (tmp_path / "store" / "abort").exists()
    with flintmq.Broker(configure()) as broker:
        assert not broker.state.store.started_clean


def test_a_name_server_that_cannot_listen_leaves_no_resources_open(configure: Any) -> None:
    """A program that embeds it may try another address in the same process."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        config = configure(f"nameserver.port={other.getsockname()[1]}")
        with nothing_left(), pytest.raises(RemotingError), flintmq.NameServer(config):
            pass


def test_a_second_broker_on_an_open_store_is_refused(configure: Any) -> None:
    """Two writers would destroy the log; the first one must not notice anything."""
    with flintmq.Broker(configure()) as broker:
        with pytest.raises(StoreLockedError), flintmq.Broker(configure()):
            pass
        assert broker.put([flintmq.Message("T", b"still mine")])[0].queue_offset == 0
