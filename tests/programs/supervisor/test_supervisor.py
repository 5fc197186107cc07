"""Processes that die are started again, whatever they die of, and a stop leaves none behind.

Programs of a few lines stand in for brokers. They wait for SIGTERM in a thread: a handler of Python's would not run
before the end of a read that begins just as the signal comes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from flintmq.programs.cli.exits import CommandError
from flintmq.programs.supervisor.plan import BrokerPlan
from flintmq.programs.supervisor.supervisor import SupervisedBroker, Supervisor, how_it_ended
from flintmq.tests.support.processes import is_gone, until

PAUSES_S = (0.001, 0.002)
SERVES = """
import os, pathlib, signal, sys, threading
folder = pathlib.Path(sys.argv[1])
words = sys.argv[2:]
with (folder / "starts").open("a") as file:
    print(*words, file=file)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
threading.Thread(target=lambda: (signal.sigwait({signal.SIGTERM}), os._exit(0)), daemon=True).start()
print("READY broker=127.0.0.1:4711 store=x pid=1", flush=True)
sys.stdin.read()
"""
FAILS_ONCE_MORE = SERVES.replace(
    "signal.pthread",
    "starts = (folder / 'starts').read_text().count('--supervised')\nif starts == 2: sys.exit(3)\nsignal.pthread",
    1,
)


NOTES = SERVES.replace(
    "sys.stdin.read()",
    """
for line in sys.stdin:
    with (folder / "told").open("a") as file:
        print(words[words.index("--set") + 1].removeprefix("broker.name="), line.strip(), file=file)
""",
)
DOWN_FOR_GOOD = NOTES.replace(
    "signal.pthread", "if 'broker.name=broker-b' in words and '0:' not in words: sys.exit(3)\nsignal.pthread", 1
)
SAYS_MORE = SERVES.replace("store=x", "store=x metrics=127.0.0.1:{sys.argv[-1][0]}5557").replace(
    'print("READY', 'print(f"READY'
)


def supervisor(folder: Path, *names: str, program: str = SERVES, has_free_port: bool = False) -> Supervisor:
    free = {"metrics.port": "metrics"}
    plans = [BrokerPlan(name, folder / name, (f"broker.name={name}",), has_free_port, free) for name in names]
    return Supervisor(plans, [str(folder)], program=(sys.executable, "-c", program), pauses_s=PAUSES_S)


def starts(folder: Path) -> list[str]:
    return (folder / "starts").read_text().splitlines()


def pid_of(broker: SupervisedBroker) -> int:
    assert broker.pid is not None
    return broker.pid


def test_stopping_the_supervisor_ends_every_broker(tmp_path: Path) -> None:
    """Nothing may go on writing to a store whose supervisor has gone."""

    async def work() -> list[int]:
        async with supervisor(tmp_path, "broker-a", "broker-b") as both:
            assert [broker.address for broker in both.brokers] == ["127.0.0.1:4711"] * 2
            return [pid_of(broker) for broker in both.brokers]

    assert all(map(is_gone, asyncio.run(work())))
    assert sorted(line.split()[1] for line in starts(tmp_path)) == ["broker.name=broker-a", "broker.name=broker-b"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGRTMIN + 1])
def test_a_broker_that_ends_is_started_again(tmp_path: Path, number: int) -> None:
    """Also after a good end: nobody who wants less brokers stops one behind the supervisor's back."""

    async def work() -> SupervisedBroker:
        async with supervisor(tmp_path, "broker-a", "broker-b") as both:
            first, second = both.brokers
            before, other = pid_of(first), pid_of(second)
            os.kill(before, number)
            await until(lambda: len(starts(tmp_path)) == 3)
            await until(lambda: pid_of(first) != before)
            assert pid_of(second) == other, "one broker's end is no other's"
            return first

    broker = asyncio.run(work())
    assert broker.restarts == 1
    named = {signal.SIGTERM: "exit code 0", signal.SIGKILL: "SIGKILL", signal.SIGSEGV: "SIGSEGV"}
    expected = named.get(number, f"signal {number}")
    assert expected in broker.last_end
    assert starts(tmp_path)[-1].endswith(f"--supervised 1:{broker.last_end}"), (
        "the new process is told, for flintmq status"
    )


