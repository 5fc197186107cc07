"""The kernel is what every plugin goes through: it must name the guilty, keep the rule for equal names, and isolate."""

from __future__ import annotations

import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.config.sections.models import PluginRef
from flintmq.core.errors import PluginError
from flintmq.core.kernel.hookspecs import FlintSpecs, PoolContext, hookimpl
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.core.kernel.ports import FlushStrategy
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.programs.broker.filter_factories import filter_factory
from flintmq.programs.broker.loading import section_for
from flintmq.programs.broker.processors_in_force import processors_of
from flintmq.programs.broker.store_assembly import check_dispatchers

MakeModule = Callable[[str], str]

OWNER = PluginOrigin("somebody", PluginSource.ENTRY_POINT, "somebody 1.0")


@pytest.fixture
def make_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[MakeModule]:
    """Writes a plugin's module and returns its name; modules are forgotten after the test."""
    made: list[str] = []

    def make(body: str) -> str:
        name = f"plugin_{abs(hash(request.node.nodeid)) % 10**9}_{len(made)}"
        source = "from flintmq.core.kernel.hookspecs import hookimpl\n" + textwrap.dedent(body)
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        made.append(name)
        return name

    monkeypatch.syspath_prepend(str(tmp_path))
    yield make
    for name in made:
        sys.modules.pop(name, None)


def assemble(*targets: str, builtins: Sequence[object] = BUILTIN_PLUGINS, **options: Any) -> Kernel:
    """A kernel without installed plugins; targets stand in broker.yaml from line 10 on."""
    refs = [PluginRef(target, line=10 + number) for number, target in enumerate(targets)]
    return Kernel.assemble(refs, builtins, use_entry_points=False, config_path="broker.yaml", **options)


class BuiltIn:
    """A built-in plugin made for a test."""

    plugin_name = "house"

    @hookimpl
    def flintmq_dispatchers(self, register: Any) -> None:
        register("one", lambda _context: types.SimpleNamespace(dispatch=print), essential=True)
        register("two", lambda _context: types.SimpleNamespace(dispatch=print))

    @hookimpl
    def flintmq_request_processors(self, register: Any) -> None:
        register("send", (10, 310), lambda context: "house", pool="send")


REPLACES_TWO = """
@hookimpl
def flintmq_dispatchers(register):
    register("two", lambda context: "third party")
"""


def test_built_in_plugins_are_loaded_without_configuration() -> None:
    kernel = assemble()
    assert kernel.registries.dispatchers.pick("consume_queue").essential
    assert kernel.registries.dispatchers.names() == ("consume_queue", "filter_bitmap", "spark_feed")
    check_dispatchers(kernel.registries, ["index", "flint/consume_queue"])
    with pytest.raises(PluginError, match="'dispatchers' lacks 'consume_queue'"):
        check_dispatchers(kernel.registries, ["index"])
    assert kernel.registries.flush_strategies.pick("group_commit").value.synchronous
    assert kernel.registries.flush_strategies.pick("commit_real_time").value.uses_pool
    assert {entry.name for entry in kernel.registries.flush_strategies.all()} == {
        "group_commit",
        "flush_real_time",
        "commit_real_time",
    }
    pool = kernel.registries.pools.pick("default")
    context = kernel.context(pool, PoolContext, buffers=1, size_bytes=4096)
    assert kernel.make(pool, pool.value, context).available_buffers == 1
    assert kernel.registries.index_builders.pick("index").owner.built_in
    assert filter_factory(kernel, "TAG")("*", frozenset()).matches_tags_code(7)


def test_the_dispatcher_of_a_plugin_replaces_the_built_in_dispatcher_of_the_same_name(make_module: MakeModule) -> None:
    """One line of YAML replaces a part of the broker: that is what the framework is for."""
    module = make_module(REPLACES_TWO + "\nplugin = __import__('sys').modules[__name__]\n")
    kernel = assemble(f"{module}:plugin", builtins=[BuiltIn()])
    assert kernel.registries.dispatchers.pick("two").value(None) == "third party"  # type: ignore[arg-type, comparison-overlap]
    assert kernel.registries.dispatchers.pick("house/two").owner.built_in
    assert kernel.registries.dispatchers.pick(f"{module}:plugin/two").owner.name == f"{module}.plugin"


def test_a_dispatcher_that_replaces_a_required_dispatcher_is_itself_required(make_module: MakeModule) -> None:
    """Its author may forget to say so; the store would acknowledge messages nobody can consume."""
    module = make_module(
        "class P:\n    @hookimpl\n    def flintmq_dispatchers(self, register): register('one', print)\n"
    )
    kernel = assemble(f"{module}:P", builtins=[BuiltIn()])
    assert kernel.registries.dispatchers.pick("one").essential
    assert kernel.registries.dispatchers.pick(f"{module}.P/one").essential
    assert not kernel.registries.dispatchers.pick("two").essential
    with pytest.raises(PluginError, match="lacks 'one'"):
        check_dispatchers(kernel.registries, ["two"])


