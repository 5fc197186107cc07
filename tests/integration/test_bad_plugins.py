"""Whatever a plugin of whichever kind does wrong, the broker stores and delivers, names the plugin, and switches it off.

A matrix of kinds and misdeeds: each broker has one bad plugin, and clients that have nothing to do with it send and consume
meanwhile. What is not essential is off in the end; what decides whether something may pass refuses it for good instead.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.config.errors import ConfigError
from flintmq.core.kernel.hookspecs import FolderContext, hookimpl
from flintmq.core.kernel.ports import FlushContext, FlushStrategy, RecordBatch
from flintmq.core.kernel.ports.processor import Request, Response
from flintmq.programs.broker import services
from flintmq.programs.broker.plugin_figures import plugins_of, rows_of
from flintmq.remoting.wire.codes import RequestCode

GIVE_UP_S = 20.0
LIMIT = ("plugin_failures_max=3",)
CODE = 9_001
MARK = {"mine": "yes"}


async def _later() -> bool:
    return True


def raises() -> Any:
    raise ValueError("broken")


def nonsense() -> Any:
    """Something to await, where nobody awaits."""
    return _later()


MISDEEDS: dict[str, Callable[[], Any]] = {
    "raises": raises,
    "nonsense": nonsense,
}


class Kind:
    """A plugin of one kind that does a misdeed whenever it is called."""

    plugin_name = "mine"
    essential = False
    settings: tuple[str, ...] = ()

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    def provoke(self, wire: Wire) -> Any:
        """Have the broker call it."""
        return wire.send("T", b"x")


class Dispatcher(Kind):
    settings = ("dispatchers=consume_queue,index,mine",)

    @hookimpl
    def flintmq_dispatchers(self, register: Any) -> None:
        register("mine", lambda context: self)

    def dispatch(self, batch: RecordBatch) -> Any:
        return self.act()


class EssentialDispatcher(Dispatcher):
    essential = True

    @hookimpl
    def flintmq_dispatchers(self, register: Any) -> None:
        register("mine", lambda context: self, essential=True)


class IndexBuilder(Kind):
    settings = ("index.builder=mine",)

    @hookimpl
    def flintmq_index_builders(self, register: Any) -> None:
        register("mine", self.make)

    def make(self, context: FolderContext) -> Any:
        return self

    def dispatch(self, batch: RecordBatch) -> Any:
        return self.act()

    def query(self, *arguments: object) -> Any:
        return [], 0, 0

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def provoke(self, wire: Wire) -> Any:
        return wire.send("T", b"x", properties={"KEYS": "k"})


class Filter(Kind):
    settings = ("pull.property_filter=true",)
    needs_properties = True

    @hookimpl
    def flintmq_message_filters(self, register: Any) -> None:
        register("MINE", lambda context: lambda expression, codes: self)

    def matches_tags_code(self, tags_code: int) -> bool:
        return True

    def matches_properties(self, properties: Mapping[str, str]) -> Any:
        return self.act() or False

    def provoke(self, wire: Wire) -> Any:
        wire.send("T", b"x")
        return wire.pull("T", 0, subscription="x", expressionType="MINE", suspendTimeoutMillis=1)


class Processor(Kind):
    @hookimpl
    def flintmq_request_processors(self, register: Any) -> None:
        register("mine", (CODE,), lambda context: self)

    def handlers(self) -> Mapping[int, Callable[[Request], Any]]:
        return {CODE: self.handle}

    def handle(self, request: Request) -> Any:
        found = self.act()
        return found if found is not None else Response()

    def provoke(self, wire: Wire) -> Any:
        return wire.ask(CODE)


class AsyncProcessor(Processor):
    """Its handler is a coroutine function."""

    def handlers(self) -> Mapping[int, Callable[[Request], Any]]:
        return {CODE: self.handle_later}

    async def handle_later(self, request: Request) -> Any:
        await asyncio.sleep(0)
        return self.handle(request)


class DefaultProcessor(Processor):
    @hookimpl
    def flintmq_request_processors(self, register: Any) -> None: ...

    @hookimpl
    def flintmq_default_processors(self, register: Any) -> None:
        register("mine", lambda context: self)


class Listener(Kind):
    @hookimpl
    def flintmq_connection_listeners(self, register: Any) -> None:
        register("mine", lambda context: self)

    def on_channel_connect(self, channel: Any) -> Any:
        return self.act()

    def provoke(self, wire: Wire) -> Any:
        once = Wire(":".join(map(str, wire.socket.getpeername())))
        once.is_served()
        once.close()


class IntakeStep(Kind):
    property_names = frozenset(MARK)
    topic_prefixes: tuple[str, ...] = ()

    @hookimpl
    def flintmq_intake_steps(self, register: Any) -> None:
        register("mine", lambda context: self, essential=self.essential)

    def take(self, message: Any, sent: Any) -> Any:
        return self.act() or False

    def provoke(self, wire: Wire) -> Any:
        return wire.send("T", b"x", properties=MARK)


class EssentialIntakeStep(IntakeStep):
    essential = True


class Service(Kind):
    @hookimpl
    def flintmq_services(self, register: Any) -> None:
        register("mine", self.make)

    def make(self, context: Any) -> Any:
        self.api = context.api
        return self

    def start(self) -> None:
        self.api.work.pace(0.001, self.tick, "mine's")

    def stop(self) -> None: ...

    def tick(self) -> Any:
        found = self.act()
        return found if found is not None else 0.001

    def provoke(self, wire: Wire) -> Any:
        return None


class Authenticator(Kind):
    essential = True
    settings = ("authenticators=mine",)

    @hookimpl
    def flintmq_authenticators(self, register: Any) -> None:
        register("mine", lambda context: self)

    def authenticate(self, caller: Any) -> Any:
        return self.act() if caller.code == CODE else None

    def provoke(self, wire: Wire) -> Any:
        return wire.ask(CODE)


class RpcHook(Authenticator):
    settings = ()

    @hookimpl
    def flintmq_authenticators(self, register: Any) -> None: ...

    @hookimpl
    def flintmq_rpc_hooks(self, register: Any) -> None:
        register("mine", lambda context: self)

    def do_before_request(self, request: Request) -> Any:
        return self.act() if request.code == CODE else None


class Flush(Kind):
    """What it does not promise is not acknowledged, as the protocol has it for a disk that fails."""

    essential = True
    settings = ("flush.strategy=mine",)

    @hookimpl
    def flintmq_flush_services(self, register: Any) -> None:
        register(FlushStrategy("mine", self.make))

    def make(self, context: FlushContext) -> Any:
        return self

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def submit(self, end_offset_bytes: int) -> Any:
        return self.act()

    def statistics(self) -> Any:
        return None


KINDS: tuple[type[Kind], ...] = (
    Dispatcher,
    IndexBuilder,
    Filter,
    Processor,
    AsyncProcessor,
    DefaultProcessor,
    Listener,
    IntakeStep,
    EssentialIntakeStep,
    Service,
    Authenticator,
    RpcHook,
)


def figures(wire: Wire) -> dict[str, str]:
    """Request 28's table."""
    table: dict[str, str] = json.loads(wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body)["table"]
    return table