def test_output_of_a_broker_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A plugin may print, before the broker serves and after: that neither hides READY nor fills a pipe."""
    program = SERVES.replace('print("READY', 'print("one \x1b[2J", flush=True)\nprint("READY', 1)
    program = program.replace("sys.stdin", "print('two', flush=True)\nsys.stdin", 1)

    async def work() -> None:
        async with supervisor(tmp_path, "broker-a", program=program):
            await until(lambda: "broker-a printed: two" in caplog.messages)

    with caplog.at_level(logging.INFO, "flintmq.supervisor"):
        asyncio.run(work())
    assert "broker-a printed: one \\x1b[2J" in caplog.messages


def told(folder: Path) -> list[str]:
    file = folder / "told"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("program", [NOTES, DOWN_FOR_GOOD])
def test_the_supervisor_notifies_only_one_running_broker_when_another_broker_goes_down(
    tmp_path: Path, program: str
) -> None:
    """A broker that is down tells nothing itself; flintmq status asks the others. One tells it, so it stands there once."""
    last = "broker-a {}" if program is NOTES else 'broker-a {"broker-b": "ended with exit code 3"}'

    async def work() -> None:
        async with supervisor(tmp_path, "broker-a", "broker-b", "broker-c", program=program) as three:
            os.kill(pid_of(three.brokers[1]), signal.SIGKILL)
            await until(lambda: last in told(tmp_path))

    asyncio.run(work())
    assert told(tmp_path).count('broker-a {"broker-b": "was ended by SIGKILL"}') == 1
    assert {line for line in told(tmp_path) if not line.startswith("broker-a")} <= {"broker-b {}", "broker-c {}"}


def test_the_supervisor_notifies_the_next_running_broker_if_the_first_broker_is_down(tmp_path: Path) -> None:
    """Somebody has to say it, as long as anybody serves."""
    program = DOWN_FOR_GOOD.replace("broker.name=broker-b'", "broker.name=broker-a'")

    async def work() -> None:
        async with supervisor(tmp_path, "broker-a", "broker-b", program=program) as both:
            os.kill(pid_of(both.brokers[0]), signal.SIGKILL)
            await until(lambda: 'broker-b {"broker-a": "ended with exit code 3"}' in told(tmp_path))

    asyncio.run(work())


def test_a_failed_restart_of_a_broker_is_tried_again(tmp_path: Path) -> None:
    """A port that is still taken, a disk that is full: what keeps a broker down for a moment does not keep it down for good."""

    async def work() -> int:
        async with supervisor(tmp_path, "broker-a", program=FAILS_ONCE_MORE) as one:
            os.kill(pid_of(one.brokers[0]), signal.SIGKILL)
            await until(lambda: len(starts(tmp_path)) == 3)
            return one.brokers[0].restarts

    assert asyncio.run(work()) == 2


def test_a_restarted_broker_keeps_the_free_port_chosen_at_its_first_start(tmp_path: Path) -> None:
    """Clients know the address by now, and name servers may tell it for two minutes more."""

    async def work() -> None:
        async with supervisor(tmp_path, "broker-a", has_free_port=True) as one:
            os.kill(pid_of(one.brokers[0]), signal.SIGKILL)
            await until(lambda: len(starts(tmp_path)) == 2)

    asyncio.run(work())
    before, after = starts(tmp_path)
    assert "listen.port" not in before
    assert "--set listen.port=4711" in after


def test_a_broker_that_fails_at_its_first_start_stops_the_other_brokers(tmp_path: Path) -> None:
    """Half a cluster is no cluster: the command ends, with the exit code of the broker that failed."""
    program = SERVES.replace("signal.pthread", "if 'broker.name=broker-b' in words: sys.exit(3)\nsignal.pthread", 1)
    both = supervisor(tmp_path, "broker-a", "broker-b", program=program)

    async def work() -> None:
        async with both:
            raise AssertionError("unreachable")

    with pytest.raises(CommandError, match="broker-b did not start: it ended with exit code 3") as failure:
        asyncio.run(work())
    assert failure.value.code == 3
    pid = both.brokers[0].pid
    assert pid is None or is_gone(pid)


def test_a_broker_process_that_ignores_the_stop_signal_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command must end; the store of that broker recovers at its next start."""
    monkeypatch.setattr("flintmq.programs.supervisor.supervisor.STOP_TIMEOUT_S", 0.05)
    program = SERVES.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN")

    async def work() -> int:
        async with supervisor(tmp_path, "broker-a", program=program) as one:
            return pid_of(one.brokers[0])

    assert is_gone(asyncio.run(work()))


def test_the_exit_status_of_a_broker_process_is_described_in_words() -> None:
    """What an operator reads in the log and in flintmq status."""
    assert how_it_ended(-9) == "was ended by SIGKILL"
    assert how_it_ended(5) == "ended with exit code 5 (its store is fenced)"
    assert how_it_ended(77) == "ended with exit code 77"


def test_the_supervisor_collects_the_addresses_that_brokers_print_and_reuses_them_at_restarts(
    tmp_path: Path,
) -> None:
    """Metrics of each broker are read at an address of its own, which it keeps when it is started again."""

    async def work() -> None:
        async with supervisor(tmp_path, "broker-a", "broker-b", program=SAYS_MORE) as both:
            assert both.ready_words == {"metrics": "127.0.0.1:05557,127.0.0.1:05557"}
            os.kill(pid_of(both.brokers[0]), signal.SIGKILL)
            await until(lambda: len(starts(tmp_path)) == 3)
            assert "--set metrics.port=05557" in starts(tmp_path)[-1]

    asyncio.run(work())
