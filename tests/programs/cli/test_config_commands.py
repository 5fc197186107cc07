"""``config`` and ``plugins``: what is in force and why, before anything is started."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import flintmq

from .conftest import RunCommand

WITH_SECTION = """
import attrs
from flintmq.core.kernel.hookspecs import hookimpl

@attrs.frozen
class Settings:
    level: int = 1

class plugin:
    @hookimpl
    def flintmq_config_sections(self, register):
        register("sectioned", Settings)
"""


def test_config_show_names_the_origin_of_each_value(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "Why is it so?" is answered by the place each value comes from."""
    file = tmp_path / "b.yaml"
    file.write_text("broker:\n  name: b\n")
    monkeypatch.setenv("FLINTMQ_BROKER__ID", "3")
    rows = cli("config", "show", "-c", file, "--set", "flushDiskType=SYNC_FLUSH", "--json").json
    by_key = {row["key"]: row for row in rows}
    assert by_key["broker.name"]["origin"] == f"{file}:2"
    assert by_key["broker.id"]["origin"] == "environment FLINTMQ_BROKER__ID"
    assert by_key["flush.strategy"]["origin"] == "command line"
    assert by_key["flush.strategy"]["value"] == "group_commit"
    assert by_key["listen.port"]["origin"] == "default"
    assert by_key["listen.port"]["rocketmq"] == "listenPort"
    changed = cli("config", "show", "-c", file, "--changed", "--json").json
    assert {row["key"] for row in changed} == {"broker.name", "broker.id"}
    assert "broker.name" in cli("config", "show", "-c", file, "--changed").out


def test_the_yaml_output_of_config_show_can_be_loaded_as_a_configuration_file(cli: RunCommand, tmp_path: Path) -> None:
    """What is shown can be kept."""
    text = cli("config", "show", "--set", "store.path=/x", "--set", "listen.port=5", "--yaml", "--changed").out
    (tmp_path / "b.yaml").write_text(text)
    loaded = flintmq.load_config(tmp_path / "b.yaml", environ={})
    assert (str(loaded.config.store.path), loaded.config.listen.port) == ("/x", 5)


def test_the_yaml_output_of_config_show_contains_the_setting_name_of_every_omitted_secret(
    cli: RunCommand, tmp_path: Path
) -> None:
    """Whoever keeps the YAML must know what is missing in it before a broker says so."""
    file, copy = tmp_path / "b.yaml", tmp_path / "copy.yaml"
    account = "{accessKey: somebody, secretKey: hunter2hunter2}"
    file.write_text(
        f"acl: {{enable: true, accounts: [{account}]}}\nha: {{secret: 0123456789abcdef}}\n"
        "shop: {level: 5, api_token: hunter2, far: [{'a b': on, password: hunter2}]}\n"
    )
    for changed in ((), ("--changed",)):
        shown = cli("config", "show", "-c", file, "--yaml", *changed)
        assert "hunter2" not in shown.out
        for key in ("acl.accounts", "ha.secret", "shop.api_token", "shop.far[0].password"):
            assert f"#   {key}\n" in shown.out
            assert key in shown.err
        copy.write_text(shown.out)
        secrets = f"acl.accounts: [{account}]\nha.secret: 0123456789abcdef\n"
        copy.write_text(f"{shown.out}{secrets}shop.api_token: hunter2\n")
        first, second = (flintmq.load_config(one, environ={}) for one in (file, copy))
        assert second.config == first.config
        assert 'far: [{"a b": "on"}]' in shown.out
    assert cli("config", "show", "--yaml").err == ""


def test_config_show_as_yaml_includes_the_configuration_sections_of_plugins(
    cli: RunCommand, tmp_path: Path, plugin_module: Callable[[str, str], str]
) -> None:
    """A copy without them would be another configuration, of a plugin at its defaults."""
    target = plugin_module("cli_shown_plugin", WITH_SECTION)
    file, copy = tmp_path / "b.yaml", tmp_path / "copy.yaml"
    file.write_text(f"plugins: ['{target}']\nsectioned: {{level: 5}}\nflush: {{strategy: group_commit}}\n")
    copy.write_text(cli("config", "show", "-c", file, "--yaml", "--changed", "--set", "flush.mine.pause=1s").out)
    shown = {row["key"]: row["value"] for row in cli("config", "show", "-c", copy, "--changed", "--json").json}
    assert (shown["sectioned.level"], shown["flush.mine.pause"]) == ("5", "1s")
    assert shown["flush.strategy"] == "group_commit"


def test_config_import_converts_a_broker_conf(cli: RunCommand, tmp_path: Path) -> None:
    """A broker.conf moves over in one command; what stays behind is said, with the reason."""
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=b\nlistenPort=1234\nabortFile=x\n")
    outcome = cli("config", "import", conf)
    assert outcome.code == 0
    assert "port: 1234" in outcome.out
    assert outcome.err == "dropped abortFile=x: it lies in store.path\n"
    out = tmp_path / "b.yaml"
    assert cli("config", "import", conf, "-o", out).out == ""
    checked = cli("config", "check", out, "--json").json
    assert checked["ok"] is True
    assert checked["settings"] == 2
    assert cli("config", "import", tmp_path / "none.conf").code == 2


