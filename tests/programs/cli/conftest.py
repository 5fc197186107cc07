"""An embedded name server and broker for all tests of the command line, and a way to run commands against them."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import flintmq
from flintmq.programs.cli import main
from flintmq.programs.cli.main import run_command_line

SMALL = (
    "store.commit_log_file_bytes=4MiB",
    "index.max_hash_slot_num=1000",
    "index.max_index_num=4000",
    "listen.port=0",
    "nameserver.port=0",
    "listen.vip=false",
)


@attrs.frozen
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


RunCommand = Callable[..., Outcome]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Runs a command in this process; ``cli("topics", "list")``."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = run_command_line([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    """A command loads plugins for its process: no other test may notice."""
    main._plugin_commands.cache_clear()
    yield
    main._plugin_commands.cache_clear()


@pytest.fixture(scope="session")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a name server with one broker."""
    store = tmp_path_factory.mktemp("cli") / "store"
    loaded = flintmq.load_config(None, [*SMALL, f"store.path={store}"], {})
    with (
        flintmq.NameServer(loaded) as names,
        flintmq.Broker(loaded.with_overrides([f"namesrv.addresses={names.address}"])),
    ):
        yield names.address


@pytest.fixture
def topic(name_server: str, cli: RunCommand, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with two queues. Tables with its name fit a terminal of 80 columns."""
    words = "".join(c if c.isalnum() else "_" for c in request.node.name)
    name = f"T{words[:48]}_{zlib.crc32(words.encode()):08x}"
    assert cli("topics", "create", name, "--queues", 2, "-n", name_server).code == 0
    wait_for_route(cli, name, name_server)
    return name


def wait_for_route(cli: RunCommand, topic: str, name_server: str) -> None:
    """Return once the name server knows a topic: a broker registers it beside its answer to whoever made it."""
    until_s = time.monotonic() + 10
    while cli("topics", "show", topic, "-n", name_server).code != 0:
        assert time.monotonic() < until_s, f"the name server does not know {topic}"


@pytest.fixture
def small() -> list[str]:
    """Arguments of ``flintmq run`` for a small store at free ports."""
    return [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture
def plugin_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Writes a module with a plugin and returns its target."""

    def write(name: str, source: str) -> str:
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        return f"{name}:plugin"

    return write
