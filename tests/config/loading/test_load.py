"""Loading is where an operator's mistakes arrive: each must be named with its place and the name that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.config import BrokerConfig, ConfigError, LoadedConfig, PluginRef, load_config, load_text


def error_of(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_text(text, name="broker.yaml")
    return caught.value


def test_every_setting_of_an_empty_configuration_has_its_default_value() -> None:
    """The smallest configuration is none."""
    loaded = load_config(environ={})
    assert loaded.config == BrokerConfig()
    assert {origin.kind for origin in loaded.origins.values()} == {"default"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "broker:\n  name: a\nflush:\n  stratgy: x\n",
            "broker.yaml:4: unknown key 'flush.stratgy'; did you mean 'flush.strategy'?",
        ),
        (
            "enablePropertyFiltr: true",
            "broker.yaml:1: unknown key 'enablePropertyFiltr'; did you mean 'enablePropertyFilter'?",
        ),
        (
            "flush:\n  group_commit:\n    interval: 5",
            "broker.yaml:3: unknown key 'flush.group_commit.interval'; did you mean 'flush.group_commit.interval_ms'?",
        ),
        ("pull:\n  brokerName: x", "broker.yaml:2: unknown key 'pull.brokerName'; did you mean 'broker.name'?"),
        ("dispatcher: [index]", "broker.yaml:1: unknown key 'dispatcher'; did you mean 'dispatchers'?"),
        ("store.pth: x", "broker.yaml:1: unknown key 'store.pth'; did you mean 'store.path'?"),
        ("zzzz: 1", "broker.yaml:1: unknown key 'zzzz'"),
        ("broker.name.x: 1", "broker.yaml:1: unknown key 'broker.name.x'; did you mean 'broker.name'?"),
        ("broker:\n  id: -1", "broker.yaml:2: 'broker.id' must be 0 to 9223372036854775807, not -1"),
        ("listen:\n\n  port: 70000", "broker.yaml:3: 'listen.port' must be 0 to 65535, not 70000"),
        ("listen:\n  vip: maybe", "broker.yaml:2: 'listen.vip' must be true or false, not 'maybe'"),
        ("listen:\n  loop: trio", "broker.yaml:2: 'listen.loop' must be one of auto, asyncio, uvloop, not 'trio'"),
        ("listen:\n  port: [1]", "broker.yaml:2: 'listen.port' takes one value, not a list"),
        ("listen: 10911", "broker.yaml:1: 'listen' is a section: it takes 'name: value' lines"),
        ("broker:\n  name:", "broker.yaml:2: 'broker.name' needs a value"),
        ("dispatchers: {a: 1}", "broker.yaml:1: 'dispatchers' takes a list, not a section"),
        ("plugins: [a..b]", "broker.yaml:1: 'plugins[0]' is not the name of a plugin: a plugin is named"),
        (
            "store:\n  max_message_bytes: 4M",
            "broker.yaml:2: 'store.max_message_bytes' must be a size such as 4096, 64KiB or 10MB, not '4M'",
        ),
        ("flushDiskType: SYNCFLUSH", "broker.yaml:1: 'flushDiskType' must be SYNC_FLUSH or ASYNC_FLUSH"),
        ("broker:\n  name: x\nlisten:\n  port: 2", "broker.yaml:4: 'listen.vip' needs a second port"),
        ("namesrv:\n  addresses: nohost", "broker.yaml:2: 'namesrv.addresses' must be a list of host:port"),
    ],
)
def test_the_text_of_a_configuration_error_contains_the_line_number_and_the_key(text: str, expected: str) -> None:
    """The message is all an operator has."""
    assert str(error_of(text)).startswith(expected)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("pull:\n  property_filter: true\nenablePropertyFilter: true", 3, "'pull.property_filter' (broker.yaml:2)"),
        ("pull.property_filter: true\npull:\n  property_filter: true", 3, "(broker.yaml:1)"),
        ("flush:\n  strategy: x\nflushDiskType: SYNC_FLUSH", 3, "'flush.strategy' (broker.yaml:2)"),
        ("flushIntervalCommitLog: 1\nflush:\n  commit_real_time:\n    flush_interval_ms: 2", 4, "(broker.yaml:1)"),
        ("my_plugin.a: 1\nmy_plugin:\n  a: 2", 3, "first at broker.yaml:1"),
    ],
)
def test_the_error_about_a_repeated_key_names_both_lines(text: str, line: int, words: str) -> None:
    """Which of two spellings counts must never depend on their order."""
    error = error_of(text)
    assert error.line == line
    assert words in error.message


def test_rocketmqs_setting_names_are_accepted_at_the_top_level_and_in_sections() -> None:
    """Operators move over with the names they know."""
    loaded = load_text(
        "enablePropertyFilter: true\n"
        "pull: {shortPollingTimeMills: 2s}\n"
        "namesrvAddr: a:9876;b:9876\n"
        "serverChannelMaxIdleTimeSeconds: 60\n"
        "nameserver: {listenPort: 9999, serverChannelMaxIdleTimeSeconds: 30}\n"
        "flush: {syncFlushTimeout: 1s}\n"
    )
    config = loaded.config
    assert config.pull.property_filter
    assert config.pull.short_polling_ms == 2_000
    assert config.namesrv.addresses == ("a:9876", "b:9876")
    assert config.listen.idle_timeout_ms == 60_000
    assert (config.nameserver.port, config.nameserver.idle_timeout_ms) == (9999, 30_000)
    assert config.listen.port == 10911
    assert config.flush.group_commit.sync_flush_timeout_ms == 1_000
    assert loaded.origins["pull.property_filter"].line == 1


def test_a_flush_interval_in_rocketmq_format_applies_with_or_without_a_transient_store_pool() -> None:
    """flushIntervalCommitLog counts with and without the transient store pool."""
    flush = load_text("flushIntervalCommitLog: 123\nflushCommitLogLeastPages: 7").config.flush
    assert (flush.flush_real_time.interval_ms, flush.commit_real_time.flush_interval_ms) == (123, 123)
    assert (flush.flush_real_time.least_pages, flush.commit_real_time.flush_least_pages) == (7, 7)
    narrow = load_text("flush: {flush_real_time: {flushIntervalCommitLog: 9}}").config.flush
    assert (narrow.flush_real_time.interval_ms, narrow.commit_real_time.flush_interval_ms) == (9, 500)


@pytest.mark.parametrize(
    ("lines", "strategy"),
    [
        (["flushDiskType=SYNC_FLUSH"], "group_commit"),
        (["flushDiskType=ASYNC_FLUSH"], "flush_real_time"),
        (["transientStorePoolEnable=true"], "commit_real_time"),
        (["transientStorePoolEnable=true", "flushDiskType=ASYNC_FLUSH"], "commit_real_time"),
        (["flushDiskType=SYNC_FLUSH", "transientStorePoolEnable=true"], "group_commit"),
        (["flush.flushDiskType=SYNC_FLUSH"], "group_commit"),
    ],
)
def test_the_rocketmq_settings_for_flushing_select_the_flush_strategy(lines: list[str], strategy: str) -> None:
    """Two switches there are one name here, whatever order they come in."""
    assert load_config(None, lines, {}).config.flush.strategy == strategy
    assert load_config(None, lines[::-1], {}).config.flush.strategy == strategy


def test_a_flush_setting_on_the_command_line_is_combined_with_flush_settings_in_the_config_file() -> None:
    """The pool switched on in the file still counts when the command line says ASYNC_FLUSH."""
    low = load_text("transientStorePoolEnable: true\nflushDiskType: SYNC_FLUSH")
    assert low.config.flush.strategy == "group_commit"
    assert low.with_overrides(["flushDiskType=ASYNC_FLUSH"]).config.flush.strategy == "commit_real_time"
    assert low.with_overrides(["flush.strategy=mine"]).config.flush.strategy == "mine"


def test_the_command_line_overrides_environment_variables_which_override_the_configuration_file(
    tmp_path: Path,
) -> None:
    """``config show`` answers "why is it this?"."""
    file = tmp_path / "broker.yaml"
    file.write_text("broker:\n  name: file\n  cluster: file\n  region: file\n")
    environ = {"FLINTMQ_BROKER__CLUSTER": "environment", "FLINTMQ_REGIONID": "environment", "OTHER": "x"}
    loaded = load_config(file, ["regionId=first", "regionId=line"], environ)
    assert (loaded.config.broker.name, loaded.config.broker.cluster, loaded.config.broker.region) == (
        "file",
        "environment",
        "line",
    )
    assert str(loaded.origins["broker.name"]) == f"{file}:2"
    assert str(loaded.origins["broker.cluster"]) == "environment FLINTMQ_BROKER__CLUSTER"
    assert loaded.origins["broker.region"].kind == "command line"
    assert loaded.origins["broker.id"].kind == "default"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[a, b]", ("a", "b")),
        ("[a,b]", ("a", "b")),
        (" [ a , 'b' ] ", ("a", "b")),
        ('["a", b]', ("a", "b")),
        ("[]", ()),
        ("a, b", ("a", "b")),
        ("[a]", ("a",)),
    ],
)
def test_the_yaml_list_syntax_is_accepted_in_files_environment_variables_and_on_the_command_line(
    text: str, names: tuple[str, ...]
) -> None:
    """``dispatchers: [a, b]`` is what files and ``config show`` have, so people type it after ``--set``, too; it once made
    the names ``[a`` and ``b]``."""
    for loaded in (
        load_config(overrides=[f"dispatchers={text}"], environ={}),
        load_config(environ={"FLINTMQ_DISPATCHERS": text}),
        load_config(environ={}).with_overrides([f"dispatchers={text}"]),
        load_text(f"dispatchers: {text.strip() if text.strip().startswith('[') else repr(text)}\n"),
    ):
        assert loaded.config.dispatchers == names


def test_lists_on_the_command_line_can_contain_ipv6_addresses_and_plugin_references() -> None:
    """Addresses have brackets of their own; numbers keep their units, and plugins their form."""
    loaded = load_config(
        overrides=["namesrv.addresses=[::1]:9876;[::2]:9876", "plugins=[shop.audit:plugin, shop.quota]"], environ={}
    )
    assert loaded.config.namesrv.addresses == ("[::1]:9876", "[::2]:9876")
    assert load_config(overrides=['namesrv.addresses=["[::1]:9876", "h:1"]'], environ={}).config.namesrv.addresses == (
        "[::1]:9876",
        "h:1",
    )
    assert loaded.config.plugins == (PluginRef("shop.audit:plugin"), PluginRef("shop.quota"))


@pytest.mark.parametrize("text", ["[a, {b]", "[a, &x b]", "[a, 'b]", "[[a], b]"])
def test_the_error_about_a_malformed_list_names_its_key(text: str) -> None:
    """The message of the YAML parser alone would speak of a file that nobody wrote."""
    with pytest.raises(ConfigError, match=r"command line.*'dispatchers"):
        load_config(overrides=[f"dispatchers={text}"], environ={})


def test_overriding_settings_of_a_loaded_configuration_creates_a_changed_copy() -> None:
    """The command line starts a second broker from the first one's configuration."""
    first = load_config(None, ["broker.name=a"], {})
    second = first.with_overrides(["broker.id=1"])
    assert (second.config.broker.name, second.config.broker.id, first.config.broker.id) == ("a", 1, 0)


