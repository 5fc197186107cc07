"""What a plugin's author is promised about configuration, tried as a user does: with modules on the path and lines of YAML."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import flintmq
from flintmq.config import LoadedConfig, load_config
from flintmq.config.errors import ConfigError
from flintmq.core.errors import PluginError
from flintmq.programs.cli.main import app

SMALL = """
listen: {port: 0, vip: false}
store: {commit_log_file_bytes: 1048576}
"""
_NUMBERS = itertools.count()

Write = Callable[[str], str]
Configured = Callable[[str], LoadedConfig]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module of a plugin's author and returns its name; forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def write(body: str) -> str:
        name = f"authors_{next(_NUMBERS)}"
        head = (
            "import attrs\n"
            "from flintmq.core.kernel.hookspecs import hookimpl\n"
            "from flintmq.core.kernel.ports import FlushStrategy\n"
        )
        (tmp_path / f"{name}.py").write_text(head + textwrap.dedent(body), encoding="utf-8")
        made.append(name)
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def configured(tmp_path: Path) -> Configured:
    """A configuration as a file has it."""

    def load(text: str) -> LoadedConfig:
        path = tmp_path / "broker.yaml"
        path.write_text(SMALL + textwrap.dedent(text), encoding="utf-8")
        return load_config(path, [f"store.path={tmp_path / 'store'}"], {})

    return load


def refused(loaded: LoadedConfig, tmp_path: Path) -> str:
    """What the start says, and that ``config check`` says the same."""
    with pytest.raises((ConfigError, PluginError)) as caught:
        flintmq.Broker(loaded).__enter__()
    checked = CliRunner().invoke(app, ["config", "check", str(tmp_path / "broker.yaml")])
    said = f"{checked.output}{checked.exception or ''}"
    assert checked.exit_code != 0
    assert str(caught.value).partition("\n")[0] in " ".join(said.split())
    return str(caught.value)


EVERYTHING = """
    from flintmq.testing.store import ImmediateFlush
    from flintmq.plugins.filters.plugin import TagFilter
    from flintmq.flush.transient_store_pool import AnonymousBufferPool

    seen = {}

    @attrs.frozen
    class Settings:
        colour: str = "none"

    class Dispatcher:
        def dispatch(self, batch): pass

    class Index:
        def dispatch(self, batch): pass
        def query(self, topic, key, max_num, begin_timestamp_ms, end_timestamp_ms): return [], 0, 0
        def flush(self): pass
        def close(self): pass

    class Processor:
        def handlers(self): return {20001: lambda request: None}

    class Authenticator:
        def authenticate(self, caller): pass

    def note(what, settings, made):
        seen[what] = settings
        return made

    @hookimpl
    def flintmq_config_sections(register): register("paint", Settings)

    @hookimpl
    def flintmq_dispatchers(register):
        register("paint_dispatcher", lambda context: note("dispatcher", context.settings, Dispatcher()))

    @hookimpl
    def flintmq_index_builders(register):
        register("paint_index", lambda context: note("index", context.settings, Index()))

    def paint_pool(context):
        return note("pool", context.settings, AnonymousBufferPool(context.buffers, context.size_bytes))

    @hookimpl
    def flintmq_transient_store_pools(register): register("paint_pool", paint_pool)

    def paint_flush(context): return note("flush", context.settings, ImmediateFlush(context))

    @hookimpl
    def flintmq_flush_services(register): register(FlushStrategy("paint_flush", paint_flush, uses_pool=True))

    def paint_filter(context):
        return lambda expression, codes: note("filter", context.settings, TagFilter(frozenset()))

    @hookimpl
    def flintmq_message_filters(register): register("PAINT", paint_filter)

    @hookimpl
    def flintmq_request_processors(register):
        register("paint", (20001,), lambda context: note("processor", context.settings, Processor()))

    @hookimpl
    def flintmq_authenticators(register):
        register("paint_door", lambda context: note("authenticator", context.settings, Authenticator()))
