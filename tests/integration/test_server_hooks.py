"""Default processors, connection listeners and RPC hooks of plugins, over real sockets, at a broker and at a name server."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.core.errors import PluginError, RefusedError
from flintmq.core.kernel.hookspecs import RegisterDefaultProcessor, RegisterServerPart, hookimpl
from flintmq.core.kernel.ports.processor import Request, Response
from flintmq.remoting.server.request_gate import HookedChannel
from flintmq.remoting.wire.codes import RequestCode

Configure = Callable[..., Any]
UNKNOWN = 29_999
WAIT_S = 5.0


class Watcher:
    """Notes everything, and does what a test asks of it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.failures: list[Exception] = []
        self.before: list[int] = []
        self.after: list[tuple[int, int]] = []
        self.changed = threading.Condition()
        self.refuses: dict[int, BaseException] = {}
        self.spoils: Callable[[Request, Response], None] | None = None
        self.on_handle: Callable[[Request], Any] = lambda request: Response(0, f"default {request.code}")

    def _note(self, event: str, channel: Any) -> None:
        with self.changed:
            self.events.append((event, channel.remote_address))
            self.changed.notify_all()

    def on_channel_connect(self, channel: Any) -> None:
        self._note("connect", channel)

    def on_channel_close(self, channel: Any) -> None:
        self._note("close", channel)

    def on_channel_exception(self, channel: Any, error: Exception) -> None:
        self.failures.append(error)
        self._note("exception", channel)

    def on_channel_idle(self, channel: Any) -> None:
        self._note("idle", channel)

    def do_before_request(self, request: Request) -> None:
        self.before.append(request.code)
        if request.code in self.refuses:
            raise self.refuses[request.code]

    def do_after_response(self, request: Request, response: Response) -> None:
        self.after.append((request.code, response.code))
        if self.spoils is not None:
            self.spoils(request, response)

    def handle(self, request: Request) -> Any:
        return self.on_handle(request)

    def of(self, wire: Wire, *, until: str) -> list[str]:
        """Events of one connection, once the last one is there."""
        host, port = wire.socket.getsockname()[:2]
        return self.of_address(f"{host}:{port}", until=until)

    def of_address(self, address: str, *, until: str) -> list[str]:
        def found() -> list[str]:
            return [event for event, of in self.events if of == address]

        with self.changed:
            self.changed.wait_for(lambda: until in found(), WAIT_S)
            return found()


class WatchPlugin:
    """Registers one watcher for everything."""

    def __init__(self, name: str, watcher: Any, at: str, **default: Any) -> None:
        self.plugin_name = name
        self.watcher = watcher
        self._at = at
        self._default = default

    @hookimpl
    def flintmq_default_processors(self, register: RegisterDefaultProcessor) -> None:
        register("watch", lambda context: self.watcher, at=self._at, **self._default)

    @hookimpl
    def flintmq_connection_listeners(self, register: RegisterServerPart) -> None:
        register("watch", lambda context: self.watcher, at=self._at)

    @hookimpl
    def flintmq_rpc_hooks(self, register: RegisterServerPart) -> None:
        register("watch", lambda context: self.watcher, at=self._at)


@contextlib.contextmanager
def serving(configure: Configure, at: str, plugins: list[Any], *overrides: str) -> Iterator[Any]:
    """A broker or a name server with plugins."""
    made: Any = flintmq.Broker if at == "broker" else flintmq.NameServer
    with made(configure(*overrides), plugins=plugins) as server:
        yield server


@contextlib.contextmanager
def connected(server: Any) -> Iterator[Wire]:
    wire = Wire(server.address)
    try:
        yield wire
    finally:
        wire.close()


def told_errors(server: Any) -> dict[str, int]:
    """How often each plugin is blamed."""
    return {info.name: info.errors for info in server.kernel.describe() if info.errors}


@pytest.fixture(params=["broker", "nameserver"])
def at(request: pytest.FixtureRequest) -> str:
    """Each server."""
    return str(request.param)


