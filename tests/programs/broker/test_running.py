"""A store is closed before the code that stopped its broker goes on: also where that is cancelled, or a plugin exits."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.core.io.os_disk import OsDisk
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.programs.broker.running import in_thread_to_its_end, run_loop_named, run_to_end, to_its_end

SMALL = ("store.commit_log_file_bytes=1MiB", "index.max_hash_slot_num=1000", "index.max_index_num=4000")


def config(folder: Path, *more: str) -> Any:
    settings = [*SMALL, f"store.path={folder / 'store'}", "listen.port=0", "listen.vip=false", *more]
    return flintmq.load_config(None, settings, {})


class SlowToClose(OsDisk):
    """A disk on which the removal of the ``abort`` file, the end of a close, waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.goes_on = threading.Event(), threading.Event()

    def discard(self, path: Path) -> None:
        if path.name == "abort":
            self.waits.set()
            assert self.goes_on.wait(20)
        super().discard(path)

    def remove(self, path: Path) -> None:
        if path.name == "abort":
            self.waits.set()
            assert self.goes_on.wait(20)
        super().remove(path)


@pytest.mark.parametrize("times", [1, 3])
def test_a_canceled_stop_of_a_broker_returns_only_after_the_store_is_closed(tmp_path: Path, times: int) -> None:
    """``asyncio.timeout`` around a stop: what is opened next must find the store free and clean."""
    disk = SlowToClose()

    async def run() -> None:
        broker = flintmq.Broker(config(tmp_path), disk=disk)
        await broker.start()
        await broker.put([flintmq.Message("T", b"x")])
        stopping = asyncio.create_task(broker.stop())
        await asyncio.to_thread(disk.waits.wait, 20)
        for _ in range(times):
            stopping.cancel()
            await asyncio.sleep(0)
        assert not stopping.done()
        disk.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert not (tmp_path / "store" / "abort").exists()
        async with flintmq.Broker(config(tmp_path)) as again:
            assert again.state.store.started_clean

    asyncio.run(run())


def test_the_store_is_closed_if_the_event_loop_ends_during_a_stop_of_the_broker(tmp_path: Path) -> None:
    """``asyncio.run`` cancels every task when its main one ends, those of the stop as well."""
    disk = SlowToClose()

    async def run() -> None:
        broker = flintmq.Broker(config(tmp_path), disk=disk)
        await broker.start()
        asyncio.create_task(broker.stop())  # noqa: RUF006 - the loop's end finds it
        await asyncio.to_thread(disk.waits.wait, 20)
        threading.Timer(0.05, disk.goes_on.set).start()

    asyncio.run(run())
    assert not (tmp_path / "store" / "abort").exists()


def exits() -> None:
    raise SystemExit(3)


class Exits:
    """A plugin with a task, or a callback, that calls ``sys.exit``."""

    plugin_name = "exits"

    def __init__(self, as_task: bool) -> None:
        self._as_task = as_task
        self.task: asyncio.Task[None] | None = None

    @hookimpl
    def flintmq_broker_starting(self, api: Any) -> None:
        async def work() -> None:
            exits()

        loop = asyncio.get_running_loop()
        if self._as_task:
            self.task = loop.create_task(work())
        else:
            loop.call_soon(exits)


@pytest.mark.parametrize("as_task", [True, False])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_sys_exit_in_a_plugin_does_not_stop_an_embedded_broker(
    tmp_path: Path, as_task: bool, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and everybody is served; the stop is one in order."""
    if loop == "uvloop":
        pytest.importorskip("uvloop", reason="the extra fast is not installed")
    plugin = Exits(as_task)
    with flintmq.Broker(config(tmp_path, f"listen.loop={loop}"), plugins=[plugin]) as broker:
        for _ in range(5):
            broker.put([flintmq.Message("T", b"x")])
    assert "SystemExit(3)" in caplog.text
    # Nobody else asks the plugin's task. Without this, asyncio would log its error in a later test.
    assert plugin.task is None or isinstance(plugin.task.exception(), SystemExit)
    assert not (tmp_path / "store" / "abort").exists()


def test_sys_exit_in_a_program_with_an_embedded_broker_closes_the_store_of_the_broker(tmp_path: Path) -> None:
    """In the caller's own loop SystemExit is the caller's; on its way out the store is closed."""

    plugin = Exits(as_task=True)

    async def run() -> None:
        async with flintmq.Broker(config(tmp_path), plugins=[plugin]):
            await asyncio.sleep(20)

    with pytest.raises(SystemExit):
        asyncio.run(run())
    assert plugin.task is not None
    assert isinstance(plugin.task.exception(), SystemExit)
    assert not (tmp_path / "store" / "abort").exists()


def test_the_result_or_error_of_a_function_run_in_a_thread_reaches_the_awaiting_coroutine() -> None:
    async def fails() -> None:
        raise ValueError("wrong")

    async def run() -> None:
        assert await in_thread_to_its_end(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await in_thread_to_its_end(lambda: 1 // 0)
        with pytest.raises(ValueError, match="wrong"):
            await to_its_end(fails())

    run_to_end("asyncio", run())
    assert run_loop_named("auto") is not None


@pytest.mark.parametrize("error", [SystemExit(4), ValueError("wrong")])
def test_running_a_coroutine_to_its_end_raises_the_error_of_the_coroutine(error: BaseException) -> None:
    async def run() -> None:
        raise error

    with pytest.raises(type(error)):
        run_to_end("asyncio", run())


def test_a_missing_event_loop_package_raises_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)

    async def run() -> int:
        return 1

    with pytest.raises(ImportError):
        run_to_end("uvloop", run())
    assert run_to_end("auto", run()) == 1
