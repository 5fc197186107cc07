"""Consumer groups appear on first use; their settings steer retries and must come back after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from flintmq.core.errors import RefusedError
from flintmq.core.io import fastjson
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.io.typed_json import read_as
from flintmq.testing.clock import ManualClock


def test_a_new_group_table_has_rocketmqs_built_in_groups() -> None:
    groups = SubscriptionGroupManager(None, ManualClock())
    assert {config.group_name for config in groups} == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }


def test_groups_are_created_on_first_use_only_if_auto_create_is_on() -> None:
    groups = SubscriptionGroupManager(None, ManualClock())
    assert groups.find("g") is None
    assert groups.select("g") == SubscriptionGroupConfig(group_name="g")
    assert groups.find("g") is not None
    assert groups.data_version.counter == 1
    assert groups.select("bad group") is None
    assert groups.select("x" * 256) is None
    strict = SubscriptionGroupManager(None, ManualClock(), auto_create=False)
    assert strict.select("g") is None
    assert strict.select("CID_RMQ_SYS_TRANS") is not None


def test_group_changes_survive_a_restart(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "subscriptionGroup.json")
    groups = SubscriptionGroupManager(file, ManualClock())
    mine = SubscriptionGroupConfig(
        group_name="g", consume_broadcast_enable=False, retry_queue_nums=0, retry_max_times=3
    )
    groups.put(mine)
    groups.put(SubscriptionGroupConfig(group_name="h", consume_enable=False))
    assert groups.delete("TOOLS_CONSUMER")
    assert not groups.delete("TOOLS_CONSUMER")
    again = SubscriptionGroupManager(file, ManualClock())
    assert again.load()
    assert again.find("g") == mine
    assert again.find("h") == SubscriptionGroupConfig(group_name="h", consume_enable=False)
    assert again.data_version == groups.data_version
    with pytest.raises(RefusedError):
        groups.put(SubscriptionGroupConfig(group_name="no good"))
    with pytest.raises(RefusedError):
        groups.put(SubscriptionGroupConfig(group_name=" "))


def test_missing_fields_of_a_group_in_json_get_defaults_and_unknown_fields_are_ignored() -> None:
    """A table of RocketMQ 5 has members that are unknown here, and groups need not repeat their names."""
    groups = SubscriptionGroupManager(None, ManualClock())
    groups.replace({"subscriptionGroupTable": {"g": {"groupSysFlag": 1}}})
    assert list(groups) == [SubscriptionGroupConfig(group_name="g")]
    one = SubscriptionGroupConfig(group_name="g", broker_id=5, notify_consumer_ids_changed_enable=False)
    assert read_as(fastjson.loads(fastjson.dumps(one)), SubscriptionGroupConfig) == one


def test_a_slave_replaces_its_group_table_by_the_group_table_of_its_master() -> None:
    groups = SubscriptionGroupManager(None, ManualClock())
    groups.replace({"subscriptionGroupTable": {"g": {}}, "dataVersion": {"counter": 2}})
    assert [config.group_name for config in groups] == ["g"]


def test_the_number_of_auto_created_groups_is_bounded() -> None:
    groups = SubscriptionGroupManager(None, ManualClock(), count_max=9)
    while len(groups) < 9:
        assert groups.select(f"g{len(groups)}") is not None
    with pytest.raises(RefusedError) as refused:
        groups.select("one_more")
    assert (refused.value.reason, refused.value.key) == ("groups.full", "groups.count_max")
    with pytest.raises(RefusedError):
        groups.put(SubscriptionGroupConfig(group_name="one_more"))
    assert groups.select("g8") is not None
    groups.put(SubscriptionGroupConfig(group_name="g8", retry_max_times=3))
    groups.delete("g8")
    assert groups.select("one_more") is not None