def test_config_commands_accept_a_broker_conf(cli: RunCommand, tmp_path: Path) -> None:
    """Shown, checked and taken for the list of plugins without a translation; lines that change nothing are warnings."""
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=b\nsendMessageThreadPoolNums=16\nlistenPort=1234\n")
    warning = (
        f"flintmq: warning: {conf}:2: sendMessageThreadPoolNums changes nothing: one event loop serves all requests"
    )
    shown = cli("config", "show", "-c", conf, "--json")
    by_key = {row["key"]: row for row in shown.json}
    assert (by_key["listen.port"]["value"], by_key["listen.port"]["origin"]) == ("1234", f"{conf}:3")
    assert shown.err.startswith(warning)
    checked = cli("config", "check", conf, "--json")
    assert (checked.json["ok"], checked.json["settings"]) == (True, 2)
    assert [(entry["name"], entry["line"]) for entry in checked.json["ignored"]] == [("sendMessageThreadPoolNums", 2)]
    assert checked.err.startswith(warning)
    assert cli("plugins", "-c", conf).code == 0
    conf.write_text("flushDiskType=SYNC\n")
    refused = cli("config", "check", conf)
    assert (refused.code, f"{conf}:1: 'flushDiskType' must be" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("store:\n  pth: x\n", ":2: unknown key 'store.pth'; did you mean 'store.path'?"),
        ("flush:\n  strategy: nope\n", "no flush strategy is named 'nope'"),
        ("dispatchers: [consume_queue, nope]\n", "no dispatcher is named 'nope'"),
        ("dispatchers: [index]\n", "'dispatchers' lacks 'consume_queue'"),
        ("plugins: [no.such:thing]\n", ":1: plugin 'no.such.thing'"),
        ("nobodys:\n  key: 1\n", "no plugin has such a section"),
    ],
)
def test_config_check_finds_errors_in_a_configuration(cli: RunCommand, tmp_path: Path, text: str, said: str) -> None:
    """Whatever would keep a broker from starting is found without starting it."""
    file = tmp_path / "b.yaml"
    file.write_text(text)
    outcome = cli("config", "check", file)
    assert outcome.code == 2
    assert said in outcome.err


def test_config_check_finds_errors_in_configuration_sections_of_plugins(
    cli: RunCommand, tmp_path: Path, plugin_module: Callable[[str, str], str]
) -> None:
    """A plugin's own settings are settings: a mistake in them is found too."""
    target = plugin_module("cli_sectioned_plugin", WITH_SECTION)
    file = tmp_path / "b.yaml"
    file.write_text(f"plugins: ['{target}']\nsectioned:\n  level: 5\n")
    assert cli("config", "check", file).code == 0
    file.write_text(f"plugins: ['{target}']\nsectioned:\n  levle: 5\n")
    outcome = cli("config", "check", file)
    assert outcome.code == 2
    assert f"{file}:3" in outcome.err


def test_the_plugins_command_lists_loaded_plugins_and_what_each_plugin_registers(
    cli: RunCommand, tmp_path: Path, plugin_module: Callable[[str, str], str]
) -> None:
    """What is loaded, from where, and what it brought."""
    target = plugin_module("cli_listed_plugin", WITH_SECTION)
    file = tmp_path / "b.yaml"
    file.write_text(f"plugins: ['{target}']\n")
    rows = {row["name"]: row for row in cli("plugins", "-c", file, "--json").json}
    assert "flush strategy group_commit" in rows["flush"]["registered"]
    assert rows["flush"]["source"] == "built-in"
    mine = rows["cli_listed_plugin.plugin"]
    assert mine["place"] == f"{file}:1"
    assert mine["hooks"] == ["flintmq_config_sections"]
    text = cli("plugins", "-c", file).out
    assert "cli_listed_plugin.plugin" in text
    assert "dispatcher consume_queue" in text


TRACED = """
from flintmq.core.kernel.hookspecs import hookimpl

class Counts:
    def dispatch(self, batch):
        pass

def make(context):
    if context.settings is None and FAILS:
        raise KeyError("no settings")
    return Counts()

FAILS = False

class Plugin:
    @hookimpl
    def flintmq_dispatchers(self, register):
        register("counts", make)

plugin = Plugin()
"""


def test_the_plugins_command_shows_which_plugin_hooks_a_starting_broker_calls(
    cli: RunCommand, tmp_path: Path, plugin_module: Callable[[str, str], str]
) -> None:
    """What each took and made; and when the start fails, what was called until then, the culprit last."""
    for name, fails in (("cli_traced_well", False), ("cli_traced_badly", True)):
        target = plugin_module(name, TRACED.replace("FAILS = False", f"FAILS = {fails}"))
        file = tmp_path / "b.yaml"
        file.write_text(f"plugins: ['{target}']\ndispatchers: [consume_queue, index, counts]\n")
        outcome = cli("plugins", "--trace", "-c", file, "--json")
        rows = [row for row in json.loads(outcome.out) if row["plugin"] == f"{name}.plugin"]
        told = {(row["hook"], row["what"]): row for row in rows}
        assert told["flintmq_dispatchers", "register"]["calls"] == 1
        made = told["flintmq_dispatchers", "make dispatcher 'counts'"]
        assert made["calls"] == 1
        assert outcome.code == (2 if fails else 0)
        assert made["errors"] == int(fails)
        assert made["outcome"] == ("raised KeyError: 'no settings'" if fails else "made a Counts")
        text = cli("plugins", "--trace", "-c", file).out
        assert made["outcome"] in text
        assert "built-in plugins:" in text


def test_the_plugins_command_refuses_a_broker_address_unless_the_option_trace_is_given(cli: RunCommand) -> None:
    outcome = cli("plugins", "-b", "127.0.0.1:1")
    assert (outcome.code, "--trace" in outcome.err) == (2, True)


def test_the_plugins_command_names_the_configuration_line_of_a_plugin_that_fails_to_load(
    cli: RunCommand, tmp_path: Path
) -> None:
    """The broker would refuse to start: so does the list, naming the line."""
    file = tmp_path / "b.yaml"
    file.write_text("plugins:\n  - a.b:c\n")
    outcome = cli("plugins", "-c", file)
    assert outcome.code == 2
    assert f"{file}:2" in outcome.err
