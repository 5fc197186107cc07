"""The examples are what plugin authors start from: they must install, be found, be chosen by one line, and pass their tests."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import flintmq
from flintmq.config.sections.models import PluginRef
from flintmq.core.kernel.hookspecs import DispatcherContext
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_info import PluginSource
from flintmq.core.store.opened_store import recover
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.programs.broker.isolated_dispatcher import IsolatedDispatcher
from flintmq.programs.broker.loading import section_for
from flintmq.programs.broker.processors import ProcessorsPlugin
from flintmq.programs.broker.processors_in_force import processors_of
from flintmq.testing.clock import ManualClock
from flintmq.testing.dispatcher_kit import sample_batch
from flintmq.testing.flush_kit import check_flush_service
from flintmq.testing.store import store_spec
from flintmq.tests.support.effort import first

ROOT = Path(str(flintmq.__file__)).resolve().parent
EXAMPLES = ROOT / "examples"
NAMES = (
    "flintmq-audit-dispatcher",
    "flintmq-adaptive-flush",
    "flintmq-direct-flush",
    "flintmq-keep-all",
    "flintmq-line-listener",
    "flintmq-huge-page-pool",
    "flintmq-plain-processors",
    "flintmq-request-watch",
    "flintmq-sqlite-store",
    "flintmq-topic-quota",
)

PACKAGES = (
    "flintmq_audit",
    "flintmq_adaptive_flush",
    "flintmq_direct_flush",
    "flintmq_keep_all",
    "flintmq_line_listener",
    "flintmq_huge_page_pool",
    "flintmq_plain_processors",
    "flintmq_request_watch",
    "flintmq_sqlite_store",
    "flintmq_topic_quota",
)

pytestmark = pytest.mark.skipif(
    not EXAMPLES.is_dir(), reason="the examples are part of the repository, not of the wheel"
)


def unpack(name: str, target: Path) -> None:
    """Installs as an installer does, without one: the package, and the metadata that announces its entry points."""
    project = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text("utf-8"))["project"]
    shutil.copytree(
        EXAMPLES / name / "src", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
    )
    info = target / f"{name.replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    lines = [
        f"[{group}]\n" + "\n".join(f"{key} = {value}" for key, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """All examples on the import path, forgotten afterwards."""
    target = tmp_path / "site"
    target.mkdir()
    for name in NAMES:
        unpack(name, target)
    monkeypatch.syspath_prepend(str(target))
    yield target
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]


@pytest.mark.usefixtures("installed")
def test_all_example_plugins_are_found_by_their_entry_points() -> None:
    kernel = Kernel.assemble((), (*BUILTIN_PLUGINS, ProcessorsPlugin()))
    found = {info.name: info for info in kernel.describe() if info.origin.source is PluginSource.ENTRY_POINT}
    assert found["audit"].origin.place == "flintmq-audit-dispatcher 1.0.0"
    assert set(found["audit"].registered) == {"dispatcher audit", "config section audit"}
    assert found["adaptive-flush"].registered == ("flush strategy adaptive_group_commit",)
    assert found["direct-flush"].registered == ("flush strategy direct_flush",)
    assert found["keep_all"].registered == ("service retention", "service replication")
    assert set(found["line_listener"].registered) == {"config section line_listener", "service line_listener"}
    assert found["huge_page_pool"].registered == ("transient store pool huge_pages",)
    assert set(found["plain_processors"].registered) == {"request processor plain_send", "request processor plain_pull"}
    assert set(found["topic_quota"].registered) == {
        "service topic_quota",
        "intake step topic_quota",
        "config section topic_quota",
        "command topic-quota",
    }
    taken = {code: one.owner.name for one in processors_of(kernel.registries, "broker") for code in one.value.codes}
    assert {taken[code] for code in (10, 310, 320, 11, 361)} == {"plain_processors"}
    assert set(found["sqlite-store"].registered) == {"dispatcher consume_queue", "index builder sqlite"}
    assert kernel.registries.dispatchers.pick("audit").name == "audit"


def test_the_audit_dispatcher_example_is_loaded_and_called_by_the_broker(installed: Path) -> None:
    """From its section of the configuration to its lines: nothing of it is known to the broker beforehand."""
    kernel = Kernel.assemble((), BUILTIN_PLUGINS, disabled=["adaptive-flush"])
    registered = kernel.registries.dispatchers.pick("audit")
    assert not registered.essential
    section = section_for(kernel.registries, registered)
    assert section == "audit"
    (model,) = [entry.value for entry in kernel.registries.config_sections.all() if entry.name == section]
    path = installed.parent / "audit.jsonl"
    settings = model(path=str(path), max_bytes=8192)
    with contextlib.closing(recover(store_spec(installed.parent / "store"))) as store:
        context = DispatcherContext(store=store, folder=store.folder, settings=settings, clock=ManualClock())
        isolated = IsolatedDispatcher(
            registered.value(context), kernel.part(registered), essential=registered.essential
        )
        isolated.dispatch(sample_batch(20))
        isolated.close()
    assert sum(json.loads(line)["messages"] for line in path.read_text("utf-8").splitlines()) == 20


@pytest.mark.usefixtures("installed")
def test_the_adaptive_flush_example_passes_the_conformance_checks_for_flush_strategies() -> None:
    strategy = Kernel.assemble((), BUILTIN_PLUGINS).registries.flush_strategies.pick("adaptive_group_commit").value
    assert strategy.synchronous
    assert strategy.settings_model is not None
    settings = strategy.settings_model(sync_flush_timeout_ms=100, interval_ms=2)
    check_flush_service(strategy.factory, settings=settings, synchronous=True, timeout_s=0.1)


@pytest.mark.usefixtures("installed")
def test_a_broker_can_store_a_message_with_the_example_plugin_direct_flush(tmp_path: Path) -> None:
    """It needs the transient store pool, which the broker makes from the strategy's own settings."""
    settings = [
        f"store.path={tmp_path / 'store'}",
        "store.commit_log_file_bytes=1MiB",
        "listen.port=0",
        "listen.vip=false",
    ]
    more = ["flush.strategy=direct_flush", "flush.direct_flush.mode=dsync", "flush.direct_flush.pool_size=2"]
    with flintmq.Broker(flintmq.load_config(None, [*settings, *more], {})) as broker:
        (put,) = broker.put([flintmq.Message("T", b"through")])
        assert b"through" in (tmp_path / "store" / "commitlog" / f"{0:020}").read_bytes()
        assert put.queue_offset == 0


