"""What an installed plugin does wrong has the result that the table in docs/plugins.md says, and its name is in it."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.core.errors import PluginError
from flintmq.remoting.wire.codes import RequestCode

CODE = 9_001
Install = Callable[[str], None]

PROCESSOR = """
import threading
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports.processor import Response

class Misbehaving:
    def handlers(self):
        return {9001: self.answer}

    def answer(self, request):
        {answer}

@hookimpl
def flintmq_request_processors(register):
    register("misbehaving", (9001,), lambda context: Misbehaving())
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution of one module, `flintmq-misbehaving`, with an entry point."""
    site = tmp_path / "site"

    def make(source: str) -> None:
        info = site / "flintmq_misbehaving-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "flintmq_misbehaving.py").write_text(source, encoding="utf-8")
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: flintmq-misbehaving\nVersion: 1.0\n", encoding="utf-8"
        )
        (info / "entry_points.txt").write_text("[flintmq]\nmisbehaving = flintmq_misbehaving\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(site))

    yield make
    sys.modules.pop("flintmq_misbehaving", None)


def figures(wire: Wire) -> dict[str, str]:
    """Request 28's table."""
    table: dict[str, str] = json.loads(wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body)["table"]
    return table


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ('raise ValueError("broken")', "ValueError: broken"),
        ('return "hello"', "expected a Response, None, or something to await that gives one; found 'hello'"),
    ],
    ids=["raises", "wrong-type"],
)
def test_a_failing_installed_plugin_is_reported_by_name_and_switched_off(
    configure: Callable[..., Any],
    connect: Callable[[Any], Wire],
    install: Install,
    caplog: pytest.LogCaptureFixture,
    answer: str,
    error: str,
) -> None:
    """Other clients are served all the while."""
    install(PROCESSOR.replace("{answer}", answer))
    with flintmq.Broker(configure("plugin_failures_max=2")) as broker:
        wire = connect(broker)
        for _ in range(2):
            assert error in (wire.ask(CODE).remark or "")
        assert "plugin.off" in (wire.ask(CODE).remark or "")
        assert wire.send("T", b"x").code == 0
        told = figures(wire)
        assert told["pluginErrors_misbehaving"] == "2"
        assert error in told["pluginLastError_misbehaving"]
        assert told["pluginSwitchedOff_misbehaving"].startswith("request processor misbehaving: failed 2 times")
        (alarm,) = [one for one in broker.state.alarms.current() if one.id == "plugin.off"]
        assert (alarm.subject, alarm.key) == ("misbehaving", "plugin_failures_max")
    assert "plugin 'misbehaving' (entry point, flintmq-misbehaving 1.0) raised in request processor" in caplog.text


class Watched(logging.Handler):
    """An event for the line of the watchdog."""

    def __init__(self) -> None:
        super().__init__()
        self.noticed = threading.Event()
        self.line = ""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", "") == "loop.blocked":
            self.line = record.getMessage()
            self.noticed.set()


@pytest.fixture
def watchdog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """The plugin hangs until its event is set, which is when the watchdog has logged the stack."""
    handler = Watched()
    monkeypatch.setattr(threading, "misbehaving_until", handler.noticed, raising=False)
    logging.getLogger("flintmq.broker").addHandler(handler)
    yield handler
    logging.getLogger("flintmq.broker").removeHandler(handler)


def test_the_stack_of_a_hanging_installed_plugin_is_logged(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], install: Install, watchdog: Watched
) -> None:
    install(PROCESSOR.replace("{answer}", "threading.misbehaving_until.wait(30); return Response()"))
    with flintmq.Broker(configure("listen.loop_blocked_warn_ms=300")) as broker:
        wire = connect(broker)
        assert wire.ask(CODE, timeout_s=40).code == 0
        assert watchdog.noticed.is_set()
        assert "flintmq_misbehaving.py:" in watchdog.line
        assert "in Misbehaving.answer" in watchdog.line
        told = figures(wire)
        assert int(told["loopBlockedTimes"]) >= 1
        assert "in Misbehaving.answer" in told["loopBlockedBy"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "from flintmq.core.kernel.hookspecs import hookimpl\n@hookimpl\ndef flintmq_broker_ready(api): ...\n",
            "there is no hook 'flintmq_broker_ready'; did you mean 'flintmq_broker_",
        ),
        (
            "from flintmq.core.kernel.hookspecs import hookimpl\n"
            "@hookimpl\n"
            "def flintmq_message_filters(register):\n"
            "    register('MINE', lambda expression, codes: None)\n",
            "flintmq_message_filters: the message filter 'MINE' needs a callable: expected a plain function, called as "
            "factory(context); found",
        ),
        (
            "from flintmq.core.kernel.hookspecs import hookimpl\n"
            "class Index:\n"
            "    def put(self, request): ...\n"
            "@hookimpl\n"
            "def flintmq_index_builders(register):\n"
            "    register('index', lambda context: Index())\n",
            "flintmq_index_builders: the index builder 'index' cannot be used: its factory made a Index without 'dispatch'; "
            "expected dispatch(batch)",
        ),
        (
            "from flintmq.core.kernel.hookspecs import hookimpl\n"
            "@hookimpl\n"
            "def flintmq_dispatchers(register):\n"
            "    register('index', lambda context: None)\n",
            "flintmq_dispatchers: the dispatcher 'index': expected another name; 'index' is the index builder "
            "that 'index.builder' selects. Register an index builder with flintmq_index_builders",
        ),
        (
            "from flintmq.core.kernel.hookspecs import PluginBudget\n",
            "raised while it was loaded: ImportError: cannot import name 'PluginBudget'",
        ),
    ],
    ids=["hook", "factory", "method", "index-dispatcher", "import"],
)
def test_a_broker_does_not_start_with_an_installed_plugin_for_another_api_version(
    configure: Callable[..., Any], install: Install, source: str, says: str
) -> None:
    """The error says what was expected and what was found."""
    install(source)
    with pytest.raises(PluginError) as error, flintmq.Broker(configure()):
        pytest.fail("it must not start")
    assert str(error.value).startswith("plugin 'misbehaving' (entry point, flintmq-misbehaving 1.0): ")
    assert says in str(error.value)