def test_dispatchers_with_the_same_name_in_two_plugins_require_a_qualified_name(make_module: MakeModule) -> None:
    body = (
        "class Plugin:\n    @hookimpl\n    def flintmq_dispatchers(self, register):\n        register('two', print)\n"
    )
    first, second = make_module(body), make_module(body)
    kernel = assemble(f"{first}:Plugin", f"{second}:Plugin", builtins=[BuiltIn()])
    with pytest.raises(PluginError, match=rf"'two' is registered by .*{first}.* and .*{second}.*'dispatchers'"):
        kernel.registries.dispatchers.pick("two")
    assert kernel.registries.dispatchers.pick(f"{second}.Plugin/two").owner.name == f"{second}.Plugin"


def test_the_error_about_a_misspelled_dispatcher_or_flush_strategy_suggests_the_correct_name() -> None:
    kernel = assemble()
    with pytest.raises(PluginError, match=r"'consum_queue' \(dispatchers\); did you mean 'consume_queue'\?"):
        kernel.registries.dispatchers.pick("consum_queue")
    with pytest.raises(PluginError, match=r"'group_comit' \(flush.strategy\); did you mean 'group_commit'"):
        kernel.registries.flush_strategies.pick("group_comit")
    with pytest.raises(PluginError, match=r"'zzz' \(flush.pool\); there are: default"):
        kernel.registries.pools.pick("zzz")
    with pytest.raises(PluginError, match=r"did you mean 'flush/group_commit'"):
        kernel.registries.flush_strategies.pick("flosh/group_commit")
    with pytest.raises(PluginError, match=r"no authenticator is named 'acll' \(authenticators\); did you mean 'acl'\?"):
        kernel.registries.authenticators.pick("acll")


@pytest.mark.parametrize(
    ("body", "target", "message"),
    [
        ("", "{module}:plugin", r"broker.yaml:10: plugin '.*': '.*' has no 'plugin'"),
        ("plugins = 1", "{module}:plugin", r"has no 'plugin'; did you mean 'plugins'\?"),
        ("", "{module}_none:x", r"broker.yaml:10: plugin .*: there is no module '.*_none'"),
        ("import no_such_module_at_all", "{module}:x", r"needs a module that is missing: .*no_such_module_at_all"),
        (
            "raise RuntimeError('at import')",
            "{module}:x",
            r"broker.yaml:10: .*while it was loaded: RuntimeError: at import",
        ),
        (
            "class P:\n    def __init__(self): raise OSError('no')",
            "{module}:P",
            r"raised while it was made: OSError: no",
        ),
        ("class P: pass", "{module}:P", r"broker.yaml:10: plugin .*: implements no hook"),
        (
            "class P:\n    def flintmq_dispatchers(self, register): pass",
            "{module}:P",
            r"'flintmq_dispatchers' is not marked with @flintmq.core.kernel.hookspecs.hookimpl",
        ),
        (
            "class P:\n    @hookimpl\n    def flintmq_dispatcher(self, register): pass",
            "{module}:P",
            r"broker.yaml:10: .*there is no hook 'flintmq_dispatcher'; did you mean 'flintmq_dispatchers'\?",
        ),
        (
            "class P:\n    @hookimpl\n    def flintmq_dispatchers(self, registry): pass",
            "{module}:P",
            r"broker.yaml:10: .*expected flintmq_dispatchers\(register\), .*\(registry\); did you mean 'register'",
        ),
        (
            "class P:\n    @hookimpl(wrapper=True)\n    def flintmq_dispatchers(self, register):\n        yield",
            "{module}:P",
            r"'flintmq_dispatchers' cannot be wrapped",
        ),
        (
            "class P:\n    @hookimpl\n    def flintmq_dispatchers(self, register): 1 / 0",
            "{module}:P",
            r"broker.yaml:10: .*raised in flintmq_dispatchers: ZeroDivisionError",
        ),
        (
            "class P:\n    @hookimpl\n    def flintmq_dispatchers(self, register):\n"
            "        register('x', print)\n        register('x', print)",
            "{module}:P",
            r"broker.yaml:10: .*registers the dispatcher 'x' twice",
        ),
        (
            "class P:\n    @hookimpl\n    def flintmq_dispatchers(self, register): register('a/b', print)",
            "{module}:P",
            r"a dispatcher's name has letters",
        ),
        (
            "class P:\n    @hookimpl\n    def flintmq_dispatchers(self, register): register('x', 5)",
            "{module}:P",
            r"the dispatcher 'x' needs a callable: expected .*factory\(context\); found 5, of type int",
        ),
        (
            "class P:\n    @hookimpl\n    def flintmq_flush_services(self, register): register('x')",
            "{module}:P",
            r"a flush strategy is a FlushStrategy, not str",
        ),
        (
            "class P:\n    @hookimpl\n    def flintmq_config_sections(self, register): register('x', dict)",
            "{module}:P",
            r"the config section 'x': expected an attrs class",
        ),
        (
            "class P:\n    @hookimpl\n    def flintmq_request_processors(self, register): register('x', (1, 1), print)",
            "{module}:P",
            r"the request processor 'x': expected a tuple of int from 0 to 32767, each once",
        ),
    ],
)
def test_the_error_about_a_bad_plugin_names_the_plugin_and_its_line(
    make_module: MakeModule, body: str, target: str, message: str
) -> None:
    """Whoever writes a plugin or a line of YAML must be told which one is wrong, and how."""
    module = make_module(body)
    with pytest.raises(PluginError, match=message):
        assemble(target.format(module=module))


