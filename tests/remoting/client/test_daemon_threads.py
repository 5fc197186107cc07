"""Functions of users get threads that hold up neither the loop nor the end of the process."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from flintmq.remoting.client.daemon_threads import DaemonThreads, wait_for_all


def names(prefix: str) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(prefix))


def test_a_thread_pool_runs_at_most_its_maximum_number_of_functions_at_the_same_time() -> None:
    """No thread begins before a function needs it."""
    threads, go_on, begun = DaemonThreads("many", 2), threading.Event(), threading.Semaphore(0)

    def wait() -> str:
        begun.release()
        assert go_on.wait(20)
        return threading.current_thread().name

    promises = [threads.submit(wait) for _ in range(4)]
    assert begun.acquire(timeout=20)
    assert begun.acquire(timeout=20)
    assert not begun.acquire(blocking=False)
    go_on.set()
    assert {promise.result(20) for promise in promises} == {"many_0", "many_1"}
    assert threads.submit(int, "7").result(20) == 7
    assert len(names("many")) == 2
    threads.shutdown(wait=True)
    assert not names("many")


def test_a_thread_pool_uses_one_thread_if_each_function_is_submitted_after_the_previous_one_ends() -> None:
    threads = DaemonThreads("single", 8)
    for number in range(20):
        assert threads.submit(pow, number, 2).result(20) == number**2
        # The thread says that it is idle a moment after the result is there.
        assert threads._idle.acquire(timeout=20)
        threads._idle.release()
    assert names("single") == ["single_0"]
    threads.shutdown()


@pytest.mark.parametrize("failure", [ValueError, SystemExit, KeyboardInterrupt])
def test_the_future_of_a_submitted_function_raises_the_exception_of_that_function(failure: type[BaseException]) -> None:
    threads = DaemonThreads("raises", 1)

    def fail() -> None:
        raise failure("no")

    with pytest.raises(failure):
        threads.submit(fail).result(20)
    assert threads.submit(len, "abc").result(20) == 3
    threads.shutdown()


def test_shutting_down_a_thread_pool_does_not_block_and_cancels_functions_that_have_not_started() -> None:
    threads, begun, go_on = DaemonThreads("shut", 1), threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return go_on.wait(20)

    running, waiting = threads.submit(wait), threads.submit(wait)
    assert begun.wait(20)
    threads.shutdown()
    with pytest.raises(CancelledError):
        waiting.result(20)
    assert threads.submit(len, "again").result(20) == 5
    go_on.set()
    assert running.result(20)
    threads.shutdown(wait=True)


def test_threads_end_when_their_pool_is_garbage_collected() -> None:
    threads = DaemonThreads("dropped", 1)
    threads.submit(len, "x").result(20)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "dropped_0"]
    del threads
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()


def test_a_thread_pool_distinguishes_its_own_threads_from_other_threads() -> None:
    threads, others = DaemonThreads("mine", 1), DaemonThreads("others", 1)
    assert threads.submit(threads.is_current).result(20)
    assert not others.submit(threads.is_current).result(20)
    assert not threads.is_current()
    threads.shutdown()
    others.shutdown()


def script(timeout_s: float, body: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import functools, threading, time, atexit\n"
        "from flintmq.remoting.client import daemon_threads\n"
        f"daemon_threads.wait_for_all.__defaults__ = ({timeout_s},)\n"
        "threads = daemon_threads.DaemonThreads('slow-listener', 4)\n"
        "begun = threading.Event()\n"
        f"{body}\n"
        "threads.submit(work)\nbegun.wait()\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_the_process_exits_although_a_function_in_the_thread_pool_hangs() -> None:
    """The log has a line before the wait and another when the wait is given up."""
    done = script(0.4, "def work():\n    begun.set()\n    threading.Event().wait()\n")
    assert done.returncode == 0
    before, after = done.stderr.splitlines()
    assert before == "the process ends, and waits 0.4 s at most for functions of clients: slow-listener_0"
    assert after == "the process ends, functions of clients have not returned: slow-listener_0"


def test_a_process_waits_at_its_exit_for_a_running_function_of_the_thread_pool() -> None:
    """Without a word where that is soon, and without beginning another one."""
    done = script(
        20,
        "def work():\n    begun.set()\n    while threading.main_thread().is_alive(): time.sleep(0.01)\n    print('done')\n",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_thread_pool_refuses_new_functions_while_the_process_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = DaemonThreads("late", 1)
    monkeypatch.setattr("flintmq.remoting.client.daemon_threads._all", {threads})
    monkeypatch.setattr("flintmq.remoting.client.daemon_threads._all_threads", set())
    wait_for_all()
    with pytest.raises(RuntimeError, match="the process ends"):
        threads.submit(len, "x")