@pytest.mark.usefixtures("installed")
def test_the_sqlite_example_plugin_finds_every_message_by_key_after_the_broker_was_killed(tmp_path: Path) -> None:
    """Messages are read, found by key and numbered on after a start, and the built-in folders stay empty."""

    def broker(name: str) -> flintmq.Broker:
        more = ["listen.port=0", "listen.vip=false", "topics.default_queue_nums=1", "index.builder=sqlite"]
        more += ["store.commit_log_file_bytes=1MiB", "store.max_message_bytes=64KiB"]  # it is copied, byte for byte
        return flintmq.Broker(flintmq.load_config(None, [f"store.path={tmp_path / name}", *more], {}))

    with broker("store") as first:
        for number in range(8):
            first.put([flintmq.Message("T", b"%d" % number, keys=f"k{number}")])
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
    assert (tmp_path / "killed" / "abort").exists()
    with broker("killed") as again:
        store = again.state.store
        sent = [again.put([flintmq.Message("T", b"%d" % number, keys=f"k{number}")])[0] for number in range(8, 12)]
        offsets = [store.reader.message_store_time("T", put.queue_id, put.queue_offset) for put in sent]
        assert all(time_ms > 0 for time_ms in offsets)
        assert sum(store.reader.max_queue_offset("T", queue_id) for queue_id in range(4)) == 12
        for number in range(12):
            found, _time_ms, _offset = store.reader.query_message("T", f"k{number}", 32, 0, 2**62)
            assert len(found) == 1, number
    for folder in ("consumequeue", "index"):
        assert not any((tmp_path / "killed" / folder).glob("*"))


