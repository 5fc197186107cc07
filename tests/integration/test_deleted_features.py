"""A feature is a folder: without it, and without its line in the list of built-ins, brokers and tools start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

from flintmq.config.loading.schema import KEYS
from flintmq.core.kernel.kernel import Kernel
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.programs.broker.processors_in_force import processors_of
from flintmq.tests.support.effort import first

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "acl": ("acl.enable=true", "acl.list_accounts=true", "nameserver.acl_enable=true"),
    "alarms": ("alarms.lag_messages=7",),
    "console": ("console.enable=true", "console.port=7"),
    "delay": ("delay.levels=1s 2s", "delay.enable=false"),
    "filters": ("pull.property_filter=true", "pull.calc_filter_bitmap=true", "pull.expect_consumer_num=7"),
    "metrics": ("metrics.enable=true", "metrics.otlp_endpoint=http://127.0.0.1:1/", "metrics.port=7"),
    "registration": ("namesrv.addresses=127.0.0.1:1", "namesrv.register_interval_ms=7s"),
    "replication": ("broker.role=sync_master", "ha.enable=true", "ha.max_slaves=7"),
    "retention": ("store.file_reserved_hours=7", "store.keep_for_groups=G", "store.delete_when=07"),
    "retry": (),
    "spark_feed": ("spark_feed.landing.path=/nowhere", "dispatchers=consume_queue,index,spark_feed"),
    "timer": ("delay.timer_enable=false", "delay.timer_max_delay_ms=7s"),
    "tracing": ("tracing.otlp_endpoint=http://127.0.0.1:1/", "tracing.queue_max=77"),
    "transactions": ("transactions.reject=true", "transactions.check_max=7"),
}
"""Every feature with settings that ask for it."""
RECOVER: Final = ("recover", "--store", "{store}")
BENCHES: Final = {
    "registration": ("flush", "--rounds", "1", "--seconds", "0.1", "--warmup", "0", "--strategies", "group_commit"),
}
"""The bench of a feature; of others it is :data:`RECOVER`, which starts a name server and a broker that registers there."""
STAY: Final = frozenset({"upkeep", "flush", "dispatchers"})
"""Built-in plugins without which a broker stores nothing."""


def without(feature: str, folder: Path) -> Path:
    """Make a package of links to this one's parts, but for the folder of a feature and its lines in the list of built-ins.

    The class in the list is the only thing that the list imports from the folder.
    """
    package = folder / "flintmq"
    plugins = package / "plugins"
    plugins.mkdir(parents=True)
    for entry in ROOT.iterdir():
        if entry.suffix == ".py" or ((entry / "__init__.py").exists() and entry != ROOT / "plugins"):
            (package / entry.name).symlink_to(entry)
    for entry in (ROOT / "plugins").iterdir():
        if entry.stem != feature and entry.name not in ("builtin.py", "__pycache__"):
            (plugins / entry.name).symlink_to(entry)
    text = (ROOT / "plugins/builtin.py").read_text()
    (taken,) = re.findall(rf"^from flintmq\.plugins\.{feature}[.\w]* import (\w+)\n", text, re.MULTILINE)
    kept = [line for line in text.splitlines() if f" import {taken}" not in line and line != f"    {taken}(),"]
    (plugins / "builtin.py").write_text("\n".join(kept) + "\n")
    return folder


def codes_of(feature: str) -> list[int]:
    """Return the request codes that a feature answers."""
    entries = processors_of(Kernel.assemble((), BUILTIN_PLUGINS, use_entry_points=False).registries, "broker")
    return sorted(
        declared.code for entry in entries if entry.owner.name == feature for declared in entry.value.declarations
    )


def test_every_optional_feature_has_a_test_that_deletes_its_folder() -> None:
    """A new feature has its place in the table, and a setting names no other."""
    assert set(SETTINGS) == {getattr(plugin, "plugin_name", "") for plugin in BUILTIN_PLUGINS} - STAY
    assert {feature for feature, settings in SETTINGS.items() if settings} == {key.feature for key in KEYS.values()} - {
        ""
    }


def test_the_documentation_lists_all_settings_that_belong_to_each_optional_feature() -> None:
    """A name server asks for its own setting of access control; all others are a broker's."""
    rows = re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", (ROOT / "docs/features.md").read_text(), re.MULTILINE)
    patterns = {
        feature: [one for one in re.findall("`(.+?)`", text) if "nameserver" not in one] for feature, text in rows
    }
    found = {
        feature: {name for name in KEYS if any(fnmatch(name, one) for one in wanted)}
        for feature, wanted in patterns.items()
    }
    assert found == {feature: {name for name, key in KEYS.items() if key.feature == feature} for feature in SETTINGS}


@pytest.mark.parametrize("feature", first(["delay"], sorted(SETTINGS)))
def test_brokers_and_tools_start_without_the_folder_of_an_optional_feature(feature: str, tmp_path: Path) -> None:
    """Its request codes are unsupported, and its settings are refused with what to do."""
    package = without(feature, tmp_path / "package")
    script = Path(__file__).with_name("deleted_feature.py")
    asked = json.dumps([codes_of(feature), SETTINGS[feature], BENCHES.get(feature, RECOVER)])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), feature, asked],
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    wrong = json.loads(done.stdout.splitlines()[-1])
    assert not wrong, "\n\n".join(wrong)
