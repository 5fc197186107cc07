"""The console lives beside its broker: it comes and goes with it, and its end takes nothing else along.

Programs of a few lines stand in for it where the real one would say no more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

import flintmq
from flintmq.config import ConfigError, load_config
from flintmq.plugins.console import child
from flintmq.plugins.console.child import ConsoleChild, ConsoleError, arguments_of, environment_of
from flintmq.programs.cli.exits import ExitCode, exit_code_of
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.processes import is_gone, until

SERVES = """
import signal, sys
with open(sys.argv[1], "a") as file:
    print(*sys.argv[2:], file=file)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("READY console=127.0.0.1:4711 pid=1", flush=True)
sys.stdin.read()
"""


def made(folder: Path, program: str = SERVES, steady_s: float = 60.0) -> ConsoleChild:
    command = (sys.executable, "-c", program, str(folder / "starts"))
    return ConsoleChild(["--port", "0"], os.environ, program=command, pauses_s=(0.001, 0.002), steady_s=steady_s)


async def kill(console: ConsoleChild) -> None:
    """Kills the process, and waits for the next one."""
    before = console.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    await until(lambda: console.pid != before and not console.trouble)


def test_a_console_process_that_dies_is_restarted_at_the_same_port(tmp_path: Path) -> None:
    """People have its address open in their browsers."""

    async def run() -> None:
        async with made(tmp_path) as console:
            assert console.address == "127.0.0.1:4711"
            await kill(console)
            last = console.pid
            assert last is not None
        assert is_gone(last)

    asyncio.run(run())
    assert (tmp_path / "starts").read_text().splitlines() == ["--port 0", "--port 4711"]


@pytest.mark.parametrize(("steady_s", "pauses"), [(0.0, ["0.001", "0.001"]), (60.0, ["0.001", "0.002"])])
def test_the_pause_before_restarting_the_console_is_reset_after_a_long_run_without_a_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, steady_s: float, pauses: list[str]
) -> None:
    """One that dies once a month is there again at once; one that dies at once waits longer each time."""

    async def run() -> None:
        async with made(tmp_path, steady_s=steady_s) as console:
            for _ in pauses:
                await kill(console)

    asyncio.run(run())
    told = [line for line in caplog.messages if "is started again in" in line]
    assert [line.split()[-2] for line in told] == pauses


def test_a_console_process_that_does_not_start_raises_console_error(tmp_path: Path) -> None:
    async def run() -> None:
        console = made(tmp_path, "import sys; sys.exit(4)")
        with pytest.raises(ConsoleError, match="exit code 4") as failure:
            await console.start()
        assert exit_code_of(failure.value) == ExitCode.NETWORK, "flintmq run ends as its console did"
        assert console.pid is None

    asyncio.run(run())


def test_the_console_process_gets_its_settings_but_not_the_access_key_and_secret_key_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys by which a broker registers are not the visitors'."""
    monkeypatch.setenv("FLINT_ACCESS_KEY", "key")
    monkeypatch.setenv("FLINT_SECRET_KEY", "secret")
    settings = [
        "console.host=0.0.0.0",
        "console.port=0",
        "console.host_names=a.example,b.example",
        "console.certificate=c.pem",
        "console.key=k.pem",
    ]
    config = load_config(None, settings, {}).config
    found = arguments_of(config, ["h:1", "h:2"], tmp_path)
    assert " ".join(found) == (
        f"-n h:1;h:2 --host 0.0.0.0 --port 0 --supervised --audit {tmp_path}/flint/console/audit.jsonl "
        f"--history {tmp_path}/flint/console/hours.ring "
        "--log-level warning --host-name a.example --host-name b.example --certificate c.pem --key k.pem"
    )
    assert not [name for name in environment_of(config) if name.startswith(("FLINT_ACCESS", "FLINT_SECRET"))]


def test_a_tls_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"console\.certificate"):
        load_config(None, ["console.key=k.pem"], {})


def test_the_error_about_missing_console_packages_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything listens."""
    monkeypatch.setattr(child, "NEEDED", ("json", "no_such_package"))
    with pytest.raises(ConfigError, match=r"no_such_package is not installed: pip install '\.\[console\]'"):
        child.check_installed()


def test_a_console_without_name_servers_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="the extra 'console' is not installed")
    config = load_config(None, ["console.enable=true", f"store.path={tmp_path}", "listen.port=0"], {})
    with pytest.raises(ConfigError, match=r"namesrv\.addresses"), flintmq.Broker(config):
        pass


def test_a_console_starts_and_stops_with_its_broker(tmp_path: Path) -> None:
    """The real process: it serves when the broker is ready, and is gone when the broker is."""
    pytest.importorskip("starlette", reason="the extra 'console' is not installed")
    settings = ("console.enable=true", "console.port=0")
    with EmbeddedCluster(tmp_path, layout={"broker-a": 0}, settings=settings) as cluster:
        address = cluster["broker-a"].broker.ready_words["console"]
        with urllib.request.urlopen(f"http://{address}/brokers", timeout=20) as answer:
            assert answer.status == 200
            assert b"broker-a" in answer.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{address}/healthz", timeout=5)
