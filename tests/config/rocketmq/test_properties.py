"""Operators bring their ``broker.conf``: what means the same must arrive, and nothing may vanish without a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config import ConfigError, import_broker_conf, load_config, load_text, rows
from flintmq.config.rocketmq.java_properties import Property, parse_properties
from flintmq.config.rocketmq.properties import is_properties

SMALL = """\
# What the suite asks of the broker under test.
enablePropertyFilter=true
transactionCheckInterval=1000
transactionTimeOut=1000
transactionCheckMax=8
flushConsumerOffsetInterval=1000
traceTopicEnable=true
# A loaded test machine must not look like a busy broker.
waitTimeMillsInSendQueue=5000
osPageCacheBusyTimeOutMills=5000
"""

LARGE = """\
! production
brokerClusterName = DefaultCluster
brokerName : broker-\\u0062
brokerId 0
namesrvAddr=10.0.0.1:9876;\\
            10.0.0.2:9876
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
transientStorePoolEnable=true
flushIntervalCommitLog=250
deleteWhen=04
fileReservedTime=48
storePathRootDir=/data/store
storePathConsumeQueue=/data/cq
serverChannelMaxIdleTimeSeconds=60
sendMessageThreadPoolNums=16
aclEnable=true
maxMesageSize=1
maxMessageSize=65536
accessMessageInMemoryMaxRatio=400
listenPort=10911
listenPort=20911
someInhouseKey=x
"""


def test_every_property_of_a_small_broker_conf_is_imported() -> None:
    """The conformance suite's own file."""
    result = import_broker_conf(SMALL)
    config = load_text(result.yaml).config
    assert result.dropped == ()
    assert len(result.kept) == 8
    assert config.pull.property_filter
    assert config.topics.trace_topic_enable
    assert (config.transactions.check_interval_ms, config.transactions.timeout_ms) == (1_000, 1_000)
    assert (config.transactions.check_max, config.offsets.flush_interval_ms) == (8, 1_000)
    assert (config.admission.send_wait_ms, config.admission.page_cache_busy_ms) == (5_000, 5_000)


def test_escape_sequences_and_continuation_lines_in_a_broker_conf_file_are_imported() -> None:
    """Composite keys, other units, escapes, continuation lines."""
    result = import_broker_conf(LARGE)
    config = load_text(result.yaml).config
    assert (config.broker.name, config.broker.id) == ("broker-b", 0)
    assert config.namesrv.addresses == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert config.flush.strategy == "commit_real_time"
    assert config.flush.commit_real_time.flush_interval_ms == 250
    assert config.listen.idle_timeout_ms == 60_000
    assert config.store.path == "/data/store"
    assert (config.store.file_reserved_hours, config.store.max_message_bytes) == (48, 65_536)
    assert config.listen.port == 20911
    assert result.kept["flushDiskType"] == ("flush.strategy",)
    assert result.kept["flushIntervalCommitLog"] == (
        "flush.flush_real_time.interval_ms",
        "flush.commit_real_time.flush_interval_ms",
    )


