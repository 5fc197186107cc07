"""The tools of the checkout are scripts: their folder is put on the path, and they are called as their users call them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

import flintmq

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@attrs.frozen
class Outcome:
    """What a tool did."""

    code: int
    out: str
    err: str


RunTool = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _tools_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


@pytest.fixture
def tool(capfd: pytest.CaptureFixture[str]) -> RunTool:
    """Run a tool in this process; ``tool("bench_report", "a.json", "b.json")``."""

    def run(name: str, *arguments: object) -> Outcome:
        capfd.readouterr()
        code = importlib.import_module(name).main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a name server with one broker."""
    settings = [
        f"store.path={tmp_path_factory.mktemp('tools') / 'store'}",
        "store.commit_log_file_bytes=4MiB",
        "index.max_hash_slot_num=1000",
        "index.max_index_num=4000",
        "listen.port=0",
        "listen.vip=false",
        "nameserver.port=0",
    ]
    loaded = flintmq.load_config(None, settings, {})
    with (
        flintmq.NameServer(loaded) as names,
        flintmq.Broker(loaded.with_overrides([f"namesrv.addresses={names.address}"])),
    ):
        yield names.address