def test_environment_variables_ignore_case_and_accept_units_and_lists() -> None:
    """Shells like upper case; RocketMQ's names have none to speak of."""
    config = load_config(
        environ={
            "FLINTMQ_STORE__COMMIT_LOG_FILE_BYTES": "64MiB",
            "FLINTMQ_enablePropertyFilter": "yes",
            "FLINTMQ_FLUSH__GROUP_COMMIT__SYNCFLUSHTIMEOUT": "2s",
            "FLINTMQ_DISPATCHERS": "index, consume_queue",
            "FLINTMQ_FLUSHDISKTYPE": "SYNC_FLUSH",
        }
    ).config
    assert config.store.commit_log_file_bytes == 64 * 1024**2
    assert config.pull.property_filter
    assert config.flush.group_commit.sync_flush_timeout_ms == 2_000
    assert config.flush.strategy == "group_commit"
    assert config.dispatchers == ("index", "consume_queue")


def test_environment_variables_of_container_platforms_are_ignored() -> None:
    """Container platforms define these for any service called flintmq."""
    environ = {
        "FLINTMQ_PORT": "tcp://10.0.0.1:10911",
        "FLINTMQ_SERVICE_HOST": "10.0.0.1",
        "FLINTMQ_": "",
        "FLINTMQX": "",
    }
    assert load_config(environ=environ).config == BrokerConfig()


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [
        ("FLINTMQ_FLUSH__STRATGY", "flush.strategy"),
        ("FLINTMQ_DISPATCHER", "dispatchers"),
        ("FLINTMQ_BROKERNAM", "brokerName"),
    ],
)
def test_errors_in_environment_variables_name_the_variable(variable: str, suggestion: str) -> None:
    """A misspelt variable must not be ignored in silence."""
    with pytest.raises(ConfigError) as caught:
        load_config(environ={variable: "x"})
    assert caught.value.suggestion == suggestion
    assert str(caught.value).startswith(f"environment {variable}: ")