"""

USED = """
plugins: [{module}]
dispatchers: [consume_queue, index, paint_dispatcher]
index: {{builder: paint_index}}
flush: {{strategy: paint_flush, pool: paint_pool}}
authenticators: [paint_door]
"""


def test_every_object_that_a_plugin_registers_gets_the_settings_of_the_plugin(
    module: Write, configured: Configured
) -> None:
    """One section of the plugin's own, and each kind of thing is given it."""
    name = module(EVERYTHING)
    with flintmq.Broker(configured(USED.format(module=name) + "paint: {colour: red}\n")):
        seen: dict[str, Any] = dict(sys.modules[name].seen)
    kinds = {"dispatcher", "index", "pool", "flush", "filter", "processor", "authenticator"}
    assert {kind: settings.colour for kind, settings in seen.items()} == dict.fromkeys(kinds, "red")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("paint: {coluor: red}", "broker.yaml:10: unknown key 'paint.coluor'; did you mean 'paint.colour'?"),
        ("paint:\n  coluor: red", "broker.yaml:11: unknown key 'paint.coluor'; did you mean 'paint.colour'?"),
        ("paint: {colour: [red]}", "'paint.colour' takes one value"),
        ("pant: {colour: red}", "unknown key 'pant': no plugin has such a section; did you mean 'paint'?"),
    ],
)
@pytest.mark.parametrize("used", [True, False])
def test_an_error_in_the_settings_section_of_a_plugin_stops_the_start_of_the_broker(
    module: Write, configured: Configured, tmp_path: Path, section: str, said: str, used: bool
) -> None:
    """Whether the plugin is used or only loaded: the key, the section, the line, and what was probably meant."""
    text = USED.format(module=module(EVERYTHING)) if used else f"plugins: [{module(EVERYTHING)}]\n\n\n\n\n\n"
    assert said in refused(configured(text + section + "\n"), tmp_path)


def test_an_error_in_the_settings_of_an_unused_flush_strategy_stops_the_start_of_the_broker(
    module: Write, configured: Configured, tmp_path: Path
) -> None:
    """Tomorrow it is chosen."""
    name = module(
        """
        @attrs.frozen
        class Settings:
            depth: int = 1

        @hookimpl
        def flintmq_flush_services(register): register(FlushStrategy("deep", print_nothing, Settings))

        def print_nothing(context): pass
        """
    )
    text = f"plugins: [{name}]\nflush:\n  deep: {{dpeth: 3}}\n"
    assert "unknown key 'flush.deep.dpeth'; did you mean 'flush.deep.depth'?" in refused(configured(text), tmp_path)
    unread = module(
        """
        @hookimpl
        def flintmq_flush_services(register): register(FlushStrategy("flat", lambda context: None))
        """
    )
    text = f"plugins: [{unread}]\nflush: {{flat: {{depth: 3}}}}\n"
    assert "unknown key 'flush.flat': no plugin has such a section" in refused(configured(text), tmp_path)


TWINS = {
    "flintmq_flush_services": (
        """
        from flintmq.testing.store import ImmediateFlush
        @attrs.frozen
        class Settings:
            depth: int = 1
        def make(context):
            used.append(context.settings.depth)
            return ImmediateFlush(context)
        @hookimpl
        def flintmq_flush_services(register): register(FlushStrategy("twin", make, Settings))
        """,
        "flush: {{strategy: {choice}, twin: {{depth: 7}}}}",
        "twin",
    ),
    "flintmq_transient_store_pools": (
        """
        from flintmq.flush.transient_store_pool import AnonymousBufferPool
        def make(context):
            used.append(1)
            return AnonymousBufferPool(context.buffers, context.size_bytes)
        @hookimpl
        def flintmq_transient_store_pools(register): register("twin", make)
        """,
        "flush: {{strategy: commit_real_time, pool: {choice}}}",
        "twin",
    ),
    "flintmq_dispatchers": (
        """
        class Dispatcher:
            def dispatch(self, batch): pass
        def make(context):
            used.append(1)
            return Dispatcher()
        @hookimpl
        def flintmq_dispatchers(register): register("twin", make)
        """,
        "dispatchers: [consume_queue, index, {choice}]",
        "twin",
    ),
    "flintmq_index_builders": (
        """
        from flintmq.dispatchers.index.index_service import make_index
        def make(context):
            used.append(1)
            return make_index(context.folder)
        @hookimpl
        def flintmq_index_builders(register): register("twin", make)
        """,
        "index: {{builder: {choice}}}",
        "twin",
    ),
    "flintmq_authenticators": (
        """
        class Door:
            def authenticate(self, caller): pass
        def make(context):
            used.append(1)
            return Door()
        @hookimpl
        def flintmq_authenticators(register): register("twin", make)
        """,
        "authenticators: [{choice}]",
        "twin",
    ),
}


