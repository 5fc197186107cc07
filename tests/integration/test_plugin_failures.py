"""What plugins do wrong while a broker runs: it goes on serving, and says who it was, to the log and to request 28."""

from __future__ import annotations

import logging
import re
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports import FlushContext, FlushStrategy, RecordBatch
from flintmq.core.kernel.ports.processor import Request, Response
from flintmq.programs.broker.plugin_server import THREADS_END_S
from flintmq.remoting.wire.codes import RequestCode


def figures(wire: Wire) -> dict[str, str]:
    """Request 28's table."""
    import json

    table: dict[str, str] = json.loads(wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body)["table"]
    return table


class Handlers:
    """A processor of one handler per code."""

    def __init__(self, **handlers: Callable[[Request], Any]) -> None:
        self._handlers = {int(name[1:]): handler for name, handler in handlers.items()}

    def handlers(self) -> Mapping[int, Callable[[Request], Any]]:
        return self._handlers


class Plugin:
    """Registers one thing in each way that it is given."""

    plugin_name = "mine"

    def __init__(
        self, processor: Any = None, pool: str = "admin", threads: int | None = None, *, filter: Any = None
    ) -> None:
        self._processor = processor
        self._pool = pool
        self._threads = threads
        self._filter = filter

    @hookimpl
    def flintmq_request_processors(self, register: Any) -> None:
        if self._processor is not None:
            codes = tuple(self._processor.handlers())
            register("mine", codes, lambda context: self._processor, pool=self._pool, threads=self._threads)

    @hookimpl
    def flintmq_message_filters(self, register: Any) -> None:
        if self._filter is not None:
            register("MINE", lambda context: lambda expression, codes: self._filter())


class NoResponse:
    """What a handler returns by mistake."""


async def _awaits_a_text(request: Request) -> Any:
    return "hello"


WRONG_ANSWERS: dict[str, tuple[Callable[[Request], Any], str]] = {
    "text-body": (lambda request: Response(body="hello"), "body to be bytes; found 'hello'"),  # type: ignore[arg-type]
    "none-body": (lambda request: Response(body=None), "body to be bytes; found None"),  # type: ignore[arg-type]
    "text-code": (lambda request: Response("0"), "code to be an int of 16 bits; found '0'"),  # type: ignore[arg-type]
    "large-code": (lambda request: Response(1 << 20), "code to be an int of 16 bits; found 1048576"),
    "number-remark": (lambda request: Response(remark=5), "remark to be a str or None; found 5"),  # type: ignore[arg-type]
    "number-field": (lambda request: Response(ext_fields={"a": 1}), "ext_fields to be of str; found 'a': 1"),  # type: ignore[dict-item]
    "list-fields": (lambda request: Response(ext_fields=["a"]), "ext_fields to be a mapping"),  # type: ignore[arg-type]
    "a-dict": (lambda request: {"code": 0}, "expected a Response, None, or something to await"),
    "bytes": (lambda request: b"hello", "expected a Response, None, or something to await"),
    "awaited-text": (_awaits_a_text, "expected a Response, None, or something to await"),
    "other-object": (lambda request: NoResponse(), "expected a Response"),
    "surrogate": (lambda request: Response(ext_fields={"a": "\ud800"}), "UnicodeEncodeError"),
    "raises": (lambda request: 1 // 0, "ZeroDivisionError"),
    "exits": (lambda request: exit(3), "SystemExit"),
}


@pytest.mark.parametrize("pool", ["admin", "mine"])
def test_invalid_answers_of_a_request_processor_plugin_become_error_responses_and_are_counted(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], pool: str
) -> None:
    """The client gets the reason, on the loop and in thread pools, and keeps its connection."""
    codes = {f"c{9_000 + number}": handler for number, (handler, _) in enumerate(WRONG_ANSWERS.values())}
    config = configure("plugin_failures_max=0")
    with flintmq.Broker(config, plugins=[Plugin(Handlers(**codes), pool)]) as broker:
        wire = connect(broker)
        for number, (name, (_, says)) in enumerate(WRONG_ANSWERS.items(), 1):
            answer = wire.ask(9_000 + number - 1)
            assert answer.code == 1, name
            assert says in (answer.remark or ""), name
            told = figures(wire)
            assert told["pluginErrors_mine"] == str(number), name
            assert told["pluginLastError_mine"].startswith(f"request processor 'mine' (request {9_000 + number - 1})")
        assert told["pluginErrors"] == str(len(WRONG_ANSWERS))
        assert wire.is_served()


