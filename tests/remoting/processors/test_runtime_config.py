"""Settings changed over the wire (25): an allow-list, key by key; what is on it takes effect, what is not changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.config.loading.schema import KEYS, aliases
from flintmq.config.runtime import RUNTIME_KEYS
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors.admin_broker import AdminBrokerProcessor
from flintmq.remoting.processors.answers import format_properties, read_properties
from flintmq.remoting.wire.codes import RequestCode

OTHER_TEXT = {"store.delete_when": "07"}
NAMES = sorted(
    {*KEYS, *aliases("broker"), "flushDiskType", "configBlackList", "brokerConfigPath", "rocketmqHome", "nope"}
)


def change(bench: Any, ask: Any, **values: str) -> Any:
    handlers = AdminBrokerProcessor(bench.state.api).handlers()
    body = format_properties({name.replace("__", "."): value for name, value in values.items()})
    return ask(handlers, bench.request(RequestCode.UPDATE_BROKER_CONFIG, body=body))


def told(bench: Any, ask: Any) -> dict[str, str]:
    handlers = AdminBrokerProcessor(bench.state.api).handlers()
    return read_properties(ask(handlers, bench.request(RequestCode.GET_BROKER_CONFIG)).body)


def another(name: str, config: Any) -> str:
    """A value that the key takes and does not have."""
    key = RUNTIME_KEYS[name]
    now = key.value_of(config)
    if isinstance(now, bool):
        return str(not now).lower()
    if isinstance(now, int):
        spec = key.spec
        wanted = now + 1 if spec.maximum is None or now < spec.maximum else now - 1
        return str(wanted)
    return OTHER_TEXT[key.name]


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_on_the_allow_list_can_be_changed_and_every_other_setting_is_refused(
    bench: Any, ask: Any, name: str
) -> None:
    """A setting outside the list, such as a path, a class, an address or a plugin, must never change by request."""
    before = bench.state.config
    entry = RUNTIME_KEYS.get(name)
    dotted = {found.name: alias for alias, found in RUNTIME_KEYS.items()}
    if entry is None and name not in dotted:
        answer = change(bench, ask, **{name.replace(".", "__"): "1"})
        assert answer.code == ResponseCode.NO_PERMISSION
        assert name in answer.remark
        assert bench.state.config is before
        return
    alias = name if entry is not None else dotted[name]
    value = another(alias, before)
    answer = change(bench, ask, **{name.replace(".", "__"): value})
    assert (answer.code, answer.remark) == (0, None)
    assert RUNTIME_KEYS[alias].value_of(bench.state.config) != RUNTIME_KEYS[alias].value_of(before)
    assert told(bench, ask)[alias] == value
    assert bench.store.config is bench.state.config, "the store reads the new settings"


@pytest.mark.parametrize("name", sorted(RUNTIME_KEYS))
def test_an_invalid_value_changes_no_setting(bench: Any, ask: Any, name: str) -> None:
    before = bench.state.config
    assert change(bench, ask, **{name: "☃"}).code == ResponseCode.SYSTEM_ERROR
    assert bench.state.config is before


def test_a_request_with_a_refused_setting_changes_none_of_its_settings(bench: Any, ask: Any) -> None:
    """One that is refused takes the others with it."""
    before = bench.state.config
    assert change(bench, ask, fileReservedTime="71", storePathRootDir="/tmp/x").code == ResponseCode.NO_PERMISSION
    assert change(bench, ask, fileReservedTime="71", maxMessageSize="-1").code == ResponseCode.SYSTEM_ERROR
    assert bench.state.config is before


def test_changed_boolean_settings_take_effect_at_once(bench: Any, ask: Any) -> None:
    """An answer that says yes and changes nothing would be a lie."""
    state = bench.state
    change(bench, ask, autoCreateTopicEnable="false", autoCreateSubscriptionGroup="false")
    assert state.topics.create_in_send("New", "TBW102", "test", 4) is None
    assert state.groups.select("new") is None
    state.topics.delete("TBW102")
    change(bench, ask, autoCreateTopicEnable="true", autoCreateSubscriptionGroup="true")
    made = state.topics.create_in_send("New", "TBW102", "test", 4)
    assert isinstance(made, TopicConfig)
    assert state.groups.select("new") is not None
    change(bench, ask, notifyConsumerIdsChangedEnable="false")
    state.consumers.register("g", bench.channel, "c", [])
    assert bench.channel.sent == []


def test_a_changed_broker_permission_is_registered_at_the_name_servers(bench: Any, ask: Any) -> None:
    registrations: list[int] = []
    bench.state.topics.changed.subscribe(lambda: registrations.append(1))
    change(bench, ask, fileReservedTime="71")
    assert registrations == []
    change(bench, ask, brokerPermission="4")
    assert registrations == [1]


def test_secret_settings_are_not_returned(bench: Any, ask: Any) -> None:
    """A key marked secret is left out of 26, whatever its name."""
    shown = set(told(bench, ask))
    for key in KEYS.values():
        if key.spec.secret:
            assert shown.isdisjoint(key.spec.rocketmq)
    assert not [name for name in shown if "secret" in name.lower() or "passw" in name.lower()]


def test_an_operator_can_enable_both_fast_failure_and_reading_from_slaves_at_runtime(bench: Any, ask: Any) -> None:
    """Each of these was refused, though operators of RocketMQ change them when they must."""
    state = bench.state
    names = {"slaveReadEnable": "true", "brokerFastFailureEnable": "true", "storeReplyMessageEnable": "false"}
    assert change(bench, ask, **names).code == 0
    config = state.config
    assert (config.pull.slave_read, config.admission.fast_failure, config.topics.store_reply) == (True, True, False)
    heard: list[int] = []
    state.topics.changed.subscribe(lambda: heard.append(1))
    assert change(bench, ask, defaultTopicQueueNums="3").code == 0
    made = state.topics.create_in_send("Small", "TBW102", "test", 8)
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums) == (3, 3)
    assert heard, "producers take the number from the route of TBW102"
    assert change(bench, ask, fileReservedTime="70").code == 0
    assert state.topics.select("TBW102").write_queue_nums == 3


def test_a_changed_default_number_of_queues_applies_when_the_topic_tbw102_is_created_again(
    bench: Any, ask: Any
) -> None:
    """The number may be changed while sends make no topics."""
    change(bench, ask, autoCreateTopicEnable="false")
    bench.state.topics.delete("TBW102")
    change(bench, ask, defaultTopicQueueNums="5")
    assert bench.state.topics.select("TBW102") is None
    change(bench, ask, autoCreateTopicEnable="true")
    assert bench.state.topics.select("TBW102").write_queue_nums == 5


@pytest.mark.parametrize(
    ("misspelled", "meant"),
    [
        ("slaveReadEnabled", "; did you mean 'slaveReadEnable'?"),
        ("defaulttopicqueuenum", "; did you mean 'defaultTopicQueueNums'?"),
        ("store.max_message_byte", "; did you mean 'store.max_message_bytes'?"),
        ("xyzzy", ""),
        ("listenPort", ""),
        ("storePathRootDir", ""),
    ],
)
def test_the_refusal_of_a_misspelled_setting_suggests_the_right_name(
    bench: Any, ask: Any, misspelled: str, meant: str
) -> None:
    """A key that there is was spelled right, and may not be changed."""
    refused = change(bench, ask, **{misspelled.replace(".", "__"): "1"})
    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.remark == f"Can not update config {misspelled} while running{meant} [config.not_changeable]"
