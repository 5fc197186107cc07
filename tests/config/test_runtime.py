"""Changing settings over the wire was once a remote code execution: what may be changed is a list, and it is checked here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flintmq.config import BrokerConfig, ConfigError, NamesrvConfig, import_broker_conf, load_config, load_text
from flintmq.config.loading.schema import aliases
from flintmq.config.rocketmq.names import FIXED
from flintmq.config.runtime import (
    NAMESRV_RUNTIME_KEYS,
    RUNTIME_KEYS,
    as_properties,
    evolve,
    evolve_namesrv,
    namesrv_as_properties,
)


def test_settings_for_paths_and_addresses_and_names_are_not_changeable_at_runtime() -> None:
    """Paths, addresses, ports, names, plugins and strategies stay as they were at the start."""
    for entry in (*RUNTIME_KEYS.values(), *NAMESRV_RUNTIME_KEYS.values()):
        section, _, name = entry.name.rpartition(".")
        assert section in (
            "store",
            "topics",
            "groups",
            "offsets",
            "pull",
            "transactions",
            "admission",
            "broker",
            "nameserver",
        )
        assert not {"path", "host", "port", "addresses", "name", "cluster", "id", "compat", "loop"} & {*name.split("_")}
        assert entry.hint in (int, bool) or entry.name == "store.delete_when"
        if entry.hint is int:
            assert entry.spec.minimum is not None
            assert entry.spec.maximum is not None


@pytest.mark.parametrize("name", sorted(set(aliases("broker")) - set(RUNTIME_KEYS)))
def test_runtime_changes_of_keys_that_are_not_listed_as_changeable_are_refused(name: str) -> None:
    """The list is an allow-list: a key added later is refused until someone decides otherwise."""
    for spelling in (name, aliases("broker")[name][0]):
        with pytest.raises(ConfigError, match="cannot be changed while running"):
            evolve(BrokerConfig(), {spelling: "1"})


@pytest.mark.parametrize(
    "name", ["plugins", "dispatchers", "authenticators", "flushDiskType", "flush.strategy", "store.path"]
)
def test_the_settings_for_plugins_and_flush_strategy_and_store_path_cannot_be_changed_at_runtime(name: str) -> None:
    """Also those that have no RocketMQ name or a composite one."""
    with pytest.raises(ConfigError, match="cannot be changed while running"):
        evolve(BrokerConfig(), {name: "x"})


def test_settings_can_be_changed_at_run_time_by_their_rocketmq_name_or_by_their_dotted_name() -> None:
    """mqadmin sends RocketMQ's names, our own tools the dotted ones."""
    config = BrokerConfig()
    changed = evolve(
        config,
        {
            "accessMessageInMemoryMaxRatio": "30",
            "pull.short_polling_ms": "2s",
            "deleteWhen": "4;16",
            "traceOn": "false",
        },
    )
    assert changed.store.access_in_memory_ratio == 30
    assert changed.pull.short_polling_ms == 2_000
    assert changed.store.delete_when == "04;16"
    assert not changed.broker.trace_on
    assert config == BrokerConfig()
    assert evolve(config, {}) == config


@pytest.mark.parametrize(
    "changes",
    [
        {"accessMessageInMemoryMaxRatio": "101"},
        {"accessMessageInMemoryMaxRatio": "-1"},
        {"maxMessageSize": "1TiB"},
        {"brokerPermission": "8"},
        {"longPollingEnable": "maybe"},
        {"deleteWhen": "25"},
        {"fileReservedTime": ""},
        {"longPollingEnable": "true", "pull.long_polling": "false"},
        {"longPollingEnabl": "true"},
    ],
)
def test_invalid_runtime_changes_are_refused(changes: dict[str, str]) -> None:
    """The same ranges as at the start, and no half-made change."""
    with pytest.raises(ConfigError):
        evolve(BrokerConfig(), changes)