def test_unknown_optional_hooks_are_ignored(make_module: MakeModule) -> None:
    """A plugin may implement a hook of a later version when it says so."""
    body = """
    class P:
        @hookimpl(optionalhook=True)
        def flintmq_hook_of_tomorrow(self, whatever): ...
        @hookimpl
        def flintmq_broker_starting(self): ...
    """
    assert assemble(f"{make_module(body)}:P").describe()[-1].hooks == ("flintmq_broker_starting",)


def test_naming_a_plugin_twice_in_the_configuration_is_refused(make_module: MakeModule) -> None:
    module = make_module("class P:\n    @hookimpl\n    def flintmq_broker_starting(self): ...")
    with pytest.raises(PluginError, match=r"broker.yaml:11: .* names this plugin twice"):
        assemble(f"{module}:P", f"{module}:P")


def test_two_built_in_dispatchers_with_the_same_name_are_refused() -> None:
    other = type("Other", (BuiltIn,), {"plugin_name": "other"})()
    with pytest.raises(PluginError, match=r"plugin 'other' \(built-in\): the dispatcher 'one' is registered by"):
        assemble(builtins=[BuiltIn(), other])


def test_disabled_plugins_are_listed_but_not_loaded(make_module: MakeModule, caplog: pytest.LogCaptureFixture) -> None:
    """Switching off must not even import: a broken plugin is switched off to get going again."""
    module = make_module("raise RuntimeError('must not be imported')")
    kernel = assemble(f"{module}:P", disabled=[f"{module}:P", "filters", "never-heard-of"])
    enabled = {info.name: info.enabled for info in kernel.describe()}
    assert {name for name, is_enabled in enabled.items() if not is_enabled} == {"filters", f"{module}.P"}
    assert enabled["flush"]
    with pytest.raises(PluginError, match="no message filter is named 'TAG'"):
        filter_factory(kernel, "TAG")
    assert "never-heard-of" in caplog.text


def test_the_description_of_a_plugin_has_its_hooks_and_its_registrations_and_its_last_error(
    make_module: MakeModule,
) -> None:
    body = """
    class P:
        @hookimpl
        def flintmq_dispatchers(self, register): register("mine", print)
        @hookimpl
        def flintmq_broker_fenced(self): raise OSError("not today")
    """
    module = make_module(body)
    kernel = assemble(f"{module}:P")
    kernel.fenced(object(), "EIO")
    info = kernel.describe()[-1]
    assert info.name == f"{module}.P"
    assert str(info.origin) == f"broker.yaml:10: plugin '{module}.P'"
    assert set(info.hooks) == {"flintmq_dispatchers", "flintmq_broker_fenced"}
    assert info.registered == ("dispatcher mine",)
    assert info.errors == 1
    assert info.last_error == "flintmq_broker_fenced: OSError: not today"


def test_each_request_code_belongs_to_exactly_one_processor(make_module: MakeModule) -> None:
    body = """
    class P:
        @hookimpl
        def flintmq_request_processors(self, register):
            register("fast_send", (310, 900), lambda context: "third", pool="send")
    """
    kernel = assemble(f"{make_module(body)}:P", builtins=[BuiltIn()])
    codes = {entry.name: entry.value.codes for entry in processors_of(kernel.registries, "broker")}
    assert codes == {"send": (10,), "fast_send": (310, 900)}
    other = body.replace("fast_send", "other_send")
    with pytest.raises(PluginError, match=r"'other_send': expected codes .*; found 310, which .*fast_send"):
        processors_of(
            assemble(f"{make_module(body)}:P", f"{make_module(other)}:P", builtins=[BuiltIn()]).registries, "broker"
        )


