"""``run``, ``namesrv`` and ``broker``: READY when they serve, an orderly stop, and a clear refusal when they cannot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import unquote

import pytest

import flintmq
from flintmq.core.errors import StoreFencedError
from flintmq.programs.cli.run import _as_arguments, usable_cores
from flintmq.programs.cli.serving import FenceWatch, StopSignals, ready_word, serve
from flintmq.programs.supervisor.plan import plan_brokers
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.remoting.wire.headers_route import PutKVConfigRequestHeader

from .conftest import RunCommand, wait_for_route

PROGRAM = "from flintmq.programs.cli.main import main; main()"


def ready_words(line: str) -> dict[str, str]:
    """Return the words of a READY line, by name."""
    assert line.startswith("READY "), line
    return {name: unquote(value) for name, _, value in (word.partition("=") for word in line.split()[1:])}


@contextlib.contextmanager
def serving(*arguments: object, program: str = PROGRAM) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A serving process and the words of its READY line."""
    command = [sys.executable, "-c", program, *(str(argument) for argument in arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("READY "), line + (process.stderr.read() if process.stderr else "")
            yield process, ready_words(line)
        finally:
            if process.poll() is None:
                process.kill()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and the rest of both outputs."""
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


@pytest.mark.parametrize("command", ["run", "broker"])
def test_a_single_broker_refuses_to_start_in_a_folder_that_contains_stores_of_several_brokers(
    tmp_path: Path, cli: RunCommand, small: list[str], command: str
) -> None:
    """Without --brokers it would begin a third store, and its topics would be unknown; nothing is made."""
    for name in ("broker-a", "broker-b"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    refused = cli(command, "--store", tmp_path, *small)
    assert refused.code == 3
    assert "holds the stores of broker-a, broker-b, but not the store of a single broker" in refused.err
    assert "--brokers 2" in refused.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-a", "broker-b"]


def test_the_run_command_serves_clients_until_it_is_interrupted(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """The whole life: one READY line with what scripts need, traffic, two interrupts, exit code 0, a clean store."""
    store = tmp_path / "store"
    with serving("run", "--store", store, "--log-level", "info", *small) as (process, ready):
        assert ready.keys() == {"namesrv", "broker", "store", "pid"}
        assert ready["store"] == str(store)
        assert int(ready["pid"]) == process.pid
        assert cli("send", "T", "hello", "-n", ready["namesrv"]).code == 0
        wait_for_route(cli, "T", ready["namesrv"])
        assert "hello" in cli("consume", "T", "--count", 1, "-n", ready["namesrv"]).out
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        code, out, err = finish(process)
    assert code == 0, err
    assert out == "", "only READY goes to stdout"
    assert "listens on" in err
    assert not (store / "abort").exists()
    with serving("run", "--store", store, *small) as (process, ready):
        assert "hello" in cli("consume", "T", "--count", 1, "-n", ready["namesrv"]).out
        process.terminate()
        assert finish(process)[0] == 0


def test_the_line_printed_by_a_ready_broker_has_the_address_of_the_metrics_service(
    tmp_path: Path, small: list[str]
) -> None:
    """A script that waits for the line reads the figures next."""
    pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")
    asked = ("--set", "metrics.enable=true")
    with serving("run", "--store", tmp_path / "s", *asked, *small) as (process, ready):
        assert list(ready) == ["namesrv", "broker", "store", "metrics", "pid"]
        with urllib.request.urlopen(f"http://{ready['metrics']}/readyz", timeout=20) as answer:
            assert answer.read() == b"ok\n"
        process.terminate()
        assert finish(process)[0] == 0
    with serving("run", "--brokers", "2", "--store", tmp_path / "several", *asked, *small) as (process, ready):
        assert list(ready) == ["namesrv", "brokers", "store", "metrics", "pid"]
        of_each = ready["metrics"].split(",")
        assert len(set(of_each)) == 2
        for address in of_each:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
                assert b"flintmq_put_messages_total{" in answer.read()
        process.terminate()
        assert finish(process)[0] == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_commands_namesrv_and_broker_run_as_separate_processes(
    tmp_path: Path, cli: RunCommand, small: list[str], host: str
) -> None:
    """As in production: a name server with its own file, a broker that finds it, each stopped by SIGTERM."""
    with serving("namesrv", "--host", host, "--set", "listenPort=0", "--kv-path", tmp_path / "kv.json") as (
        names,
        ready,
    ):
        assert ready.keys() == {"namesrv", "pid"}
        address = ready["namesrv"]
        assert address.rpartition(":")[0].strip("[]") == host
        assert address.startswith("[") == (":" in host)
        with serving("broker", "-n", address, "--host", host, "--store", tmp_path / "s", *small) as (broker, ready):
            assert ready.keys() == {"broker", "store", "pid"}
            assert [row["address"] for row in cli("status", "-n", address, "--json").json["brokers"]] == [
                ready["broker"]
            ]
            broker.terminate()
            assert finish(broker)[0] == 0
        assert cli("status", "-n", address, "--json").json["brokers"] == [], "a broker that stops unregisters"
        names.terminate()
        assert finish(names)[0] == 0


def test_a_name_server_and_a_broker_can_be_started_with_configuration_files_of_rocketmq(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """The files that are there on the day of the move: understood by their content, what changes nothing is said."""
    namesrv_conf, broker_conf = tmp_path / "namesrv.conf", tmp_path / "broker.conf"
    namesrv_conf.write_text(f"listenPort=0\nkvConfigPath={tmp_path / 'kv.json'}\n")
    with serving("namesrv", "-c", namesrv_conf) as (names, ready):
        address = ready["namesrv"]
        broker_conf.write_text(
            f"# a broker\nbrokerName=moved\nnamesrvAddr={address}\nflushDiskType=SYNC_FLUSH\nuseEpollNativeSelector=true\n"
            f"storePathRootDir={tmp_path / 'store'}\n"
        )
        with serving("broker", "-c", broker_conf, *small) as (broker, ready):
            assert ready["store"] == str(tmp_path / "store")
            assert [row["broker"] for row in cli("status", "-n", address, "--json").json["brokers"]] == ["moved"]
            broker.terminate()
            code, _, err = finish(broker)
        names.terminate()
        assert finish(names)[0] == 0
    assert code == 0
    assert f"{broker_conf}:5: useEpollNativeSelector changes nothing: the event loop is chosen by listen.loop" in err


def test_the_run_command_accepts_a_broker_conf(tmp_path: Path, cli: RunCommand, small: list[str]) -> None:
    """``run`` reads it as ``broker`` does; a value that is not understood stops the start, and its line is named."""
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"brokerName=moved\nautoCreateTopicEnable=true\nstorePathRootDir={tmp_path / 'store'}\nabortFile=x\n"
    )
    with serving("run", "-c", conf, *small) as (process, ready):
        assert ready["store"] == str(tmp_path / "store")
        assert cli("send", "T", "hello", "-n", ready["namesrv"]).code == 0
        assert [row["broker"] for row in cli("status", "-n", ready["namesrv"], "--json").json["brokers"]] == ["moved"]
        process.terminate()
        code, _, err = finish(process)
    assert code == 0
    assert f"{conf}:4: abortFile changes nothing: it lies in store.path" in err
    conf.write_text("brokerName=moved\nflushDiskType=SYNC\n")
    refused = cli("run", "-c", conf, *small)
    assert refused.code == 2
    assert f"{conf}:2: 'flushDiskType' must be SYNC_FLUSH or ASYNC_FLUSH" in refused.err


def test_an_embedded_broker_accepts_a_broker_conf(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A path is a path, whoever starts the broker; there the log says what changes nothing."""
    file = tmp_path / "broker.conf"
    file.write_text(f"brokerName=moved\nlistenPort=0\nstorePathRootDir={tmp_path / 's'}\nabortFile=x\n")
    broker = flintmq.Broker(file)
    assert (broker.config.broker.name, broker.config.listen.port) == ("moved", 0)
    assert f"{file}:4: abortFile changes nothing: it lies in store.path" in caplog.text


def test_a_broker_becomes_ready_without_long_delay_if_its_name_server_never_answers(
    tmp_path: Path, small: list[str]
) -> None:
    """A name server that accepts and never answers costs one registration timeout, no more."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = ["--set", "namesrv.register_timeout_ms=200ms", *small]
        with serving("broker", "-n", address, "--store", tmp_path / "s", *settings) as (process, _):
            process.terminate()
            assert finish(process)[0] == 0


FAILING_SYNC = """
import errno, sys
from flintmq.core.io.os_disk import OS_DISK, OsDisk
real = OS_DISK.map_file
class Region:
    def __init__(self, region): self._region = region
    def __getattr__(self, name): return getattr(self._region, name)
    def sync(self, *arguments): raise OSError(errno.EIO, "Input/output error")
def failing(path, *arguments, **options):
    region = real(path, *arguments, **options)
    return Region(region) if path.parent.name == "commitlog" else region
OsDisk.map_file = lambda self, path, *arguments, **options: failing(path, *arguments, **options)
from flintmq.programs.cli.main import main
main()
"""


def test_the_broker_process_ends_with_exit_code_5_after_a_failed_disk_sync_of_the_commit_log(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """After a failed sync only a restart helps: the process says why and ends with 5, so that its supervisor acts."""
    arguments = ["run", "--store", tmp_path / "s", "--set", "flush.strategy=group_commit", *small]
    with serving(*arguments, program=FAILING_SYNC) as (process, ready):
        assert cli("send", "T", "lost", "-n", ready["namesrv"]).code in (1, 4), "refused, and then nobody is there"
        code, _, err = finish(process)
    assert code == 5, err
    last = err.splitlines()[-1]
    assert last.startswith("flintmq: error: ")
    assert "sync failed" in last


def test_started_services_are_stopped_before_the_error_about_a_failed_disk_sync_is_raised() -> None:
    """The watch alone decides: whatever was started is stopped first, then the error says why."""
    stopped: list[bool] = []

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        stack.callback(stopped.append, True)
        watch.flintmq_broker_fenced(None, "disk: sync failed")
        return "nothing"

    with pytest.raises(StoreFencedError, match="sync failed"):
        serve(start, "asyncio")
    assert stopped


def test_a_broker_reads_lines_from_the_pipe_of_its_supervisor_and_stops_when_the_pipe_closes() -> None:
    """They come in pieces, as pipes give them; the end of the pipe is the supervisor's."""
    told: list[bytes] = []

    async def work() -> None:
        stop = StopSignals()
        reading, writing = os.pipe()
        FenceWatch(stop).stop_at_end_of(reading, told.append)
        for piece in (b'{"a": ', b'"b"}\n{}', b"\n"):
            os.write(writing, piece)
            await asyncio.sleep(0)
        assert not stop.wanted
        os.close(writing)
        await stop.wait()
        os.close(reading)

    asyncio.run(asyncio.wait_for(work(), 20))
    assert told == [b'{"a": "b"}', b"{}"]


def test_a_signal_during_the_start_of_a_broker_stops_its_process(capfd: pytest.CaptureFixture[str]) -> None:
    """Recovery of a large store takes a while: a stop during it is obeyed, and what had started is stopped."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stopped: list[bool] = []

    async def start(stack: AsyncExitStack, watch: FenceWatch) -> str:
        stack.callback(stopped.append, True)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    try:
        serve(start, "asyncio")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert stopped
    assert capfd.readouterr().out == "", "READY would be a lie"


def test_the_name_server_started_by_the_run_command_saves_its_key_value_configuration_to_a_file(
    tmp_path: Path, small: list[str]
) -> None:
    """A name server beside a broker keeps its key-values in the store's folder for our own files."""

    async def put(address: str) -> None:
        header = PutKVConfigRequestHeader(namespace="ns", key="k", value="v")
        async with RemotingClient() as client:
            answer = await client.invoke(address, request(RequestCode.PUT_KV_CONFIG, header), 3_000)
            assert answer.code == 0

    with serving("run", "--store", tmp_path / "s", *small) as (process, ready):
        asyncio.run(put(ready["namesrv"]))
        process.terminate()
        assert finish(process)[0] == 0
    assert '"v"' in (tmp_path / "s" / "flint" / "kvConfig.json").read_text()


def test_the_error_about_a_port_in_use_names_the_address(tmp_path: Path, cli: RunCommand, small: list[str]) -> None:
    """The commonest failure of all names the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        values = [value for value in small[1::2] if value != "listen.port=0"]
        settings = [word for value in values for word in ("--set", value)]
        outcome = cli("run", "--store", tmp_path / "s", "--port", port, "--log-level", "error", *settings)
    assert outcome.code == 4
    expected = f"cannot listen on 127.0.0.1:{port}: Address already in use (listen.host, listen.port)"
    assert outcome.err == f"flintmq: error: {expected}\n"
    assert outcome.out == "", "READY is a promise"


def test_a_second_broker_on_the_same_store_is_refused(tmp_path: Path, cli: RunCommand, small: list[str]) -> None:
    """Two writers of one log would destroy it."""
    loaded = flintmq.load_config(None, [*small[1::2], f"store.path={tmp_path / 's'}"], {})
    with flintmq.Broker(loaded):
        outcome = cli("run", "--store", tmp_path / "s", "--log-level", "error", *small)
    assert outcome.code == 3
    assert outcome.err.startswith(f"flintmq: error: {tmp_path / 's'}: another broker")


def test_a_start_is_refused_if_the_commit_log_file_size_differs_from_that_of_the_store(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """Opened with another file size, a log would be taken apart in the wrong places."""
    loaded = flintmq.load_config(None, [*small[1::2], f"store.path={tmp_path / 's'}"], {})
    with flintmq.Broker(loaded) as broker:
        broker.put([flintmq.Message("T", b"x")])
    smaller = ["--set", "store.commit_log_file_bytes=2MiB", *small[2:]]
    outcome = cli("run", "--store", tmp_path / "s", "--log-level", "error", *smaller)
    assert outcome.code == 3
    assert "bytes" in outcome.err


def test_the_error_about_an_unknown_configuration_key_names_its_line(tmp_path: Path, cli: RunCommand) -> None:
    """A typing mistake is named where it was made, with what was meant."""
    file = tmp_path / "broker.yaml"
    file.write_text("broker:\n  name: b\nflush:\n  stratgy: group_commit\n")
    outcome = cli("run", "-c", file)
    assert outcome.code == 2
    assert outcome.err.startswith(f"flintmq: error: {file}:4: unknown key 'flush.stratgy'; did you mean")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "nonsense"], "key=value"),
        (["--set", "listen.port=many"], "listen.port"),
        (["--set", "flush.strategy=nope"], "no flush strategy is named 'nope'"),
        (["--port", "0", "--set", "listenPort=1"], "sets already"),
        (["-c", "/nonexistent.yaml"], "cannot be read"),
    ],
)
def test_a_command_with_invalid_settings_starts_nothing(
    tmp_path: Path, cli: RunCommand, arguments: list[str], said: str
) -> None:
    """Nothing is started from a configuration that is not understood."""
    outcome = cli("run", "--namesrv-port", 0, "--store", tmp_path / "s", "--log-level", "error", *arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert not (tmp_path / "s" / "commitlog").exists()


def test_signal_handlers_are_restored_after_a_failed_start(cli: RunCommand) -> None:
    """A command that failed to start inside a larger program leaves its Ctrl-C alone."""
    before = signal.getsignal(signal.SIGINT)
    assert cli("run", "--set", "nonsense").code == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli("namesrv", "--port", taken.getsockname()[1], "--log-level", "error").code == 4
    assert signal.getsignal(signal.SIGINT) is before


def test_a_store_folder_that_is_read_only_is_refused(tmp_path: Path, cli: RunCommand, small: list[str]) -> None:
    """A store that cannot be written is said to be so before anything listens."""
    if os.geteuid() == 0:
        folder = Path("/proc/flintmq")  # root may write everywhere but there
    else:
        folder = tmp_path / "locked" / "s"
        folder.parent.mkdir(mode=0o500)
    outcome = cli("run", "--store", folder, "--log-level", "error", *small)
    assert outcome.code == 3
    assert str(folder) in outcome.err


def supervised_pids(supervisor: int) -> dict[str, int]:
    """The processes of a supervisor's brokers, by the broker's name."""
    found = {}
    for children in Path(f"/proc/{supervisor}/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            found |= {word.removeprefix("broker.name="): pid for word in words if word.startswith("broker.name=")}
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for another process. Raises AssertionError after 30 s."""
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text()


def test_several_brokers_serve_a_topic_and_a_killed_broker_is_restarted(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """One command, two processes, one topic on both; one that is killed comes back with its messages, at its address."""
    with serving("run", "--brokers", 2, "--store", tmp_path / "s", "--log-level", "info", *small) as (process, ready):
        assert ready.keys() == {"namesrv", "brokers", "store", "pid"}
        names = ready["namesrv"]
        assert cli("topics", "create", "T", "--queues", 2, "-n", names).code == 0

        def placed() -> set[str]:
            found = cli("topics", "show", "T", "--json", "-n", names)
            return {row["broker"] for row in found.json["queues"]} if found.code == 0 else set()

        wait_until(lambda: placed() == {"broker-a", "broker-b"})
        # One command sends to all queues in turn. Eight commands could all begin at a queue of the same broker.
        assert cli("send", "T", *(f"message {number}" for number in range(8)), "-n", names).code == 0
        pids = supervised_pids(process.pid)
        assert sorted(pids) == ["broker-a", "broker-b"]
        os.kill(pids["broker-b"], signal.SIGKILL)

        def restarted() -> list[tuple[str, int, str]]:
            rows = cli("status", "-n", names, "--json").json["brokers"]
            return [(row["address"], row.get("restarts", -1), row.get("last_end", "")) for row in rows]

        first, second = ready["brokers"].split(",")
        wait_until(lambda: restarted() == [(first, 0, ""), (second, 1, "was ended by SIGKILL")])
        assert "started again" in cli("status", "-n", names).out
        found = cli("consume", "T", "--count", 8, "--json", "-n", names).json_lines
        assert {row["body"] for row in found} == {f"message {number}" for number in range(8)}
        assert {row["broker"] for row in found} == {"broker-a", "broker-b"}, "both had some"
        process.send_signal(signal.SIGINT)
        code, out, err = finish(process)
    assert (code, out) == (0, "")
    assert "ERROR flintmq.supervisor: broker-b was ended by SIGKILL" in err
    assert "INFO broker-b flintmq.broker: broker broker-b stopped" in err, "one log, and each line says whose it is"
    assert not [*(tmp_path / "s").glob("*/abort")]


def test_brokers_stop_cleanly_after_their_supervisor_is_killed(tmp_path: Path, small: list[str]) -> None:
    """Brokers that nobody starts again, and nobody stops, would hold ports and stores for the next start to fail at."""
    with serving("run", "--brokers", 2, "--store", tmp_path / "s", *small) as (process, _):
        pids = supervised_pids(process.pid)
        process.kill()
        process.wait()
        wait_until(lambda: all(map(is_gone, pids.values())))
    assert len(pids) == 2
    assert not [*(tmp_path / "s").glob("*/abort")], "stopped in good order"


def test_all_brokers_are_stopped_if_one_of_several_brokers_fails_to_start(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """Its message stands on stderr, its exit code is the command's, and nothing goes on without it."""
    loaded = flintmq.load_config(None, [*small[1::2], f"store.path={tmp_path / 's' / 'broker-b'}"], {})
    with flintmq.Broker(loaded):
        outcome = cli("run", "--brokers", 2, "--store", tmp_path / "s", "--log-level", "error", *small)
    assert outcome.code == 3
    assert outcome.out == ""
    assert "another broker" in outcome.err
    assert outcome.err.splitlines()[-1] == "flintmq: error: broker-b did not start: it ended with exit code 3"


def test_several_brokers_configured_with_rocketmq_keys_get_different_names_and_ports_and_paths(tmp_path: Path) -> None:
    """What differs for each of them is set a second time, and two names of a key in one place are refused."""
    names = {
        "brokerName": "shop", "storePathRootDir": str(tmp_path), "namesrvAddr": "127.0.0.1:1;127.0.0.1:2",
        "listenPort": "20000", "haListenPort": "25000",
        "storePathCommitLog": "/a,/b", "readOnlyCommitLogStorePaths": "/c,/d",
    }  # fmt: skip
    given = [f"{name}={value}" for name, value in names.items()]
    plans = plan_brokers(flintmq.load_config(None, given, {}), 2, tmp_path, "127.0.0.1:9876")
    arguments = _as_arguments(None, {}, given)
    for plan in plans:
        found = [*arguments[arguments.index("--set") + 1 :: 2], *plan.settings]
        config = flintmq.load_config(None, found, {}).config
        assert (config.broker.name, config.store.path) == (plan.name, str(plan.store))
    assert config.namesrv.addresses == ("127.0.0.1:9876", "127.0.0.1:1", "127.0.0.1:2")
    assert (config.listen.port, config.listen.ha_port) == (20010, 25010)
    assert config.store.commit_log_paths == ("/a/shop-b", "/b/shop-b")


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 4), ("200000 100000", 2), ("50000 100000", 1), ("900000 100000", 4), ("", 4), (None, 4)],
)
def test_the_number_of_usable_processor_cores_is_limited_by_the_cpu_quota_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, cores: int
) -> None:
    """Two of a machine's 64: as many brokers as there are cores would take turns on them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(4)))
    own = tmp_path / "own"
    own.write_text("0::/system.slice/flintmq.service\n")
    if quota is not None:
        folder = tmp_path / "system.slice" / "flintmq.service"
        folder.mkdir(parents=True)
        (folder / "cpu.max").write_text(f"{quota}\n")
    assert usable_cores(tmp_path, own) == cores


@pytest.mark.parametrize("count", ["0", "27", "many", "-1"])
def test_an_invalid_number_of_brokers_is_refused(cli: RunCommand, count: str) -> None:
    """Refused before anything starts."""
    outcome = cli("run", f"--brokers={count}")
    assert outcome.code == 2
    assert f"'{count}' is neither auto nor a number from 1 to 26" in outcome.err


@pytest.mark.parametrize("name", ["a b", "100%", "caf\u00e9", os.fsdecode(b"latin\xe9")])
def test_values_in_the_line_printed_by_a_ready_broker_are_quoted(tmp_path: Path, small: list[str], name: str) -> None:
    """Scripts cut it at its blanks, whatever the folder of the store is called."""
    store = tmp_path / name
    assert unquote(ready_word(store), errors="surrogateescape") == str(store)
    assert len(ready_word(store).split()) == len(ready_word(tmp_path).split()) == 1
    with serving("run", "--store", store, *small) as (process, ready):
        assert list(ready) == ["namesrv", "broker", "store", "pid"]
        assert (store / "commitlog").parent.is_dir()
        process.terminate()
        assert finish(process)[0] == 0
