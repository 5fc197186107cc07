"""Mistakes that an author of a plugin makes: each is found by ``config check`` and by a start, and the error says whose
plugin it is, which hook, what was expected and what was found. Nobody should have to read a trace to learn that a bracket
is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import pytest

import flintmq
from flintmq.core.errors import PluginError

from .conftest import SMALL, RunCommand

HEAD = """
import functools
import attrs
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports import FlushStrategy
from flintmq.core.errors import PluginError, RefusedError, StoreError

class Dispatcher:
    def __init__(self, context=None): ...
    def dispatch(self, batch): ...

class Builder:
    def __init__(self, context=None): ...
    def dispatch(self, batch): ...
    def query(self, topic, key, max_num, begin_timestamp_ms, end_timestamp_ms): return [], 0, 0
    def flush(self): ...
    def close(self): ...

class Flush:
    def __init__(self, context): self.context = context
    def start(self): ...
    def stop(self): ...
    def submit(self, end_offset_bytes): ...
    def statistics(self): ...

class Pool:
    available_buffers = 1
    def borrow(self): ...
    def give_back(self, buffer): ...
    def close(self): ...

class Filter:
    needs_properties = False
    def matches_tags_code(self, tags_code): return True
    def matches_properties(self, properties): return True

class Who:
    def __init__(self, settings=None): ...
    def authenticate(self, caller): ...

class Default:
    def handle(self, request): ...

class Listener:
    def on_channel_connect(self, channel): ...

class Around:
    def do_before_request(self, request): ...

class Processor:
    def __init__(self, broker): ...
    def handlers(self): return {9001: self.answer}
    def answer(self, request): ...