def test_a_dispatcher_gets_the_config_section_of_its_plugin(make_module: MakeModule) -> None:
    """A dispatcher is given its own plugin's section and nobody else's."""
    body = """
    import attrs
    @attrs.frozen
    class Model: ...
    class P:
        @hookimpl
        def flintmq_dispatchers(self, register): register("audit", print)
        @hookimpl
        def flintmq_config_sections(self, register): register("{section}", Model)
    """
    module = make_module(body.replace("{section}", "audit_settings"))
    kernel = assemble(f"{module}:P")
    audit = kernel.registries.dispatchers.pick("audit")
    assert section_for(kernel.registries, audit) == "audit_settings"
    assert section_for(kernel.registries, kernel.registries.index_builders.pick("index")) is None
    assert attrs.has(kernel.registries.config_sections.all()[0].value)


class Life:
    """Notes the broker's life."""

    def __init__(self, name: str, calls: list[str], *, fails: bool = False) -> None:
        self.plugin_name = name
        self._calls = calls
        self._fails = fails

    def _note(self, what: str) -> None:
        self._calls.append(f"{self.plugin_name} {what}")
        if self._fails:
            raise ValueError(f"{self.plugin_name} cannot")

    @hookimpl
    def flintmq_broker_starting(self, api: object) -> None:
        self._note(f"starting {api}")

    @hookimpl
    def flintmq_broker_fenced(self, reason: str) -> None:
        self._note(f"fenced {reason}")


def test_plugins_are_called_in_the_order_of_loading() -> None:
    calls: list[str] = []
    kernel = assemble(builtins=[Life("a", calls), Life("b", calls)])
    kernel.starting("broker")
    kernel.fenced("broker", "EIO")
    assert calls == [
        "a starting broker",
        "b starting broker",
        "a fenced EIO",
        "b fenced EIO",
    ]


def test_a_plugin_that_raises_in_a_broker_hook_does_not_stop_the_broker(
    make_module: MakeModule, caplog: pytest.LogCaptureFixture
) -> None:
    body = """
    class P:
        @hookimpl
        def flintmq_broker_starting(self): raise ValueError("third")
        @hookimpl
        def flintmq_broker_fenced(self): raise ValueError("third")
    """
    calls: list[str] = []
    kernel = assemble(f"{make_module(body)}:P", builtins=[Life("a", calls)])
    kernel.starting("broker")
    kernel.fenced("broker", "EIO")
    assert kernel.describe()[-1].errors == 2
    assert "raised in flintmq_broker_starting" in caplog.text


def test_the_error_about_a_dispatcher_factory_that_raises_names_the_plugin_and_its_config_line(
    make_module: MakeModule,
) -> None:
    """The author of the plugin must learn where the factory failed, as with hooks."""
    body = """
    class P:
        @hookimpl
        def flintmq_dispatchers(self, register): register("audit", lambda context: 1 / 0)
    """
    kernel = assemble(f"{make_module(body)}:P")
    found = kernel.registries.dispatchers.pick("audit")
    with pytest.raises(
        PluginError, match=r"broker.yaml:10: .*flintmq_dispatchers: 'audit' cannot be made: ZeroDivision"
    ):
        kernel.make(found, found.value, None)


def test_an_error_of_a_built_in_plugin_stops_a_starting_broker_but_not_a_running_broker() -> None:
    """A broker without delivery of delayed messages, say, must not pass for a whole one."""
    kernel = assemble(builtins=[Life("a", [], fails=True)])
    with pytest.raises(ValueError, match="a cannot"):
        kernel.starting("broker")
    kernel.fenced("broker", "EIO")
    assert kernel.describe()[0].errors == 2


def test_the_kernel_calls_every_declared_plugin_hook_and_no_other_hook() -> None:
    """A spec that is documented but never called would be a promise nobody keeps."""
    specs = {name for name in vars(FlintSpecs) if name.startswith("flintmq_")}
    registering = {name for name in specs if not name.startswith("flintmq_broker_")}
    assert set(Kernel().registries.registrars()) == registering
    source = Path(sys.modules[Kernel.__module__].__file__ or "").read_text(encoding="utf-8")
    assert specs - registering == set(re.findall(r'_tell\("(flintmq_broker_\w+)"', source))


def test_a_flush_strategy_registered_by_a_plugin_keeps_its_settings_class(make_module: MakeModule) -> None:
    body = """
    import attrs
    from flintmq.core.kernel.ports import FlushStrategy
    @attrs.frozen
    class Settings:
        pause_ms: int = 3
    class P:
        @hookimpl
        def flintmq_flush_services(self, register):
            register(FlushStrategy("mine", print, Settings, synchronous=True))
    """
    strategy: FlushStrategy = assemble(f"{make_module(body)}:P").registries.flush_strategies.pick("mine").value
    assert strategy.settings_model is not None
    assert strategy.settings_model().pause_ms == 3