def test_a_plugin_listed_in_yaml_replaces_a_built_in_flush_strategy(installed: Path) -> None:
    """``plugins:`` names a module on the path, and its 'group_commit' is the one the broker gets."""
    (installed / "house_rules.py").write_text(
        "from flintmq.core.kernel.hookspecs import hookimpl\n"
        "from flintmq.core.kernel.ports import FlushStrategy\n"
        "from flintmq_adaptive_flush.service import AdaptiveGroupCommit, AdaptiveGroupCommitSection\n"
        "class HouseRules:\n"
        "    @hookimpl\n"
        "    def flintmq_flush_services(self, register):\n"
        "        register(FlushStrategy('group_commit', AdaptiveGroupCommit, AdaptiveGroupCommitSection, True))\n",
        encoding="utf-8",
    )
    try:
        kernel = Kernel.assemble([PluginRef("house_rules:HouseRules", line=3)], BUILTIN_PLUGINS, config_path="b.yaml")
    finally:
        sys.modules.pop("house_rules", None)
    assert kernel.registries.flush_strategies.pick("group_commit").owner.place == "b.yaml:3"
    assert kernel.registries.flush_strategies.pick("flush/group_commit").owner.built_in


def test_a_plugin_that_is_installed_and_listed_in_the_configuration_is_loaded_once(installed: Path) -> None:
    """Whoever names it in the configuration as well, to be sure, must not be told that it exists twice."""
    (installed / "twice.py").write_text(
        "from flintmq.core.kernel.hookspecs import hookimpl\n"
        "class Twice:\n"
        "    @hookimpl\n"
        "    def flintmq_dispatchers(self, register): register('twice', print)\n",
        encoding="utf-8",
    )
    info = installed / "twice-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twice\nVersion: 2.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[flintmq]\ntwice = twice:Twice\n", encoding="utf-8")
    try:
        kernel = Kernel.assemble([PluginRef("twice:Twice", line=1)], BUILTIN_PLUGINS)
    finally:
        sys.modules.pop("twice", None)
    assert kernel.registries.dispatchers.pick("twice").owner.place == "twice 2.0"


@pytest.mark.parametrize("name", first(["flintmq-keep-all", "flintmq-line-listener", "flintmq-sqlite-store"], NAMES))
def test_tests_of_the_example_plugins_pass(name: str, installed: Path) -> None:
    """An author copies the tests too."""
    program = (
        "import importlib.util, sys, pytest\n"
        f"spec = importlib.util.spec_from_file_location('flintmq', {str(ROOT / '__init__.py')!r}, "
        f"submodule_search_locations=[{str(ROOT)!r}])\n"
        "module = importlib.util.module_from_spec(spec); sys.modules['flintmq'] = module; spec.loader.exec_module(module)\n"
        "sys.exit(pytest.main(['-q', '--import-mode=importlib', '-p', 'no:cacheprovider', '-c', '/dev/null', sys.argv[1]]))"
    )
    tests = shutil.copytree(EXAMPLES / name / "tests", installed.parent / "tests")
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(tests)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_pip_installs_the_entry_points_of_the_example_plugins(name: str, tmp_path: Path) -> None:
    """What ``pip install .`` makes is what the other tests put on the path by hand."""
    if importlib.util.find_spec("pip") is None or importlib.util.find_spec("setuptools") is None:
        pytest.skip("pip or setuptools is not installed here")
    major = int(version("setuptools").split(".")[0])
    if major < 71 and importlib.util.find_spec("wheel") is None:
        pytest.skip(f"setuptools {major} builds no wheel without the wheel package")
    source = shutil.copytree(EXAMPLES / name, tmp_path / name)
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--target", str(target), str(source)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    by_hand = tmp_path / "by-hand"
    by_hand.mkdir()
    unpack(name, by_hand)

    def modules(folder: Path) -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob("*.py")}

    assert modules(target) == modules(by_hand)
    (announced,) = target.glob("*.dist-info/entry_points.txt")
    (expected,) = by_hand.glob("*.dist-info/entry_points.txt")
    assert announced.read_text("utf-8").split() == expected.read_text("utf-8").split()