"""

DISPATCHERS = "flintmq_dispatchers"
FLUSH = "flintmq_flush_services"
POOLS = "flintmq_transient_store_pools"
INDEX = "flintmq_index_builders"
PROCESSORS = "flintmq_request_processors"
FILTERS = "flintmq_message_filters"
AUTH = "flintmq_authenticators"
DEFAULTS = "flintmq_default_processors"
LISTENERS = "flintmq_connection_listeners"
RPC_HOOKS = "flintmq_rpc_hooks"
SECTIONS = "flintmq_config_sections"
COMMANDS = "flintmq_cli_commands"

CHOSEN = {
    DISPATCHERS: "dispatchers: [consume_queue, mine]",
    FLUSH: "flush: {strategy: mine}",
    POOLS: "flush: {strategy: commit_real_time, pool: mine}",
    INDEX: "index: {builder: mine}",
    AUTH: "authenticators: [mine]",
}
"""What of the configuration makes a start call the factory; the other kinds are always in force."""


@attrs.frozen
class Mistake:
    name: str
    hook: str
    body: str
    says: tuple[str, ...]
    """What the error must have in it, beside the plugin and the hook."""
    yaml: str = ""


def registers(name: str, hook: str, call: str, *says: str, before: str = "", yaml: str = "") -> Mistake:
    """A plugin whose hook does one call."""
    body = f"{textwrap.dedent(before)}\nclass plugin:\n    @hookimpl\n    def {hook}(self, register):\n        {call}\n"
    return Mistake(name, hook, body, says, yaml)


def made(name: str, hook: str, made_of: str, *says: str, before: str = "") -> Mistake:
    """A plugin whose factory returns something."""
    factory = f"lambda it: {'lambda expression, codes: ' if hook == FILTERS else ''}{made_of}"
    call = f"register(FlushStrategy('mine', {factory}))" if hook == FLUSH else f"register('mine', {factory})"
    if hook == PROCESSORS:
        call = f"register('mine', (9001,), {factory})"
    return registers(name, hook, call, "'mine'", "expected", *says, before=before)


def hook_is(name: str, hook: str, definition: str, *says: str) -> Mistake:
    """A plugin with a hook written otherwise: ``(self): ...``, ``async (self): ...``, or a whole line."""
    is_async = definition.startswith("async ")
    if is_async or definition.startswith("("):
        definition = f"def {hook}{definition.removeprefix('async ')}"
        definition = f"@hookimpl\n    {'async ' if is_async else ''}{definition}"
    return Mistake(name, hook, f"class plugin:\n    {definition}\n", says)


KINDS = {
    DISPATCHERS: ("Dispatcher", "dispatch(batch)"),
    FLUSH: ("Flush", "start()"),
    POOLS: ("Pool", "borrow()"),
    INDEX: ("Builder", "dispatch(batch)"),
    PROCESSORS: ("Processor", "process(batch)"),
    FILTERS: ("Filter", "matches_tags_code(tags_code)"),
    AUTH: ("Who", "authenticate(caller)"),
    DEFAULTS: ("Default", "handle(request)"),
    LISTENERS: ("Listener", "on_channel_connect(channel)"),
    RPC_HOOKS: ("Around", "do_before_request(request)"),
}

MISTAKES = [
    # What a factory returns, of every kind.
    *[made(f"{hook}-none", hook, "None", "None", needed) for hook, (_, needed) in KINDS.items()],
    *[made(f"{hook}-class", hook, cls, f"the class {cls}", "an instance") for hook, (cls, _) in KINDS.items()],
    *[made(f"{hook}-number", hook, "7", "int") for hook in KINDS],
    *[
        registers(
            f"{hook}-async-factory",
            hook,
            {
                FLUSH: "register(FlushStrategy('mine', make))",
                PROCESSORS: "register('mine', (9001,), make)",
            }.get(hook, "register('mine', make)"),
            "'mine'",
            "expected a plain function",
            "async def",
            before="async def make(*arguments): return None",
        )
        for hook in KINDS
    ],
    *[
        registers(
            f"{hook}-factory-without-arguments",
            hook,
            {
                FLUSH: "register(FlushStrategy('mine', lambda: None))",
                PROCESSORS: "register('mine', (9001,), lambda: None)",
            }.get(hook, "register('mine', lambda: None)"),
            "'mine'",
            "expected",
            "factory(",
            "too many positional arguments",
        )
        for hook in KINDS
    ],
    *[
        registers(
            f"{hook}-factory-raises",
            hook,
            {
                FLUSH: "register(FlushStrategy('mine', make))",
                PROCESSORS: "register('mine', (9001,), make)",
            }.get(hook, "register('mine', make)"),
            "'mine' cannot be made",
            "KeyError: 'not today'",
            before="def make(*arguments): raise KeyError('not today')",
        )
        for hook in KINDS
        if hook != FILTERS  # one may refuse an expression as it likes, and is asked with the first subscription
    ],
    # Methods.
    made(
        "dispatch-misspelt",
        DISPATCHERS,
        "D()",
        "did you mean its 'dispach'",
        before="class D:\n  def dispach(self, b): ...",
    ),
    made("dispatch-no-function", DISPATCHERS, "D()", "dispatch(batch)", "found 5", before="class D:\n  dispatch = 5"),
    made(
        "dispatch-arity",
        DISPATCHERS,
        "D()",
        "dispatch(batch)",
        "D.dispatch()",
        before="class D:\n  def dispatch(self): ...",
    ),
    made(
        "dispatch-two-arguments",
        DISPATCHERS,
        "D()",
        "missing",
        before="class D:\n  def dispatch(self, batch, more): ...",
    ),
    made("dispatch-async", DISPATCHERS, "D()", "async def", before="class D:\n  async def dispatch(self, batch): ..."),
    made("dispatch-yields", DISPATCHERS, "D()", "'yield'", before="class D:\n  def dispatch(self, batch): yield 1"),
    made("close-arity", DISPATCHERS, "D()", "close()", before="class D(Dispatcher):\n  def close(self, force): ..."),
    made("committed-number", DISPATCHERS, "D()", "committed()", before="class D(Dispatcher):\n  committed = 17"),
    made("dispatcher-coroutine", DISPATCHERS, "make()", "a coroutine", before="async def make(): return Dispatcher()"),
    made("dispatcher-list", DISPATCHERS, "[Dispatcher()]", "list", "dispatch(batch)"),
    made(
        "flush-no-submit", FLUSH, "F(it)", "'submit'", before="class F(Flush):\n  submit = property(lambda s: s.nope)"
    ),
    made("flush-submit-async", FLUSH, "F(it)", "submit(", before="class F(Flush):\n  async def submit(self, end): ..."),
    made(
        "flush-submit-arity",
        FLUSH,
        "F(it)",
        "submit(end_offset_bytes)",
        before="class F(Flush):\n  def submit(self): ...",
    ),
    made("flush-start-arity", FLUSH, "F(it)", "start()", before="class F(Flush):\n  def start(self, log): ..."),
    made(
        "pool-buffers-method",
        POOLS,
        "P()",
        "'available_buffers'",
        before="class P(Pool):\n  def available_buffers(self): ...",
    ),
    made("pool-no-give-back", POOLS, "P()", "'give_back'", before="class P:\n  def borrow(self): ..."),
    made("index-no-query", INDEX, "B()", "'query'", before="class B:\n  def dispatch(self, batch): ..."),
    made(
        "index-query-arity", INDEX, "B()", "query(topic, key", before="class B(Builder):\n  def query(self, key): ..."
    ),
    made(
        "index-put-async",
        INDEX,
        "B()",
        "dispatch(batch)",
        before="class B(Builder):\n  async def dispatch(self, batch): ...",
    ),
    made(
        "filter-needs-is-method",
        FILTERS,
        "F()",
        "'needs_properties'",
        before="class F(Filter):\n  def needs_properties(self): ...",
    ),
    made(
        "filter-no-properties",
        FILTERS,
        "F()",
        "'matches_properties'",
        before="class F:\n  def matches_tags_code(self, c): ...",
    ),
    made(
        "filter-async",
        FILTERS,
        "F()",
        "async def",
        before="class F(Filter):\n  async def matches_properties(self, p): ...",
    ),
    made(
        "authenticate-async",
        AUTH,
        "W()",
        "async def",
        before="class W(Who):\n  async def authenticate(self, caller): ...",
    ),
    made(
        "authenticate-arity",
        AUTH,
        "W()",
        "authenticate(caller)",
        before="class W:\n  def authenticate(self, a, b): ...",
    ),
    made(
        "handlers-lack-a-code",
        PROCESSORS,
        "P(it)",
        "9001",
        before="class P(Processor):\n  def handlers(self): return {1: print}",
    ),
    made(
        "handlers-list",
        PROCESSORS,
        "P(it)",
        "mapping",
        before="class P(Processor):\n  def handlers(self): return [print]",
    ),
    made(
        "handlers-attribute",
        PROCESSORS,
        "P(it)",
        "handlers()",
        before="class P(Processor):\n  handlers = {9001: print}",
    ),
    made("handlers-raise", PROCESSORS, "P(it)", "ZeroDiv", before="class P(Processor):\n  def handlers(self): 1 / 0"),
    made(
        "handler-number",
        PROCESSORS,
        "P(it)",
        "handler(request)",
        before="class P(Processor):\n  def handlers(self): return {9001: 5}",
    ),
    made("handler-arity", PROCESSORS, "P(it)", "(request)", before="class P(Processor):\n  def answer(self): ..."),
    made(
        "handler-async-arity",
        PROCESSORS,
        "P(it)",
        "handler(request)",
        before="class P(Processor):\n  async def answer(self): ...",
    ),
    made(
        "process-async", PROCESSORS, "P()", "process(batch)", before="class P:\n  async def process(self, batch): ..."
    ),
    made(
        "processor-of-the-broker",
        PROCESSORS,
        "P(it)",
        "AttributeError: expected context.settings, context.clock or context.api.topics",
        "found context.topics",
        before="class P(Processor):\n  def __init__(self, broker): self.topics = broker.topics",
    ),
    made("process-arity", PROCESSORS, "P()", "process(batch)", before="class P:\n  def process(self): ..."),
    made(
        "listener-misspelt", LISTENERS, "L()", "none of", before="class L:\n  def on_channel_conect(self, channel): ..."
    ),
    made(
        "rpc-hook-async",
        RPC_HOOKS,
        "H()",
        "async def",
        before="class H:\n  async def do_before_request(self, request): ...",
    ),
    made(
        "rpc-hook-arity", RPC_HOOKS, "H()", "do_after_", before="class H:\n  def do_after_response(self, request): ..."
    ),
    registers(
        "at-nowhere", DEFAULTS, "register('mine', lambda context: Default(), at='client')", "expected at", "'client'"
    ),
    # What is handed to register.
    registers(
        "no-factory", DISPATCHERS, "register('mine')", "expected register(name, factory", "found register('mine')"
    ),
    registers("swapped", DISPATCHERS, "register(Dispatcher, 'mine')", "expected", "found 'mine'"),
    registers("name-number", DISPATCHERS, "register(7, Dispatcher)", "expected such a str", "found 7"),
    registers("name-with-slash", DISPATCHERS, "register('a/b', Dispatcher)", "letters", "found 'a/b'"),
    registers("name-empty", FILTERS, "register('', lambda context: lambda e, c: Filter())", "letters", "found ''"),
    registers("twice", DISPATCHERS, "[register('mine', Dispatcher) for _ in 'ab']", "'mine' twice"),
    registers("instance-as-factory", DISPATCHERS, "register('mine', Dispatcher())", "expected", "factory(context)"),
    registers(
        "essential-text", DISPATCHERS, "register('mine', Dispatcher, essential='yes')", "expected essential", "'yes'"
    ),
    registers(
        "unknown-argument", DISPATCHERS, "register('mine', Dispatcher, order=3)", "expected register(", "order=3"
    ),
    registers("strategy-bare", FLUSH, "register('mine', Flush)", "expected register(strategy)", "found register("),
    registers("strategy-class", FLUSH, "register(FlushStrategy)", "expected register(FlushStrategy(name, factory))"),
    registers("strategy-model", FLUSH, "register(FlushStrategy('mine', Flush, dict))", "attrs class", "expected"),
    registers(
        "strategy-flag", FLUSH, "register(FlushStrategy('mine', Flush, synchronous='yes'))", "expected synchronous"
    ),
    registers("codes-number", PROCESSORS, "register('mine', 9001, Processor)", "expected a tuple of int", "found 9001"),
    registers("codes-text", PROCESSORS, "register('mine', ('9001',), Processor)", "expected a tuple of int", "'9001'"),
    registers("codes-empty", PROCESSORS, "register('mine', (), Processor)", "expected a tuple of int", "found ()"),
    registers("codes-large", PROCESSORS, "register('mine', (70_000,), Processor)", "expected", "70000"),
    registers("codes-twice", PROCESSORS, "register('mine', (1, 1), Processor)", "each once", "(1, 1)"),
    registers(
        "pool-none", PROCESSORS, "register('mine', (9001,), Processor, pool=None)", "expected pool", "found None"
    ),
    registers("pool-number", PROCESSORS, "register('mine', (9001,), Processor, pool=4)", "expected pool", "found 4"),
    registers(
        "threads-text", PROCESSORS, "register('mine', (9001,), Processor, pool='x', threads='4')", "expected threads"
    ),
    registers(
        "threads-zero", PROCESSORS, "register('mine', (9001,), Processor, pool='x', threads=0)", "from 1", "found 0"
    ),
    registers("threads-of-the-loop", PROCESSORS, "register('mine', (9001,), Processor, threads=4)", "expected threads"),
    registers(
        "process-in-threads",
        PROCESSORS,
        "register('mine', (9001,), lambda context: P(), pool='x')",
        "expected handlers()",
        before="class P:\n  def process(self, batch): ...",
    ),
    registers("model-dict", SECTIONS, "register('mine', {})", "attrs class", "found {}"),
    registers("model-plain-class", SECTIONS, "register('mine', Dispatcher)", "attrs class", "Dispatcher"),
    registers(
        "section-of-the-broker",
        SECTIONS,
        "register('store', attrs.make_class('M', []))",
        "FlintMQ's configuration has a section 'store'",
    ),
    registers("command-text", COMMANDS, "register('mine', 'hello')", "expected a click.Command", "found 'hello'"),
    registers("command-function", COMMANDS, "register('mine', print)", "expected a click.Command", "@click.command()"),
    registers(
        "command-group", COMMANDS, "register('mine', click.Group())", "expected a click.Command", before="import click"
    ),
    registers(
        "command-help",
        COMMANDS,
        "register('mine', click.Command('a'), help=5)",
        "expected help",
        "found 5",
        before="import click",
    ),
    registers(
        "command-taken",
        COMMANDS,
        "register('run', click.Command('a'))",
        "expected a new name",
        "flintmq's commands",
        before="import click",
    ),
    # The hooks.
    hook_is("hook-without-register", DISPATCHERS, "(self): ...", "expected", "'register'"),
    hook_is("hook-misspelt-argument", INDEX, "(self, regsiter): ...", "did you mean 'register'"),
    hook_is("hook-two-arguments", POOLS, "(self, register, broker): ...", "expected"),
    hook_is("hook-of-stars", AUTH, "(self, *arguments): ...", "expected", "'register'"),
    hook_is("hook-async", FILTERS, "async (self, register): ...", "async def", "expected"),
    hook_is("hook-yields", FILTERS, "(self, register): yield", "expected", "'yield'"),
    hook_is("hook-returns", DISPATCHERS, "(self, register): return [Dispatcher]", "expected None", "register("),
    hook_is("hook-raises", PROCESSORS, "(self, register): 1 / 0", "raised in", "ZeroDiv"),
    hook_is("hook-exits", PROCESSORS, "(self, register): exit(3)", "raised in", "SystemExit"),
    hook_is(
        "hook-unmarked", DISPATCHERS, "def flintmq_dispatchers(self, register): ...", "not marked with", "hookimpl"
    ),
    hook_is("hook-list", DISPATCHERS, "flintmq_dispatchers = [Dispatcher]", "expected a function", "found [<class"),
    hook_is("hook-unknown", "flintmq_dispatcher", "(self, register): ...", "did you mean 'flintmq_dispatchers'"),
    hook_is("life-async", "flintmq_broker_starting", "async (self, api): ...", "async def", "expected"),
    hook_is("life-misspelt", "flintmq_broker_starting", "(self, apo): ...", "did you mean 'api'"),
    hook_is("life-too-much", "flintmq_broker_fenced", "(self, api, reason, when): ...", "expected"),
    Mistake("plugin-raises", "", "raise OSError('no such disk')", ("raised while it was loaded", "no such disk")),
    Mistake("plugin-exits", "", "import sys; sys.exit(0)", ("raised while it was loaded", "SystemExit")),
    Mistake(
        "plugin-needs-arguments",
        "",
        "class plugin:\n    def __init__(self, settings): ...",
        ("raised while it was made", "settings"),
    ),
    Mistake("plugin-has-no-hook", "", "class plugin: ...", ("implements no hook", "hookimpl")),
    Mistake("plugin-is-none", "", "plugin = None", ("implements no hook",)),
]


def written(folder: Path, mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """The configuration's file and the plugin's name."""
    module = f"mistake_{mistake.name.replace('-', '_')}"
    (folder / f"{module}.py").write_text(HEAD + mistake.body)
    monkeypatch.syspath_prepend(str(folder))
    file = folder / "broker.yaml"
    file.write_text(f"plugins:\n  - {module}:plugin\n{mistake.yaml or CHOSEN.get(mistake.hook, '')}\n")
    return file, f"{module}.plugin"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_each_error_of_a_plugin_is_reported_by_config_check_and_at_the_start_of_a_broker(
    mistake: Mistake, cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the check and by the start alike, in one line: the plugin, the hook, what was expected and what was found."""
    file, name = written(tmp_path, mistake, monkeypatch)
    checked = cli("config", "check", file, *[word for setting in SMALL for word in ("--set", setting)])
    assert checked.code == 2, checked
    (line,) = checked.err.splitlines()
    assert line.startswith("flintmq: error: ")
    for text in (name, mistake.hook, *mistake.says):
        assert text in line, line
    assert checked.out == ""
    if mistake.hook == COMMANDS and mistake.name in ("command-taken", "command-annotation"):
        return  # a broker has no commands
    loaded = flintmq.load_config(file, [*SMALL, f"store.path={tmp_path / 'store'}"], {})
    with pytest.raises(PluginError) as raised, flintmq.Broker(loaded):
        pass
    assert f"flintmq: error: {' '.join(str(raised.value).split())}" == line
    assert not (tmp_path / "store" / "lock").exists() or not (tmp_path / "store" / "abort").exists()


def test_a_start_with_an_invalid_plugin_prints_one_line_and_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a user sees who starts a broker with such a plugin: no trace, no process that waits for something."""
    mistake = next(one for one in MISTAKES if one.name == "dispatch-async")
    file, name = written(tmp_path, mistake, monkeypatch)
    settings = [word for setting in (*SMALL, f"store.path={tmp_path / 'store'}") for word in ("--set", setting)]
    ended = subprocess.run(
        [sys.executable, "-m", "flintmq", "run", "-c", str(file), "--log-level", "warning", *settings],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert line.startswith("flintmq: error: ")
    assert name in line
    assert "async def" in line


def test_at_least_60_plugin_errors_are_tested() -> None:
    assert len(MISTAKES) >= 60
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)
