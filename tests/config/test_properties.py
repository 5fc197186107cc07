"""Operators bring their ``broker.conf``: what means the same must arrive, and nothing may vanish without a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config import ConfigError, import_broker_conf, load_text
from flintmq.config.java_properties import Property, parse_properties

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


def test_a_small_file_is_taken_over_whole() -> None:
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


def test_a_large_file() -> None:
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


def test_what_is_dropped_has_a_reason() -> None:
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


def test_a_name_servers_file() -> None:
    """The same names mean the name server's settings there."""
    config = load_text(import_broker_conf("listenPort=19876\nkvConfigPath=/x/kv.json", role="namesrv").yaml).config
    assert (config.nameserver.port, config.nameserver.kv_path, config.listen.port) == (19876, "/x/kv.json", 10911)


def test_settings_that_do_not_fit_together() -> None:
    """The import must not write a file that cannot be loaded."""
    with pytest.raises(ConfigError, match=r"broker\.conf:1: 'listen\.vip' needs port - 2"):
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
def test_javas_format(text: str, entries: list[tuple[str, str]]) -> None:
    """java.util.Properties' rules, one by one."""
    assert [(entry.key, entry.value) for entry in parse_properties(text)] == entries


def test_entries_know_their_first_line() -> None:
    """Errors point at the key, not at where its continuation ended."""
    assert parse_properties("#\na=1\\\n2\nb=3") == [Property("a", "12", 2), Property("b", "3", 4)]


def test_a_malformed_escape() -> None:
    """Java refuses it too."""
    with pytest.raises(ConfigError, match=r"broker\.conf:2: malformed"):
        import_broker_conf("a=1\nb=\\u12")


@given(st.text(max_size=200) | st.text("ab=:\\ \n\r#!u0", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """And what comes out always loads."""
    try:
        result = import_broker_conf(text)
    except ConfigError:
        return
    load_text(result.yaml)