def test_reading_a_java_properties_file_as_yaml_raises_an_error_that_names_the_import_command(tmp_path: Path) -> None:
    """Java separates keys by a blank, too; under another name than ``.conf`` nothing says that it is Java's."""
    file = tmp_path / "settings.txt"
    file.write_text("brokerName moved\nbrokerId 0\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, [], {})
    assert str(caught.value).endswith(f"this makes YAML of it: flintmq config import {file}")
    assert load_text(import_broker_conf(file.read_text()).yaml).config.broker.name == "moved"
    file.rename(tmp_path / "settings.conf")
    assert load_config(tmp_path / "settings.conf", [], {}).config.broker.name == "moved"
    file.write_text("listen: [\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, [], {})
    assert "import" not in str(caught.value), "a mistake in YAML is one in YAML"


def test_the_import_of_a_broker_conf_gives_a_reason_for_each_dropped_property() -> None:
    """An operator must be able to check each line that did not make it."""
    dropped = {name: (value, why) for name, value, why in import_broker_conf(LARGE).dropped}
    assert set(dropped) == {
        "storePathConsumeQueue",
        "sendMessageThreadPoolNums",
        "maxMesageSize",
        "accessMessageInMemoryMaxRatio",
        "listenPort",
        "someInhouseKey",
    }
    assert dropped["maxMesageSize"] == ("1", "unknown key; did you mean 'maxMessageSize'?")
    assert "must be 0 to 100" in dropped["accessMessageInMemoryMaxRatio"][1]
    assert dropped["listenPort"] == ("10911", "given again in line 22")
    assert all(why for _, why in dropped.values())


def test_a_broker_conf_file_gives_the_same_settings_as_the_yaml_text_converted_from_that_file(tmp_path: Path) -> None:
    """Who comes from RocketMQ starts with the file that is there: the same values as its import, each with its line."""
    file = tmp_path / "broker.conf"
    file.write_text(LARGE.replace("accessMessageInMemoryMaxRatio=400\n", ""))
    loaded = load_config(file, [], {})
    assert loaded.config == load_text(import_broker_conf(LARGE).yaml).config
    origins = {row.key: row.origin for row in rows(loaded)}
    assert origins["broker.name"] == f"{file}:3"
    assert origins["namesrv.addresses"] == f"{file}:5"
    assert origins["listen.port"] == f"{file}:21"
    assert origins["flush.strategy"] == f"{file}:9"
    assert origins["index.enable"] == "default"
    assert [str(entry) for entry in loaded.ignored] == [
        f"{file}:14: storePathConsumeQueue changes nothing: consume queues lie in store.path",
        f"{file}:16: sendMessageThreadPoolNums changes nothing: one event loop serves all requests: "
        "there are no thread pools to size",
        f"{file}:18: maxMesageSize changes nothing: unknown key; did you mean 'maxMessageSize'?",
        f"{file}:20: listenPort changes nothing: given again in line 21",
        f"{file}:22: someInhouseKey changes nothing: not supported",
    ]


def test_environment_and_command_line_override_a_broker_conf(tmp_path: Path) -> None:
    """As over a YAML file; also half of what flushDiskType and transientStorePoolEnable say together."""
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\nbrokerId=1\nlistenPort=1234\ntransientStorePoolEnable=true\n")
    loaded = load_config(file, ["listen.port=2345"], {"FLINTMQ_BROKER__ID": "2", "FLINTMQ_flushDiskType": "SYNC_FLUSH"})
    assert (loaded.config.broker.name, loaded.config.broker.id, loaded.config.listen.port) == ("a", 2, 2345)
    assert loaded.config.flush.strategy == "group_commit"
    assert str(loaded.origins["flush.strategy"]) == "environment FLINTMQ_flushDiskType"
    assert loaded.with_overrides(["brokerName=b"]).ignored == loaded.ignored


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("flushDiskType=SYNC_FLUSHH", "'flushDiskType' must be SYNC_FLUSH or ASYNC_FLUSH"),
        ("maxMessageSize=4x", "'store.max_message_bytes' "),
        ("accessMessageInMemoryMaxRatio=400", "must be 0 to 100, not 400"),
        ("flush.strategy=group_commit\nflushDiskType=ASYNC_FLUSH", "sets 'flush.strategy'"),
    ],
)
def test_an_invalid_value_in_a_broker_conf_is_an_error(tmp_path: Path, line: str, said: str) -> None:
    """Java passes over it and runs with the default: with another flush strategy than the file says, for instance."""
    file = tmp_path / "broker.conf"
    file.write_text(f"brokerName=a\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        load_config(file, [], {})
    assert said in str(raised.value)
    assert raised.value.file is not None
    assert str(raised.value).startswith(f"{file}:")


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("broker.conf", "brokerName=a", True),
        ("broker.conf", "\ufeff# c\n\nbrokerName = a", True),
        ("broker.conf", "brokerName: a\nlistenPort=1", True),
        ("broker.conf", "brokerName: a", True),
        ("broker.conf", "brokerId 0", True),
        ("broker-a.properties", "brokerName: a", True),
        ("broker.yaml", "brokerName=a", True),
        ("broker", "namesrvAddr=a:1;b:2", True),
        ("broker.conf", "", True),
        ("broker.yaml", "", False),
        ("broker.yaml", "brokerName: a", False),
        ("broker.conf", "broker:\n  name: a", False),
        ("broker.conf", "broker:   # us\n  name: a", False),
        ("broker.conf", "plugins:\n  - a.b:c", False),
        ("broker.yaml", "store:\n  topic_retention:\n    - orders=24h\n", False),
        ("broker.yaml", "store: {topic_retention: 'a=1h'}\nbroker:\n  name: a", False),
        ("broker.yaml", "# a=b\nbroker:\n  name: a", False),
    ],
)
def test_properties_and_yaml_are_distinguished_by_content(name: str, text: str, wanted: bool) -> None:
    """By what is in the file: names are what people make of them."""
    assert is_properties(text, name) is wanted


def test_a_broker_conf_with_comments_in_gbk_is_accepted(tmp_path: Path) -> None:
    """Java reads properties as ISO 8859-1: files with comments in GBK start brokers every day."""
    file = tmp_path / "broker.conf"
    file.write_bytes("# 名字\nbrokerName=a\n".encode("gbk"))
    assert load_config(file, [], {}).config.broker.name == "a"


def test_properties_without_a_value_are_ignored(tmp_path: Path) -> None:
    """Templates leave such lines; a list may be empty."""
    file = tmp_path / "broker.conf"
    file.write_text("brokerIP1=\nnamesrvAddr=\nbrokerName=a\n")
    loaded = load_config(file, [], {})
    assert (loaded.config.listen.advertised_host, loaded.config.namesrv.addresses) == (None, ())
    assert [(entry.name, entry.why) for entry in loaded.ignored] == [("brokerIP1", "it has no value")]