def test_a_default_processor_of_a_plugin_answers_unregistered_request_codes(configure: Configure, at: str) -> None:
    """Plain, awaited and in threads; codes that have a processor keep it; what it raises is answered and counted."""

    async def later(request: Request) -> Response:
        return Response(0, "later", {"a": "b"}, b"body")

    known = RequestCode.GET_BROKER_CONFIG if at == "broker" else RequestCode.GET_NAMESRV_CONFIG
    for threads in ({}, {"pool": "mine", "threads": 2}):
        watcher = Watcher()
        plugin = WatchPlugin("watch", watcher, at, **threads)
        with serving(configure, at, [plugin]) as server, connected(server) as wire:
            assert (wire.ask(UNKNOWN).code, wire.ask(UNKNOWN + 1).remark) == (0, f"default {UNKNOWN + 1}")
            assert not (wire.ask(known).remark or "").startswith("default")
            here = threading.current_thread().name
            watcher.on_handle = lambda request: Response(0, threading.current_thread().name)
            ran_in = wire.ask(UNKNOWN).remark or here
            assert ran_in.startswith("flintmq-mine") == bool(threads)
            watcher.on_handle = later
            answer = wire.ask(UNKNOWN)
            assert (answer.remark, answer.ext_fields, answer.body) == ("later", {"a": "b"}, b"body")
            watcher.on_handle = lambda request: 1 / 0
            assert "division by zero" in (wire.ask(UNKNOWN).remark or "")
            watcher.on_handle = lambda request: Response(body="text")  # type: ignore[arg-type]
            assert wire.ask(UNKNOWN).code == 1
            assert told_errors(server) == {"watch": 2}


def test_a_server_refuses_default_processors_of_two_plugins_and_names_both_plugins(
    configure: Configure, at: str
) -> None:
    """One server has one; two plugins for two servers are no conflict."""
    one, other = WatchPlugin("one", Watcher(), at), WatchPlugin("other", Watcher(), "both")
    with (
        pytest.raises(PluginError, match=r"'one/watch' and 'other/watch': list 'one' or 'other' in 'disabled_plugins'"),
        serving(configure, at, [one, other]),
    ):
        pass
    with serving(configure, at, [one, other], "disabled_plugins=other") as server, connected(server) as wire:
        assert wire.ask(UNKNOWN).remark == f"default {UNKNOWN}"
    elsewhere = WatchPlugin("elsewhere", Watcher(), "nameserver" if at == "broker" else "broker")
    with serving(configure, at, [one, elsewhere]):
        pass


def test_connection_listeners_of_plugins_are_called_for_each_connection_event(configure: Configure, at: str) -> None:
    """Opened, closed by the peer, reset, bytes that are no frame, idle; each connection is closed once."""
    watcher = Watcher()
    plugins = [WatchPlugin("watch", watcher, at)]
    idle = "listen.idle_timeout_ms=1000" if at == "broker" else "nameserver.idle_timeout_ms=1000"
    with serving(configure, at, plugins, idle) as server:
        with connected(server) as wire:
            wire.ask(UNKNOWN)
            ended = "{}:{}".format(*wire.socket.getsockname()[:2])
            assert watcher.of(wire, until="connect") == ["connect"]
        assert watcher.of_address(ended, until="close") == ["connect", "close"]
        with connected(server) as wire:
            wire.ask(UNKNOWN)
            reset = "{}:{}".format(*wire.socket.getsockname()[:2])
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert watcher.of_address(reset, until="close") == ["connect", "exception", "close"]
        assert isinstance(watcher.failures[-1], OSError)
        with connected(server) as wire:
            wire.socket.sendall(b"\xff\xff\xff\xffGET / HTTP/1.1\r\n\r\n")
            assert wire.is_closed_by_peer()
            assert watcher.of(wire, until="close") == ["connect", "exception", "close"]
        with connected(server) as wire:
            wire.ask(UNKNOWN)
            asked_s = time.monotonic()

            async def sweep() -> None:
                server.server.connections.sweep(asked_s + 3_600)

            server.call(sweep)
            assert watcher.of(wire, until="close") == ["connect", "idle", "close"]
    assert told_errors(server) == {}