@pytest.mark.parametrize("override", ["broker.name", "=x", "broker.nme=x", "listen.port=abc", "listen=1"])
def test_an_error_about_an_invalid_override_says_that_the_override_is_from_the_command_line(override: str) -> None:
    """The same messages as for a file, with their own place."""
    with pytest.raises(ConfigError, match=r"^command line: "):
        load_config(None, [override], {})


def test_two_spellings_of_a_key_on_the_command_line_are_refused() -> None:
    """Repeating an option is common; contradicting it under another name is a mistake."""
    with pytest.raises(ConfigError, match="sets already"):
        load_config(None, ["broker.name=a", "brokerName=b"], {})


def test_a_name_server_listens_at_the_port_in_the_setting_listen_port() -> None:
    """``flintmq namesrv --set listenPort=1`` is the name server's port."""
    config = load_config(None, ["listenPort=19876", "brokerName=x"], {}, role="namesrv").config
    assert (config.nameserver.port, config.listen.port, config.broker.name) == (19876, 10911, "x")


def test_a_yaml_file_can_contain_lists_and_null_values_and_plugin_references() -> None:
    """Every kind of value a file can hold."""
    loaded = load_text(
        "plugins:\n  - a.b:c\n  - d:e\ndisabled_plugins: [index]\ndispatchers: []\n"
        "listen: {advertised_host: null, ha_port: 1}\nstore: {file_reserved_hours: 3d, delete_when: 4}\nflush:\n"
    )
    config = loaded.config
    assert config.plugins == (PluginRef("a.b:c"), PluginRef("d:e"))
    assert [plugin.line for plugin in config.plugins] == [2, 3]
    assert (config.disabled_plugins, config.dispatchers) == (("index",), ())
    assert (config.listen.advertised_host, config.listen.ha_port) == (None, 1)
    assert (config.store.file_reserved_hours, config.store.delete_when) == (72, "04")


def test_a_configuration_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """The commonest mistake of all."""
    with pytest.raises(ConfigError, match=r"none\.yaml: the file cannot be read: No such file"):
        load_config(tmp_path / "none.yaml", environ={})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path, environ={})


def test_configurations_loaded_from_the_same_text_are_equal() -> None:
    """Tests and tools compare configurations."""
    first, second = (load_text("broker: {name: x}") for _ in range(2))
    assert isinstance(first, LoadedConfig)
    assert first == second