def test_secrets_in_a_broker_conf_never_appear_in_warnings_or_in_the_imported_yaml(tmp_path: Path) -> None:
    """What RocketMQ has no word for can stand in the same file; a stranger's secret is not printed by a warning."""
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\nha.secret=0123456789abcdef\nadminSecretKey=hush\nflush.group_commit.interval_ms=5\n")
    loaded = load_config(file, [], {})
    assert loaded.config.ha.secret is not None
    assert loaded.config.flush.group_commit.interval_ms == 5
    imported = import_broker_conf(file.read_text())
    assert {name: value for name, value, _ in imported.dropped} == {"ha.secret": "******", "adminSecretKey": "******"}
    assert "hush" not in repr(loaded.ignored)
    assert "0123456789abcdef" not in imported.yaml


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("transientStorePoolEnable=true\ntransientStorePoolSize=3", []),
        ("transientStorePoolEnable=false\ntransientStorePoolSize=5", []),
        ("transientStorePoolSize=3", ["transientStorePoolSize"]),
        ("transientStorePoolEnable=false\ntransientStorePoolSize=3", ["transientStorePoolSize"]),
        ("transientStorePoolEnable=true\nflushDiskType=SYNC_FLUSH", ["transientStorePoolEnable"]),
        ("flushDiskType=SYNC_FLUSH\ntransientStorePoolSize=3", ["transientStorePoolSize"]),
        ("transientStorePoolEnable=true\nfastFailIfNoBufferInStorePool=false", []),
        ("transientStorePoolEnable=true\nfastFailIfNoBufferInStorePool=true", ["fastFailIfNoBufferInStorePool"]),
    ],
)
def test_the_import_states_why_it_drops_a_setting_of_the_transient_store_pool(text: str, told: list[str]) -> None:
    """A pool that is asked for and not used, or used other than asked, is said; tests/core/store/test_pool.py shows that a
    send neither waits nor fails when the pool has no buffer left."""
    dropped = import_broker_conf(text).dropped
    assert [name for name, _, _ in dropped] == told
    for name, _, why in dropped:
        if name == "fastFailIfNoBufferInStorePool":
            assert (
                why
                == "a file for which the pool has no buffer is written through its pages: no send waits for one, or fails"
            )


def test_a_namesrv_conf_is_imported() -> None:
    """The same names mean the name server's settings there."""
    config = load_text(import_broker_conf("listenPort=19876\nkvConfigPath=/x/kv.json", role="namesrv").yaml).config
    assert (config.nameserver.port, config.nameserver.kv_path, config.listen.port) == (19876, "/x/kv.json", 10911)


def test_an_import_of_conflicting_properties_is_refused() -> None:
    """The import must not write a file that cannot be loaded."""
    with pytest.raises(ConfigError, match=r"broker\.conf:1: 'listen\.vip' needs a second port"):
        import_broker_conf("listenPort=2")


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", []),
        ("# c\n! c\n\n   \n", []),
        ("a=b", [("a", "b")]),
        ("a:b\nc d\ne\nf =  g h ", [("a", "b"), ("c", "d"), ("e", ""), ("f", "g h ")]),
        ("a\\=b\\:c\\ d=e=f:g", [("a=b:c d", "e=f:g")]),
        ("  a = one, \\\n    two, \\\r\n  # three", [("a", "one, two, # three")]),
        ("a=x\\\\\nb=y", [("a", "x\\"), ("b", "y")]),
        ("a=\\u00e9\\t\\n\\q", [("a", "é\t\nq")]),
        ("a=\\ud83d\\ude00", [("a", "😀")]),
        ("a=1\rb=2", [("a", "1"), ("b", "2")]),
        ("a=1\\", [("a", "1")]),
        ("=v", [("", "v")]),
    ],
)
def test_properties_are_parsed_by_the_rules_of_java_util_properties(text: str, entries: list[tuple[str, str]]) -> None:
    """java.util.Properties' rules, one by one."""
    assert [(entry.key, entry.value) for entry in parse_properties(text)] == entries


def test_a_property_that_continues_over_several_lines_has_the_line_number_of_its_first_line() -> None:
    """Errors point at the key, not at where its continuation ended."""
    assert parse_properties("#\na=1\\\n2\nb=3") == [Property("a", "12", 2), Property("b", "3", 4)]


def test_a_malformed_escape_in_properties_is_refused() -> None:
    """Java refuses it too."""
    with pytest.raises(ConfigError, match=r"broker\.conf:2: malformed"):
        import_broker_conf("a=1\nb=\\u12")


@given(st.text(max_size=200) | st.text("ab=:\\ \n\r#!u0", max_size=60))
def test_importing_arbitrary_text_as_a_broker_conf_succeeds_or_raises_config_error(text: str) -> None:
    """And what comes out always loads."""
    try:
        result = import_broker_conf(text)
    except ConfigError:
        return
    load_text(result.yaml)