def test_connection_listeners_are_not_called_for_refused_connections(configure: Configure) -> None:
    """Listeners that count would count it off, and never on."""
    watcher = Watcher()
    plugins = [WatchPlugin("watch", watcher, "broker")]
    with serving(configure, "broker", plugins, "listen.max_connections=1") as server, connected(server) as first:
        first.ask(UNKNOWN)
        with contextlib.suppress(OSError), connected(server) as second:
            assert second.is_closed_by_peer()
        first.ask(UNKNOWN)
        assert [event for event, _address in watcher.events] == ["connect"]


def test_an_error_of_a_connection_listener_is_counted_and_the_connection_stays_open(
    configure: Configure, at: str
) -> None:
    """The connection and the other listeners must continue as before."""

    class Broken:
        def on_channel_connect(self, channel: Any) -> None:
            raise KeyError("connect")

        def do_after_response(self, request: Request, response: Response) -> None:
            raise RefusedError(1, "too late", reason="test.late")

        def handle(self, request: Request) -> Response:
            return Response(0, "fine")

    plugins = [WatchPlugin("broken", Broken(), at)]
    with serving(configure, at, plugins) as server, connected(server) as wire:
        assert wire.ask(UNKNOWN).remark == "fine"
        assert told_errors(server) == {"broken": 2}


def test_rpc_hooks_are_called_for_every_request_and_answer(configure: Configure) -> None:
    """Sends, batches of them, pulls at once and held, unknown codes, refusals: one before and one after for each."""
    watcher = Watcher()
    overrides = ("topics.default_queue_nums=1", "flush.strategy=group_commit")
    plugins = [WatchPlugin("watch", watcher, "broker")]
    with serving(configure, "broker", plugins, *overrides) as broker, connected(broker) as wire:
        assert [wire.send("T", b"%d" % number).queue_offset for number in range(3)] == [0, 1, 2]
        opaques = [wire.post_send("T", b"more") for _ in range(20)]
        assert {wire.answer(opaque).code for opaque in opaques} == {0}
        assert wire.pull("T").bodies[:2] == [b"0", b"1"]
        held = wire.post_pull("T", 23, _suspend_ms=5_000)
        with connected(broker) as other:
            other.send("T", b"wakes")
        assert wire.answer(held).code == 0
        assert wire.send("T" * 200, b"").code != 0
        assert wire.ask(UNKNOWN).code == 0
        wire.post(UNKNOWN, oneway=True)
        assert wire.ask(RequestCode.GET_BROKER_CONFIG).code == 0
    send, pull = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.PULL_MESSAGE)
    assert (watcher.before.count(send), watcher.before.count(pull), watcher.before.count(UNKNOWN)) == (25, 2, 2)
    assert [code for code, _answer in watcher.after].count(send) == 25
    assert watcher.after.count((send, 0)) == 24
    assert watcher.after.count((pull, 0)) == 2
    assert len(watcher.after) == len(watcher.before)
    assert told_errors(broker) == {}


def test_a_request_is_refused_if_an_rpc_hook_raises_an_error_before_the_request_is_processed(
    configure: Configure, at: str
) -> None:
    """A refusal in its own words; anything else with a clear answer, counted for the plugin; others in the read go on."""
    watcher = Watcher()
    watcher.refuses = {
        UNKNOWN: RefusedError(16, "not on Sundays", reason="test.sunday", key="calendar.sunday"),
        UNKNOWN + 1: KeyError("a bug"),
        UNKNOWN + 2: SystemExit(3),
    }
    with serving(configure, at, [WatchPlugin("watch", watcher, at)]) as server, connected(server) as wire:
        opaques = [wire.post(UNKNOWN + number) for number in range(4)]
        answers = [wire.answer(opaque) for opaque in opaques]
        assert [answer.code for answer in answers] == [16, 1, 1, 0]
        assert "not on Sundays" in (answers[0].remark or "")
        assert "calendar.sunday" in (answers[0].remark or "")
        assert "KeyError: 'a bug'" in (answers[1].remark or "")
        assert "[hook.failed" in (answers[1].remark or "")
        assert told_errors(server) == {"watch": 2}
        assert (UNKNOWN, 16) in watcher.after
        wire.post(UNKNOWN + 1, oneway=True)
        assert wire.ask(UNKNOWN + 3).code == 0