def mine(told: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``flintmq status`` shows of the plugin."""
    (found,) = [row for row in plugins_of(told)["plugins"] if row["name"] == "mine"]
    return dict(found)


@pytest.mark.parametrize("misdeed", MISDEEDS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_failing_plugin_is_reported_by_name_and_switched_off_while_the_broker_serves_clients(
    configure: Callable[..., Any],
    connect: Callable[[Any], Wire],
    caplog: pytest.LogCaptureFixture,
    kind: type[Kind],
    misdeed: str,
) -> None:
    plugin = kind(MISDEEDS[misdeed])
    with flintmq.Broker(configure(*LIMIT, *kind.settings), plugins=[plugin]) as broker:
        wire, other = connect(broker), connect(broker)
        give_up_s = time.monotonic() + GIVE_UP_S
        sent = 0
        told = mine(figures(other))
        while not (told["switched_off_times"] or (kind.essential and told["errors"] >= 4)):
            assert time.monotonic() < give_up_s, told
            plugin.provoke(wire)
            assert other.send("Others", b"%d" % sent).code == 0
            sent += 1
            told = mine(figures(other))
        assert [record.body for record in other.pull_all("Others", at_least=sent)] == [b"%d" % n for n in range(sent)]
        assert told["errors"] >= 1
        assert told["last_error"]
        table = figures(other)
        assert any(row.plugin == "mine" and row.errors for row in rows_of(table)), "flintmq plugins --trace"
        if kind.essential:
            assert not told["switched_off"]
            answer = plugin.provoke(wire)
            assert answer.code != 0, "it must not let pass what it could not look at"
        else:
            assert "mine" in told["switched_off"] or "MINE" in told["switched_off"]
            assert any(str(getattr(record, "event", "")).startswith("plugin.off") for record in caplog.records)
            plugin.act = lambda: pytest.fail("it is called though it is off")
            plugin.provoke(wire)
            assert other.send("Others", b"again").code == 0
            assert mine(figures(other))["errors"] == told["errors"]


@pytest.mark.parametrize("misdeed", ["raises", "nonsense"])
def test_the_broker_refuses_sends_until_a_restart_if_an_essential_dispatcher_has_failed(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], misdeed: str
) -> None:
    """Messages that it missed must not be taken for stored, so sends are refused, with its name, until a restart."""
    plugin = EssentialDispatcher(MISDEEDS[misdeed])
    config = configure(*LIMIT, *EssentialDispatcher.settings)
    with flintmq.Broker(config, plugins=[plugin]) as broker:
        wire = connect(broker)
        wire.send("T", b"x")
        told = mine(figures(wire))
        assert told["errors"] >= 1
        assert told["last_error"].startswith("dispatcher 'mine' (dispatch)")
        assert not told["switched_off"]
        assert wire.send("T", b"y").code != 0
        plugin.act = lambda: None
    with flintmq.Broker(config, plugins=[plugin]) as broker:
        wire = connect(broker)
        assert wire.send("T", b"z").code == 0
        assert [record.body for record in wire.pull_all("T", at_least=1)][-1] == b"z"


@pytest.mark.parametrize("misdeed", ["raises", "nonsense"])
def test_a_failing_flush_strategy_of_a_plugin_is_never_switched_off(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], misdeed: str
) -> None:
    """It promises what acknowledgements say: without it there is none."""
    with flintmq.Broker(configure(*LIMIT, *Flush.settings), plugins=[Flush(MISDEEDS[misdeed])]) as broker:
        wire = connect(broker)
        for _ in range(6):
            assert wire.send("T", b"x").code != 0
        told = mine(figures(wire))
        assert told["errors"] == 6
        assert not told["switched_off"]


def test_pulls_are_refused_if_their_message_filter_plugin_is_switched_off(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    """Consumers would otherwise move past messages that the filter never examined."""
    with flintmq.Broker(configure(*LIMIT, *Filter.settings), plugins=[Filter(raises)]) as broker:
        wire = connect(broker)
        answer = Filter(raises).provoke(wire)
        for _ in range(6):
            answer = Filter(raises).provoke(wire)
        assert "plugin.off" in answer.remark
        assert "plugin_failures_max" in answer.remark


def test_occasional_plugin_failures_provoked_by_clients_do_not_switch_the_plugin_off(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    """One client's odd requests must not take a processor from all others: only failures that follow one another count."""
    calls = iter(range(1_000))

    def one_in_three() -> Any:
        if next(calls) % 3 == 2:
            raise ValueError("odd")

    with flintmq.Broker(configure("plugin_failures_max=3"), plugins=[Processor(one_in_three)]) as broker:
        wire = connect(broker)
        codes = [wire.ask(CODE).code for _ in range(30)]
        assert codes.count(0) == 20
        assert mine(figures(wire))["switched_off"] == ""


class Keeping(Dispatcher):
    """A dispatcher that keeps what it is handed, and says how far it has it."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__(act)
        self.offsets: list[int] = []
        self.end = 0

    def dispatch(self, batch: RecordBatch) -> None:
        self.act()
        self.offsets += [one.commit_log_offset_bytes for one in batch.requests()]
        self.end = batch.end_offset_bytes

    def committed(self) -> int:
        return self.end


def test_a_switched_off_dispatcher_catches_up_after_a_restart(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    """Nothing is lost that it said it does not have, however long it was off and whatever it failed on."""
    plugin = Keeping(lambda: None)
    config = configure(*LIMIT, *Dispatcher.settings)
    with flintmq.Broker(config, plugins=[plugin]) as broker:
        wire = connect(broker)
        assert wire.send("T", b"had").code == 0
        assert wire.pull_all("T", at_least=1)
        plugin.act = raises
        for number in range(8):
            assert wire.send("T", b"missed %d" % number).code == 0
        assert "dispatcher mine: failed 3 times" in mine(figures(wire))["switched_off"]
        assert len(plugin.offsets) == 1
    plugin.act = lambda: None
    with flintmq.Broker(config, plugins=[plugin]) as broker:
        assert len(plugin.offsets) == 9
        assert plugin.offsets == sorted(set(plugin.offsets))
        assert mine(figures(connect(broker)))["switched_off"] == ""


class TimedFromTheFactory(Service):
    """Its timer begins while the broker is put together."""

    def make(self, context: Any) -> Any:
        context.api.work.every(0.001, self.tick, "mine's")
        return super().make(context)

    def start(self) -> None: ...


def test_a_timer_started_by_a_plugin_factory_runs_and_is_listed_in_the_runtime_info(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    ticked = threading.Event()
    with flintmq.Broker(configure(), plugins=[TimedFromTheFactory(ticked.set)]) as broker:
        assert ticked.wait(10)
        rows = [row.what for row in rows_of(figures(connect(broker)))]
        assert "the timer 'mine's'" in rows


class Waits(Service):
    """A service that never ends what it is asked to do."""

    def __init__(self, method: str) -> None:
        super().__init__(lambda: None)
        self.method = method
        self.cancelled: list[str] = []

    async def start(self) -> None:  # type: ignore[override]
        await self._maybe("start")

    async def stop(self) -> None:  # type: ignore[override]
        await self._maybe("stop")

    async def ready(self) -> None:
        await self._maybe("ready")

    async def withdraw(self) -> None:
        await self._maybe("withdraw")

    async def _maybe(self, method: str) -> None:
        if method == self.method:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(method)
                raise


@pytest.mark.parametrize("method", ["start", "ready", "withdraw", "stop"])
def test_a_hanging_service_of_a_plugin_blocks_neither_the_start_nor_the_stop_of_the_broker(
    configure: Callable[..., Any],
    connect: Callable[[Any], Wire],
    method: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(services, "LEFT_BEHIND_S", 0.3)
    plugin = Waits(method)
    with flintmq.Broker(configure(*LIMIT), plugins=[plugin]) as broker:
        wire = connect(broker)
        assert wire.send("T", b"x").code == 0
        if method in ("start", "ready"):
            assert f"{method} does not end within 0.3 s" in mine(figures(wire))["last_error"]
    assert plugin.cancelled == [method]
    assert f"raised in service 'mine' ({method})" in caplog.text


def test_the_number_and_length_of_runtime_info_entries_of_a_plugin_service_are_limited(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    """Request 28 is read by every tool: one service must not fill it, nor break it."""

    class Talks(Service):
        def __init__(self) -> None:
            super().__init__(lambda: None)
            self.told: Any = {f"k{number}": "x" for number in range(10_000)}

        def start(self) -> None: ...

        def runtime_info(self) -> Any:
            return self.told

    plugin = Talks()
    with flintmq.Broker(configure("plugin_failures_max=0"), plugins=[plugin]) as broker:
        wire = connect(broker)
        assert len(figures(wire)) < 200
        assert "runtime_info to return a mapping of at most 200" in mine(figures(wire))["last_error"]
        plugin.told = ["k"]
        figures(wire)
        assert "found ['k']" in mine(figures(wire))["last_error"]
        plugin.told = {"k": "x" * 5_000}
        assert figures(wire)["k"] == "x" * 1_000


def test_the_configuration_error_about_a_removed_plugin_setting_names_the_setting_that_replaces_it(
    tmp_path: Path,
) -> None:
    """They were settings once: a file that still has them says more than a start without them would do."""
    (tmp_path / "broker.yaml").write_text("broker:\n  name: b\nplugin_budget:\n  errors: 7\n")
    with pytest.raises(
        ConfigError, match=r"broker.yaml:3: 'plugin_budget' is not a setting any more: .*'plugin_failures_max'"
    ):
        flintmq.load_config(tmp_path / "broker.yaml", [], {})
    with pytest.raises(ConfigError, match="delete the section"):
        flintmq.load_config(None, ["plugin_budget.call_ms=2s"], {})
    assert flintmq.load_config(None, ["plugin_failures_max=7"], {}).config.plugin_failures_max == 7
