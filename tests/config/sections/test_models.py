"""The models are what everything else is written against: names, defaults and ranges must not move by accident."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from flintmq.config import BrokerConfig, ConfigError, NamesrvConfig, PluginRef
from flintmq.config.loading.schema import KEYS, SECTIONS, aliases, aliases_in
from flintmq.config.sections.models import BrokerSection, ListenSection, StoreSection

DEFAULTS = {
    "broker.name": "broker-a",
    "listen.port": 10911,
    "listen.host": "127.0.0.1",
    "listen.ha_port": None,
    "listen.idle_timeout_ms": 120_000,
    "namesrv.addresses": (),
    "nameserver.port": 9876,
    "store.path": "./flintmq-store",
    "store.commit_log_file_bytes": 1024**3,
    "store.consume_queue_file_bytes": 6_000_000,
    "store.max_message_bytes": 4 * 1024**2,
    "store.delete_when": "04",
    "index.max_index_num": 20_000_000,
    "dispatchers": ("consume_queue", "index"),
    "flush.strategy": "flush_real_time",
    "flush.group_commit.sync_flush_timeout_ms": 5_000,
    "flush.commit_real_time.flush_thorough_interval_ms": 10_000,
    "flush.commit_real_time.flush_timed": True,
    "topics.trace_topic_name": "RMQ_SYS_TRACE_TOPIC",
    "transactions.check_max": 15,
    "admission.fast_failure": False,
    "authenticators": (),
    "plugins": (),
    "disabled_plugins": (),
}


def test_the_defaults_of_important_settings_equal_a_recorded_list_of_values() -> None:
    """A default that moves changes every broker that did not write it down."""
    config = BrokerConfig()
    assert {name: KEYS[name].value_of(config) for name in DEFAULTS} == DEFAULTS


def test_every_key_has_a_docstring_and_a_default_within_its_range() -> None:
    """``config show`` prints the docstring under each field, so each field needs one."""
    config = BrokerConfig()
    for name, key in KEYS.items():
        assert key.doc, name
        assert key.spec.problem(key.value_of(config)) is None, name
        if key.hint is int:
            assert key.spec.minimum is not None, name
            assert key.spec.maximum is not None, name


def test_the_unit_of_a_setting_equals_the_unit_suffix_of_its_name() -> None:
    """A key that ends in ``_ms`` but is read as seconds would be off by a thousand."""
    units = {"_ms": "ms", "_bytes": "bytes", "_hours": "hours"}
    for name, key in KEYS.items():
        expected = next((unit for suffix, unit in units.items() if name.endswith(suffix)), None)
        if expected is not None:
            assert key.spec.unit == expected, name


def test_configuration_values_are_frozen() -> None:
    """The configuration is shared between threads without a lock."""
    config = BrokerConfig()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config.broker.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (ListenSection, {"port": 65_536}),
        (ListenSection, {"port": -1}),
        (ListenSection, {"loop": "trio"}),
        (ListenSection, {"port": 2}),
        (BrokerSection, {"name": "two words"}),
        (StoreSection, {"access_in_memory_ratio": 101}),
        (StoreSection, {"delete_when": "24"}),
        (NamesrvConfig, {"scan_interval_ms": 0}),
    ],
)
def test_configuration_values_set_in_code_are_validated(model: type[Any], values: dict[str, Any]) -> None:
    """Embedded brokers are configured in code, past the loader."""
    with pytest.raises(ConfigError):
        model(**values)


@pytest.mark.parametrize(("given", "stored"), [(20, 20), (21, 40), (6_000_000, 6_000_000), (6_000_001, 6_000_020)])
def test_consume_queue_file_sizes_are_rounded_up_to_a_multiple_of_20_bytes(given: int, stored: int) -> None:
    """A unit of 20 bytes that straddles two files cannot be read."""
    assert StoreSection(consume_queue_file_bytes=given).consume_queue_file_bytes == stored


@pytest.mark.parametrize(("given", "stored"), [("4", "04"), ("04;16", "04;16"), ("4; 16", "04;16")])
def test_the_hours_at_which_old_files_are_deleted_are_stored_with_two_digits(given: str, stored: str) -> None:
    """YAML authors write 4; RocketMQ's tools expect 04."""
    assert StoreSection(delete_when=given).delete_when == stored


@pytest.mark.parametrize("target", ["", "module:", ":thing", "a b:c", "a..b:c", "os;x:y", "a.b:c:d"])
def test_a_malformed_plugin_reference_is_refused(target: str) -> None:
    """What is imported must at least look like an import."""
    with pytest.raises(ConfigError, match=r"package\.module:object"):
        PluginRef(target)


def test_the_rocketmq_setting_listen_port_sets_the_port_of_the_broker_or_of_the_name_server() -> None:
    """RocketMQ uses the same names for both programs."""
    assert aliases("broker")["listenPort"] == ("listen.port",)
    assert aliases("namesrv")["listenPort"] == ("nameserver.port",)
    assert aliases("broker")["orderMessageEnable"] == ("nameserver.order_message_enable",)
    assert aliases_in("nameserver")["listenPort"] == ("nameserver.port",)
    assert aliases_in("flush.flush_real_time")["flushIntervalCommitLog"] == ("flush.flush_real_time.interval_ms",)
    assert "brokerName" not in aliases_in("flush")


def test_only_four_rocketmq_setting_names_map_to_more_than_one_flintmq_setting() -> None:
    """A RocketMQ name that sets two keys by accident would make one of them unreachable."""
    doubled = {alias for alias, names in aliases("broker").items() if len(names) > 1}
    intervals = {"flushIntervalCommitLog", "flushCommitLogThoroughInterval"}
    assert doubled == {*intervals, "flushCommitLogLeastPages", "flushCommitLogTimed"}
    assert len(SECTIONS) == len(set(SECTIONS))