@pytest.mark.parametrize("kind", TWINS)
def test_the_error_about_an_ambiguous_plugin_name_suggests_a_working_name_for_each_plugin(
    kind: str, module: Write, configured: Configured, tmp_path: Path
) -> None:
    """The error is read, and what it says is written: as it stands there, and as ``plugins:`` names them."""
    body, choice, name = TWINS[kind]
    one, other = (module("used = []\n" + textwrap.dedent(body)) for _ in range(2))
    both = f"plugins: [{one}, {other}]\n"
    error = refused(configured(both + choice.format(choice=name)), tmp_path)
    advice = error.rpartition(": write ")[2].split("'")
    assert (advice[1], advice[3]) == (f"{one}/{name}", f"{other}/{name}")
    for chosen, used in ((advice[1], one), (advice[3], other)):
        with flintmq.Broker(configured(both + choice.format(choice=chosen))) as broker:
            broker.put([flintmq.Message("T", b"")])
        assert [bool(sys.modules[module_name].used) for module_name in (one, other)] == [
            module_name == used for module_name in (one, other)
        ]
        checked = CliRunner().invoke(app, ["config", "check", str(tmp_path / "broker.yaml")])
        assert checked.exit_code == 0, checked.output
        sys.modules[used].used.clear()
    with flintmq.Broker(configured(both + f"disabled_plugins: [{other}]\n" + choice.format(choice=name))):
        pass


@pytest.mark.parametrize(
    "body",
    [
        "@hookimpl\ndef flintmq_message_filters(register): register('TWIN', lambda context: lambda expression, codes: None)",
        "@attrs.frozen\nclass S:\n    a: int = 1\n@hookimpl\ndef flintmq_config_sections(register): register('twin', S)",
        "class P:\n    def handlers(self): return {20001: lambda request: None}\n"
        "@hookimpl\ndef flintmq_request_processors(register): register(__name__, (20001,), lambda context: P())",
    ],
    ids=["filter", "section", "request code"],
)
def test_a_broker_starts_after_one_of_two_conflicting_plugins_is_disabled(
    module: Write, configured: Configured, tmp_path: Path, body: str
) -> None:
    """The names in the error are those that ``disabled_plugins`` takes."""
    body = body.replace(
        "codes: None)", "codes: __import__('flintmq.plugins.filters.plugin', fromlist='x').TagFilter(codes))"
    )
    one, other = module(body), module(body)
    error = refused(configured(f"plugins: [{one}, {other}]\n"), tmp_path)
    advice = error.rpartition(": list ")[2].split("'")
    assert (advice[1], advice[3], advice[5]) == (one, other, "disabled_plugins")
    with flintmq.Broker(configured(f"plugins: [{one}, {other}]\ndisabled_plugins: [{advice[1]}]\n")):
        pass


def test_the_settings_section_of_a_disabled_plugin_is_refused_with_the_reason(
    module: Write, configured: Configured, tmp_path: Path
) -> None:
    """Whoever follows the advice and leaves the section reads why nobody knows it any more."""
    name = module(EVERYTHING)
    text = f"plugins: [{name}]\ndisabled_plugins: [{name}]\npaint: {{colour: red}}\n"
    assert f"'disabled_plugins' lists ('{name}') go with it" in refused(configured(text), tmp_path)


def test_a_module_with_plugin_hooks_is_loaded_by_its_name(
    module: Write, configured: Configured, tmp_path: Path
) -> None:
    """The example of the manual is a module; an object in one and a class are plugins as before."""
    body = """
        class Filters:
            @hookimpl
            def flintmq_message_filters(self, register):
                from flintmq.plugins.filters.plugin import tag_filter
                register("MODULE", lambda context: tag_filter)

        plugin = Filters()
    """
    plain = module(
        """
        @hookimpl
        def flintmq_message_filters(register):
            from flintmq.plugins.filters.plugin import tag_filter
            register("MODULE", lambda context: tag_filter)
        """
    )
    for target in (plain, f"{module(body)}:plugin", f"{module(body)}:Filters"):
        with flintmq.Broker(configured(f"plugins: [{target}]\n")) as broker:
            assert "MODULE" in broker.state.filters
    bare = module(body)
    said = refused(configured(f"plugins: [{bare}]\n"), tmp_path)
    assert (
        f"implements no hook; its functions need @flintmq.core.kernel.hookspecs.hookimpl; did you mean '{bare}:Filters'?"
        in said
    )
    said = refused(configured(f"plugins: [{bare}.plugin]\n"), tmp_path)
    assert f"'plugin' is not a module; did you mean '{bare}:plugin'?" in said