def test_the_listen_port_of_a_running_name_server_cannot_be_changed() -> None:
    """listenPort is shown and not changed; seconds stay seconds."""
    config = evolve_namesrv(NamesrvConfig(), {"orderMessageEnable": "true", "serverChannelMaxIdleTimeSeconds": "60"})
    assert (config.order_message_enable, config.idle_timeout_ms) == (True, 60_000)
    told = namesrv_as_properties(config)
    assert (told["listenPort"], told["serverChannelMaxIdleTimeSeconds"]) == ("9876", "60")
    assert "kvConfigPath" not in told
    for refused in ("listenPort", "kvConfigPath", "bindAddress", "accessMessageInMemoryMaxRatio"):
        with pytest.raises(ConfigError, match="cannot be changed while running"):
            evolve_namesrv(NamesrvConfig(), {refused: "1"})


def test_a_broker_returns_its_settings_with_rocketmqs_names_and_units() -> None:
    """mqadmin getBrokerConfig and its scripts read these."""
    told = as_properties(
        load_text(
            "flush: {strategy: commit_real_time, commit_real_time: {flush_interval_ms: 77}}\nnamesrvAddr: a:1;b:2"
        ).config
    )
    assert told["brokerName"] == "broker-a"
    assert told["listenPort"] == "10911"
    assert told["haListenPort"] == "10912"
    assert told["brokerIP1"] == "127.0.0.1"
    assert told["serverChannelMaxIdleTimeSeconds"] == "120"
    assert told["mappedFileSizeCommitLog"] == "1073741824"
    assert (told["filterServerNums"], told["useTLS"]) == ("0", "false"), "mqadmin exportConfigs reads them"
    assert told["storePathCommitLog"] == "./flintmq-store/commitlog"
    assert (told["flushDiskType"], told["transientStorePoolEnable"]) == ("ASYNC_FLUSH", "true")
    assert told["flushIntervalCommitLog"] == "77"
    assert told["namesrvAddr"] == "a:1;b:2"
    assert set(RUNTIME_KEYS) <= set(told)
    assert "kvConfigPath" not in told
    assert list(told) == sorted(told)


def test_a_configuration_is_converted_to_every_property_that_a_rocketmq_broker_reports() -> None:
    """Tools look keys up by name and stumble over one that is missing. The file holds what a broker 4.9.7 answers."""
    names = (Path(__file__).parent / "broker_config_4.9.7.txt").read_text().split()
    assert len(names) == 179
    told = as_properties(BrokerConfig())
    computed = {"bitMapLengthConsumeQueueExt"}  # the broker knows it, see tests/remoting/processors/test_admin.py
    assert set(names) - set(told) == computed
    assert set(told) - set(names) == {
        "readOnlyCommitLogStorePaths",
        "timerMaxDelaySec",
        "tls.server.authClient",
        "tls.server.mode",
    }


@pytest.mark.parametrize("name", sorted(FIXED))
def test_properties_that_the_broker_only_reports_cannot_be_set(name: str) -> None:
    """Told and not settable: neither at the start nor later, and the reason is given where somebody tries."""
    assert name not in aliases("broker")
    with pytest.raises(ConfigError, match="cannot be changed while running"):
        evolve(BrokerConfig(), {name: "1"})
    with pytest.raises(ConfigError, match=re.escape(f"'{name}' cannot be set: {FIXED[name].why}")):
        load_config(None, [f"{name}=1"], {})


def test_the_properties_returned_by_a_broker_can_be_imported_by_another_broker() -> None:
    """A broker's configuration read over the wire starts another one like it."""
    config = load_text("flushDiskType: SYNC_FLUSH\nbrokerName: x\ndeleteWhen: 04;05\nmaxMessageSize: 1MiB").config
    text = "".join(f"{name}={value}\n" for name, value in as_properties(config).items())
    result = import_broker_conf(text)
    assert result.dropped == (), "what cannot be set is told with the value that holds anyway"
    assert as_properties(load_text(result.yaml).config) == as_properties(config)