def test_a_send_refused_by_an_rpc_hook_is_not_stored(configure: Configure) -> None:
    """Batches of sends go another way through the server than single requests."""
    watcher = Watcher()
    watcher.refuses = {int(RequestCode.SEND_MESSAGE_V2): RefusedError(16, "no", reason="test.no")}
    with serving(configure, "broker", [WatchPlugin("watch", watcher, "broker")]) as broker, connected(broker) as wire:
        opaques = [wire.post_send("T", b"x") for _ in range(5)]
        assert {wire.answer(opaque).code for opaque in opaques} == {16}
        assert broker.state.store.watermarks.wrote == 0


def test_the_original_answer_is_sent_if_an_rpc_hook_makes_the_answer_invalid(configure: Configure, at: str) -> None:
    """RocketMQ's hooks do both; an answer that could not be sent is sent as it was."""
    watcher = Watcher()

    def spoil(request: Request, response: Response) -> None:
        if request.code == UNKNOWN:
            response.remark = f"{response.remark}, changed"
            response.ext_fields = {"added": (request.ext_fields or {}).get("given", "")}
        else:
            response.body = "no bytes"  # type: ignore[assignment]

    watcher.spoils = spoil
    with serving(configure, at, [WatchPlugin("watch", watcher, at)]) as server, connected(server) as wire:
        answer = wire.ask(UNKNOWN, {"given": "7"})
        assert (answer.remark, answer.ext_fields) == (f"default {UNKNOWN}, changed", {"added": "7"})
        assert wire.ask(UNKNOWN + 1).remark == f"default {UNKNOWN + 1}"
        assert wire.ask(UNKNOWN + 1).body == b""
        assert told_errors(server) == {"watch": 2}


def test_requests_are_handled_by_the_code_path_without_hooks_if_no_plugin_registers_rpc_hooks(
    configure: Configure,
) -> None:
    """Hooks must cost nothing if no plugin has them, so the same functions read requests and write answers."""
    with serving(configure, "broker", []) as broker, connected(broker) as wire:
        wire.ask(UNKNOWN)
        server = broker.server
        assert (server.hooks.before, server.hooks.after, server.hooks.connected) == ((), (), ())
        assert not server.keeps_ext_fields
        assert broker.api.server.answers_as_bytes
        assert not any(isinstance(channel, HookedChannel) for channel in server.connections.channels)


@pytest.mark.parametrize(
    ("hook", "made", "said"),
    [
        ("flintmq_rpc_hooks", object(), "none of do_before_request"),
        ("flintmq_connection_listeners", None, "None"),
        ("flintmq_default_processors", object(), r"handle\(request\)"),
    ],
)
def test_an_invalid_server_hook_of_a_plugin_stops_the_start_of_the_server(
    configure: Configure, at: str, hook: str, made: Any, said: str
) -> None:
    """The plugin, the hook and what was expected."""

    class Wrong:
        plugin_name = "wrong"

    def register_it(self: object, register: Any) -> None:
        register("wrong", lambda context: made, at="both")

    register_it.__name__ = hook
    setattr(Wrong, hook, hookimpl(register_it))
    with pytest.raises(PluginError, match=rf"plugin 'wrong'.*{hook}.*{said}"), serving(configure, at, [Wrong()]):
        pass
