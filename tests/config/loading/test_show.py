"""What is shown must be what is in force, and must load as the same configuration."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config import BrokerConfig, PluginRef, load_config, load_text, rows, to_yaml
from flintmq.config.fields import FieldSpec
from flintmq.config.loading.schema import KEYS
from flintmq.config.loading.show import display, property_value, yaml_value
from flintmq.config.units import in_unit


def test_config_show_prints_the_value_and_the_origin_and_the_description_of_each_key() -> None:
    """``flintmq config show`` is the reference an operator has at hand."""
    loaded = load_config(None, ["flushDiskType=SYNC_FLUSH", "store.max_message_bytes=1MiB"], {})
    by_key = {row.key: row for row in rows(loaded)}
    assert list(by_key) == list(KEYS)
    strategy = by_key["flush.strategy"]
    assert (strategy.value, strategy.origin) == ("group_commit", "command line")
    assert strategy.rocketmq == "flushDiskType, transientStorePoolEnable"
    assert by_key["store.max_message_bytes"].value == "1MiB"
    assert by_key["store.max_message_bytes"].rocketmq == "maxMessageSize"
    assert by_key["listen.ha_port"].value == "null"
    assert by_key["dispatchers"].value == "consume_queue, index"
    assert by_key["store.file_reserved_hours"].value == "3d"
    assert by_key["broker.permission"].doc.startswith("Permission of clients")


def test_the_defaults_are_unchanged_after_they_are_written_as_yaml_and_loaded() -> None:
    """``config init`` writes this file."""
    assert load_text(to_yaml(BrokerConfig())).config == BrokerConfig()
    assert to_yaml(BrokerConfig(), only_changed=True) == ""


def test_yaml_output_limited_to_changed_settings_omits_values_equal_to_the_defaults() -> None:
    """Short files are read; long ones are copied."""
    config = load_text("plugins: [a.b:c]\nflush: {group_commit: {interval_ms: 20}}\nbroker: {name: 'on'}").config
    assert to_yaml(config, only_changed=True) == (
        'broker:\n  name: "on"\nflush:\n  group_commit:\n    interval_ms: 20ms\nplugins: [a.b:c]\n'
    )


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=40)


@given(TEXT, TEXT, TEXT, st.integers(0, 2**40), st.lists(TEXT, max_size=3))
def test_any_configuration_is_unchanged_after_it_is_written_as_yaml_and_loaded(
    name: str, host: str, region: str, number: int, names: list[str]
) -> None:
    """Quoting is where emitters go wrong: 'null', '- a', ': ', '#', quotes and every script."""
    plain = BrokerConfig()
    config = attrs.evolve(
        plain,
        broker=attrs.evolve(plain.broker, name=name, region=region, id=number),
        namesrv=attrs.evolve(plain.namesrv, tls_ca=host),
        authenticators=tuple(names),
        plugins=(PluginRef("a.b:c"),),
    )
    assert load_text(to_yaml(config)).config == config


def test_config_show_hides_the_values_of_secrets() -> None:
    """A field marked secret is hidden in every form."""
    secret = FieldSpec(secret=True)
    assert display("hunter2", secret) == "******"
    assert display(None, secret) == "null"


def test_strings_that_yaml_could_parse_as_other_types_are_quoted() -> None:
    """Other tools read these files too."""
    spec = FieldSpec()
    assert [yaml_value(text, spec) for text in ("no", "04", "a b", "x", "./p", "1s", "~", "", "a:")] == [
        '"no"',
        '"04"',
        '"a b"',
        "x",
        '"./p"',
        '"1s"',
        '"~"',
        '""',
        '"a:"',
    ]


def test_a_duration_is_rounded_up_when_it_is_converted_to_a_coarser_unit() -> None:
    """1,500 ms told as 1 s would make a tool write back less than is in force."""
    assert in_unit(1_500, "ms", "s") == 2
    assert property_value(1_500, FieldSpec(unit="ms", rocketmq_unit="s")) == "2"