def test_a_refusal_by_a_plugin_is_not_counted_as_a_failure(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    def refuse(request: Request) -> Response:
        raise RefusedError(1, "not you", reason="mine.refused")

    with flintmq.Broker(configure(), plugins=[Plugin(Handlers(c9001=refuse))]) as broker:
        wire = connect(broker)
        assert "mine.refused" in (wire.ask(9001).remark or "")
        assert figures(wire)["pluginErrors"] == "0"


def test_every_request_is_answered_if_a_batch_processor_of_a_plugin_fails(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    class Batches:
        def process(self, batch: list[Request]) -> Any:
            for request in batch:
                request.channel.respond(request, Response(body=5))  # type: ignore[arg-type]

    class BatchPlugin:
        plugin_name = "mine"

        @hookimpl
        def flintmq_request_processors(self, register: Any) -> None:
            register("mine", (9001,), lambda context: Batches())

    with flintmq.Broker(configure(), plugins=[BatchPlugin()]) as broker:
        wire = connect(broker)
        sent = [wire.post(9001) for _ in range(3)]
        assert {wire.answer(opaque).code for opaque in sent} == {1}
        assert "request processor 'mine' (request 9001)" in figures(wire)["pluginLastError_mine"]


# pools of threads


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What blocked handlers wait for; opened at the latest with the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def test_a_blocked_request_handler_in_a_thread_pool_does_not_delay_other_requests(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], gate: threading.Event
) -> None:
    """Its pool has threads; the loop serves others, and its own requests beyond the threads wait in the bounded queue."""
    entered = threading.Semaphore(0)

    def blocks(request: Request) -> Response:
        entered.release()
        assert gate.wait(30)
        return Response(remark=threading.current_thread().name)

    config = configure("admission.admin_queue=5")
    with flintmq.Broker(config, plugins=[Plugin(Handlers(c9001=blocks), "reports", 2)]) as broker:
        wire, other = connect(broker), connect(broker)
        sent = [wire.post(9001) for _ in range(7)]
        assert entered.acquire(timeout=10)
        assert entered.acquire(timeout=10)
        assert not entered.acquire(blocking=False), "two threads, not more"
        refused = [wire.answer(opaque) for opaque in sent[5:]]
        assert all("queue.full" in (answer.remark or "") for answer in refused), "the queue is bounded"
        assert other.is_served()
        assert int(figures(other)["pluginErrors"]) == 0
        gate.set()
        names = {wire.answer(opaque).remark for opaque in sent[:5]}
        assert names <= {"flintmq-reports-0", "flintmq-reports-1"}


def test_an_async_request_handler_of_a_plugin_runs_on_the_event_loop_of_the_broker(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    async def answers(request: Request) -> Response:
        return Response(remark=threading.current_thread().name)

    with flintmq.Broker(configure(), plugins=[Plugin(Handlers(c9001=answers), "reports")]) as broker:
        assert connect(broker).ask(9001).remark == "flintmq-broker"


def test_a_broker_stops_even_if_a_request_handler_never_returns(
    configure: Callable[..., Any],
    connect: Callable[[Any], Wire],
    gate: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A handler that never returns must not keep a broker from ending."""
    entered = threading.Event()

    def stuck_in_here(request: Request) -> Response:
        entered.set()
        gate.wait(60)
        return Response()

    config = configure("broker.shutdown_timeout_ms=200")
    with flintmq.Broker(config, plugins=[Plugin(Handlers(c9001=stuck_in_here), "reports", 1)]) as broker:
        wire = connect(broker)
        wire.post(9001)
        wire.post(9001)
        assert entered.wait(10)
        begin_s = time.monotonic()
    assert time.monotonic() - begin_s < THREADS_END_S + 5
    assert (
        "pool reports: a handler does not return, so its thread still runs after the stop: flintmq-reports-0 at"
        in caplog.text
    )


# the watchdog


class Seen(logging.Handler):
    """An event for the first line that has a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.event = threading.Event()
        self.line = ""

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.line = record.getMessage()
            self.event.set()


@pytest.fixture
def standing_still() -> Iterator[Seen]:
    """Notices what the watchdog logs."""
    seen = Seen("the event loop is busy with")
    logging.getLogger("flintmq.broker").addHandler(seen)
    yield seen
    logging.getLogger("flintmq.broker").removeHandler(seen)


def blocker(seen: Seen) -> Callable[..., Any]:
    def blocks_until_noticed(*_arguments: object) -> Any:
        seen.event.wait(30)
        return None

    return blocks_until_noticed


class BlockingFilter:
    needs_properties = False
    seen: Seen

    def matches_tags_code(self, tags_code: int) -> bool:
        return blocker(self.seen)() is None

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        return True


class BlockingDispatcher:
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def dispatch(self, batch: RecordBatch) -> None:
        blocker(self._seen)()


class BlockingPlugin(Plugin):
    def __init__(self, seen: Seen, what: str) -> None:
        super().__init__(Handlers(c9001=self.handle) if what == "handler" else None)
        self._seen = seen
        self._what = what

    def handle(self, request: Request) -> Response:
        blocker(self._seen)()
        return Response()

    @hookimpl
    def flintmq_dispatchers(self, register: Any) -> None:
        register("mine", lambda context: BlockingDispatcher(self._seen))

    @hookimpl
    def flintmq_broker_starting(self, api: Any) -> None:
        if self._what == "starting":
            blocker(self._seen)()
        if self._what == "timer":
            api.work.every(0.001, self.tick, "mine's")

    def tick(self) -> None:
        blocker(self._seen)()


@pytest.mark.parametrize(
    ("what", "function"),
    [
        ("handler", "BlockingPlugin.handle"),
        ("dispatcher", "BlockingDispatcher.dispatch"),
        ("starting", "BlockingPlugin.flintmq_broker_starting"),
        ("timer", "BlockingPlugin.tick"),
    ],
)
def test_a_plugin_that_blocks_the_event_loop_is_logged_with_its_stack(
    configure: Callable[..., Any],
    connect: Callable[[Any], Wire],
    standing_still: Seen,
    what: str,
    function: str,
) -> None:
    """The line is written while the plugin still blocks, so that an operator can find the cause."""
    settings = ["listen.loop_blocked_warn_ms=300"]
    if what == "dispatcher":
        settings.append("dispatchers=consume_queue,mine")
    with flintmq.Broker(configure(*settings), plugins=[BlockingPlugin(standing_still, what)]) as broker:
        wire = connect(broker)
        if what == "handler":
            assert wire.ask(9001, timeout_s=40).code == 0
        if what == "dispatcher":
            assert wire.send("T", b"x").code == 0
        assert standing_still.event.wait(30)
        assert "nobody is served for more than 300 ms" in standing_still.line
        assert re.search(rf"called from {re.escape(__file__)}:\d+ in {re.escape(function)}\b", standing_still.line)
        told = figures(wire)
        assert int(told["loopBlockedTimes"]) >= 1
        assert int(told["loopBlockedMaxMillis"]) >= 300
        assert function in told["loopBlockedBy"]


def test_the_watchdog_of_the_event_loop_can_be_switched_off(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    with flintmq.Broker(configure("listen.loop_blocked_warn_ms=0")) as broker:
        assert "loopBlockedTimes" not in figures(connect(broker))


# filters


class FailingFilter:
    """Raises for one property's value, and wherever else it is told to."""

    needs_properties = True
    fails_in = "matches_properties"

    def matches_tags_code(self, tags_code: int) -> bool:
        if self.fails_in == "matches_tags_code":
            raise KeyError("tags")
        return True

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        if properties.get("bad") == "yes":
            raise KeyError("no")
        return True


def _ask(wire: Wire, offset: int, expression_type: str = "MINE") -> Any:
    return wire.pull("T", offset, subscription="x", expressionType=expression_type)


def test_a_subscription_whose_filter_raises_does_not_get_the_message_and_other_subscriptions_get_it(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    """The others are, and other subscriptions get all of them; the pull is no error."""
    config = configure("pull.property_filter=true")
    with flintmq.Broker(config, plugins=[Plugin(filter=FailingFilter)]) as broker:
        wire = connect(broker)
        for number, bad in enumerate(("no", "yes", "no")):
            assert wire.send("T", b"%d" % number, properties={"bad": bad}).code == 0
        assert _ask(wire, 0).bodies == [b"0", b"2"]
        assert wire.pull("T").bodies == [b"0", b"1", b"2"]
        told = figures(wire)
        assert told["pluginErrors_mine"] == "1"
        assert told["pluginLastError_mine"] == "message filter 'MINE' (matches_properties): KeyError: 'no'"


def test_a_subscription_is_refused_if_the_filter_factory_of_a_plugin_raises_an_error(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    """The client learns that its expression is of no use, not that the broker has a defect."""

    class Fails:
        def __init__(self) -> None:
            raise ValueError("cannot parse")

    with flintmq.Broker(configure("pull.property_filter=true"), plugins=[Plugin(filter=Fails)]) as broker:
        wire = connect(broker)
        assert wire.send("T", b"x").code == 0
        answer = _ask(wire, 0)
        assert (answer.code, "filter.failed" in answer.remark) == (23, True)
        assert "its factory" in figures(wire)["pluginLastError_mine"]
        assert wire.is_served()


# everything that is called later


class Builder:
    def __init__(self, context: Any) -> None: ...

    def dispatch(self, batch: RecordBatch) -> None:
        raise OSError("the builder's disk")

    def query(self, *arguments: object) -> Any:
        raise KeyError("query")

    def flush(self) -> None: ...

    def close(self) -> None:
        raise RuntimeError("close")


class FailingDispatcher:
    def dispatch(self, batch: RecordBatch) -> None:
        raise ValueError("no room")


class FailsLater:
    """Nothing is wrong with it before messages come."""

    plugin_name = "later"

    @hookimpl
    def flintmq_index_builders(self, register: Any) -> None:
        register("index", Builder)

    @hookimpl
    def flintmq_dispatchers(self, register: Any) -> None:
        register("mine", lambda context: FailingDispatcher())

    @hookimpl
    def flintmq_broker_starting(self, api: Any) -> None:
        def figures_of_mine() -> dict[str, str]:
            raise KeyError("figures")

        api.figures.add(figures_of_mine)


class SameNames(FailsLater):
    """Registers what FailsLater does, under the same names."""

    plugin_name = "same-names"


def test_failures_are_counted_for_the_plugin_whose_code_raised_the_exception(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    """A third party's index builder fails inside a built-in processor, which is not to blame. And a
    dispatcher that is switched off is shown with why, and with the plugin that it belongs to."""
    settings = ("dispatchers=consume_queue,index,same-names/mine", "index.builder=later/index")
    with flintmq.Broker(configure(*settings), plugins=[FailsLater(), SameNames()]) as broker:
        wire = connect(broker)
        for number in range(6):
            assert wire.send("T", b"x", properties={"KEYS": f"k{number}"}).code == 0
        told = figures(wire)
        assert told["pluginErrors_same-names"] == "5"
        assert told["pluginLastError_same-names"] == "dispatcher 'mine' (dispatch): ValueError: no room"
        assert told["pluginSwitchedOff_same-names"].startswith("dispatcher mine: failed 5 times, the last time in")
        assert told["pluginSwitchedOff_later"].startswith("index builder index: failed 5 times, the last time in")
        assert "pluginErrors_dispatchers" not in told
        before = int(told["pluginErrors_later"])
        fields = {"topic": "T", "key": "k1", "maxNum": 3, "beginTimestamp": 0, "endTimestamp": 1 << 60}
        assert wire.ask(RequestCode.QUERY_MESSAGE, fields).code == 1
        told = figures(wire)
        assert "index builder 'index' (query): KeyError: 'query'" in told["pluginLastError_later"] or (
            "a source of runtime figures" in told["pluginLastError_later"]
        )
        assert int(told["pluginErrors_later"]) > before
        assert "pluginErrors_processors" not in told
        assert wire.is_served()


def test_log_lines_of_a_plugin_that_always_fails_are_bounded(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], caplog: pytest.LogCaptureFixture
) -> None:
    def fails(request: Request) -> Response:
        raise ValueError("again")

    config = configure("plugin_failures_max=0")
    with flintmq.Broker(config, plugins=[Plugin(Handlers(c9001=fails))]) as broker:
        wire = connect(broker)
        for opaque in [wire.post(9001) for _ in range(300)]:
            assert wire.answer(opaque).code == 1
        assert figures(wire)["pluginErrors_mine"] == "300"
    lines = [record for record in caplog.records if "again" in record.getMessage() or record.exc_info]
    assert len(lines) == 3, "the first with its trace, the tenth and the hundredth"


class Door:
    plugin_name = "door"

    def __init__(self, result: Any) -> None:
        self._result = result

    @hookimpl
    def flintmq_authenticators(self, register: Any) -> None:
        register("door", lambda context: self)

    def authenticate(self, caller: Any) -> Any:
        if caller.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return None
        return self._result()


async def _later() -> None: ...


@pytest.mark.parametrize(
    "result", [lambda: False, lambda: True, _later, lambda: 1 / 0], ids=["no", "yes", "async", "raises"]
)
def test_a_request_is_refused_without_revealing_credentials_if_the_authenticator_plugin_fails(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], result: Callable[[], Any]
) -> None:
    """One that returns its decision, or something to await, has decided nothing; and its failures show no credentials."""
    with flintmq.Broker(configure("authenticators=door"), plugins=[Door(result)]) as broker:
        wire = connect(broker)
        answer = wire.send("T", b"x")
        assert (answer.code, "authenticator.failed" in answer.remark) == (1, True)
        told = figures(wire)
        assert told["pluginErrors_door"] == "1"
        assert told["pluginLastError_door"] in (
            "authenticator 'door' (request 310: an authenticator failed): TypeError",
            "authenticator 'door' (request 310: an authenticator failed): ZeroDivisionError",
        )


# results


class Flush:
    """A flush service that does what it is told to."""

    def __init__(self, context: FlushContext, submit: Callable[[], Any]) -> None:
        self._submit = submit

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def submit(self, end_offset_bytes: int) -> Any:
        return self._submit()

    def statistics(self) -> Any:
        return None


class FlushPlugin:
    plugin_name = "mine"

    def __init__(self, submit: Callable[[], Any]) -> None:
        self._submit = submit

    @hookimpl
    def flintmq_flush_services(self, register: Any) -> None:
        register(FlushStrategy("mine", lambda context: Flush(context, self._submit)))


@pytest.mark.parametrize(
    ("submit", "says"),
    [
        (lambda: None, "expected submit to return a FlushWaiter, with status and add_done_callback; found None"),
        (lambda: True, "found True"),
        (_later, "found a coroutine"),
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: exit(1), "SystemExit"),
    ],
    ids=["none", "true", "coroutine", "raises", "exits"],
)
def test_a_send_fails_if_the_flush_service_of_a_plugin_returns_an_object_of_a_wrong_type(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], submit: Callable[[], Any], says: str
) -> None:
    """The sender is told, the plugin is named, and the broker goes on."""
    with flintmq.Broker(configure("flush.strategy=mine"), plugins=[FlushPlugin(submit)]) as broker:
        wire = connect(broker)
        assert wire.send("T", b"x").code == 1
        told = figures(wire)
        assert told["pluginErrors_mine"] == "1"
        assert told["pluginLastError_mine"].startswith("flush strategy 'mine' (submit): ")
        assert says in told["pluginLastError_mine"]


class LazyFilter(FailingFilter):
    """Its author made coroutines of what is called plainly, behind a decorator that hides it."""

    def __init__(self) -> None:
        self.matches_tags_code = lambda tags_code: _later()  # type: ignore[assignment, method-assign, misc, return-value]


def test_an_awaitable_returned_by_a_filter_or_dispatcher_counts_as_a_plugin_failure(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    """It would pass for true, and everybody would get everything."""
    config = configure("dispatchers=consume_queue,lazy")

    class LazyPlugin(Plugin):
        @hookimpl
        def flintmq_dispatchers(self, register: Any) -> None:
            lazy = types.SimpleNamespace(dispatch=lambda batch: _later())
            register("lazy", lambda context: lazy)

    with flintmq.Broker(config, plugins=[LazyPlugin(filter=LazyFilter)]) as broker:
        wire = connect(broker)
        assert wire.send("T", b"x").code == 0
        assert "dispatcher 'lazy' (dispatch): TypeError: expected a plain" in figures(wire)["pluginLastError_mine"]
        assert _ask(wire, 0).bodies == []
        told = figures(wire)
        assert told["pluginErrors_mine"] == "2"
        assert "message filter 'MINE' (matches_tags_code): TypeError" in told["pluginLastError_mine"]


class NoOffset:
    def dispatch(self, batch: RecordBatch) -> None: ...

    def committed(self) -> Any:
        return "17"


def test_an_invalid_committed_position_of_a_dispatcher_counts_as_a_plugin_failure(
    configure: Callable[..., Any], connect: Callable[[Any], Wire]
) -> None:
    class TextPlugin:
        plugin_name = "mine"

        @hookimpl
        def flintmq_dispatchers(self, register: Any) -> None:
            register("mine", lambda context: NoOffset())

    with flintmq.Broker(configure("dispatchers=consume_queue,mine"), plugins=[TextPlugin()]) as broker:
        wire = connect(broker)
        assert "expected an int, or None to be returned; found '17'" in figures(wire)["pluginLastError_mine"]
        assert wire.is_served()
