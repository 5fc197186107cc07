"""Names, folders and ports of several brokers: a mistake here has two brokers write into one store or fight for a port."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config import ConfigError, load_config
from flintmq.core.errors import StoreError
from flintmq.programs.supervisor.plan import BrokerPlan, broker_names, check_single, left_out, plan_brokers

NAME_SERVER = "127.0.0.1:9876"


def planned(folder: Path, *settings: str, count: int = 2) -> list[BrokerPlan]:
    return plan_brokers(load_config(None, settings, {}), count, folder, NAME_SERVER)


def test_each_broker_has_its_own_name_and_store_folder_and_ports(tmp_path: Path) -> None:
    """A broker takes the two ports below its own and the one above."""
    first, second = planned(tmp_path)
    assert first.settings == (
        "broker.name=broker-a",
        f"store.path={tmp_path / 'broker-a'}",
        "namesrv.addresses=127.0.0.1:9876",
        "listen.port=10911",
    )
    assert "listen.port=10921" in second.settings
    assert second.store == tmp_path / "broker-b"


def test_configured_ports_are_increased_by_10_for_each_broker_after_the_first(tmp_path: Path) -> None:
    """Two brokers with one replication port, or one advertised port, could not both be reached."""
    settings = ("listen.port=20000", "listen.advertised_port=30000", "listen.ha_port=25000")
    _, second = planned(tmp_path, *settings)
    assert set(second.settings) >= {"listen.port=20010", "listen.advertised_port=30010", "listen.ha_port=25010"}
    assert not second.has_free_port


def test_configured_folders_are_separate_for_each_broker(tmp_path: Path) -> None:
    """Two brokers that write into one commit log destroy it."""
    keys = "store.commit_log_paths", "store.read_only_commit_log_paths", "spark_feed.landing.path"
    first, second = planned(tmp_path, f"{keys[0]}=/disk1,/disk2", f"{keys[1]}=/old", f"{keys[2]}=/lake")
    for plan in first, second:
        name = plan.name
        expected = f"/disk1/{name},/disk2/{name}", f"/old/{name}", f"/lake/{name}"
        assert set(plan.settings) >= {f"{key}={value}" for key, value in zip(keys, expected, strict=True)}
    given = [key for plan in planned(tmp_path) for key in keys for setting in plan.settings if setting.startswith(key)]
    assert given == []


def test_ports_in_advertised_addresses_are_increased_by_10_for_each_broker_after_the_first(tmp_path: Path) -> None:
    """Clients outside would reach the first broker for every one's messages."""
    _, second = planned(tmp_path, "listen.advertised=outside=mq.example.com:20911,lab=[::1]:30911")
    assert "listen.advertised=outside=mq.example.com:20921,lab=[::1]:30921" in second.settings
    with pytest.raises(ConfigError, match=r"'listen\.advertised' gives port 65536 to broker-b"):
        planned(tmp_path, "listen.advertised=outside=mq.example.com:65526")


def test_the_supervisor_gives_each_broker_a_different_metrics_port(
    tmp_path: Path,
) -> None:
    """Each broker is read by itself; a monitoring system finds it at the same port after a restart."""
    first, second = planned(tmp_path, "metrics.enable=true", "metrics.port=5557")
    assert ("metrics.port=5557" in first.settings, "metrics.port=5567" in second.settings) == (True, True)
    assert not second.free_ports
    (free,) = planned(tmp_path, "metrics.enable=true", count=1)
    assert free.free_ports == {"metrics.port": "metrics"}
    (off,) = planned(tmp_path, count=1)
    assert not off.free_ports


def test_a_configured_port_0_is_not_increased_for_any_broker(tmp_path: Path) -> None:
    """``port + 1`` of a port that was free at first may be somebody else's when the broker is started again."""
    for plan in planned(tmp_path, "listen.port=0"):
        assert plan.has_free_port
        assert "listen.ha_port=0" in plan.settings
        assert not any(setting.startswith("listen.port") for setting in plan.settings)


@given(st.integers(1, 26), st.sampled_from(["broker-a", "broker", "shop-b", "a", "x-a-a"]))
def test_broker_names_are_unique_and_do_not_change_if_more_brokers_are_started(count: int, first: str) -> None:
    """A store is found again by its broker's name, whatever the number of brokers was before."""
    names = broker_names(first, count)
    assert len(set(names)) == count
    assert names == broker_names(first, 26)[:count]
    assert names[0].endswith("-a")


def test_the_name_server_addresses_of_a_broker_contain_the_supervisors_name_server_only_once(
    tmp_path: Path,
) -> None:
    """Brokers may register elsewhere, too; not twice with their own."""
    (plan,) = planned(tmp_path, "namesrv.addresses=10.0.0.1:9876;127.0.0.1:9876", count=1)
    assert "namesrv.addresses=127.0.0.1:9876;10.0.0.1:9876" in plan.settings


def test_starting_several_brokers_with_the_role_slave_is_refused(tmp_path: Path) -> None:
    """Several brokers of one configuration would all be slaves of one master."""
    with pytest.raises(ConfigError, match=r"broker\.role.*master"):
        planned(tmp_path, "broker.role=slave", "broker.id=1")


def test_ports_above_65535_are_refused(tmp_path: Path) -> None:
    """The refusal names the key and the broker, before anything has started."""
    with pytest.raises(ConfigError, match=r"'listen\.port' gives port 65540 to broker-b"):
        planned(tmp_path, "listen.port=65530")


def test_starting_several_brokers_in_the_store_folder_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    """Its messages would be out of reach beside new folders; the refusal says how to take them along."""
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(StoreError, match="broker-a"):
        planned(tmp_path)


@pytest.mark.parametrize(
    ("stores", "name", "said"),
    [
        (
            ["broker-a/", "broker-b/"],
            "broker-a",
            "holds the stores of broker-a, broker-b.*start with --brokers 2, or one of",
        ),
        (["broker-b/"], "broker-a", "start with --brokers 2, or one of them with --store .*broker-b"),
        (["east-a/"], "broker-a", "holds the stores of east-a.*start with --brokers 1"),
        (["", "broker-a/", "broker-b/"], "broker-a", r"into broker-c/, and start with --brokers 3"),
        (["", "broker-b/"], "broker-a", r"into broker-a/, and start with --brokers 2"),
    ],
)
def test_starting_a_single_broker_in_the_store_folder_of_several_brokers_is_refused(
    tmp_path: Path, stores: list[str], name: str, said: str
) -> None:
    """A third store would begin at the top, and topics would be unknown there; no advice leads into a folder with a log."""
    for one in stores:
        (tmp_path / one / "commitlog").mkdir(parents=True)
    with pytest.raises(StoreError, match=said) as refused:
        check_single(tmp_path, name)
    target = re.search(r"into (\S+)/", str(refused.value))
    assert target is None or not (tmp_path / target[1]).exists()
    if "" in stores:
        with pytest.raises(StoreError, match=said):
            planned(tmp_path)


@pytest.mark.parametrize("stores", [[], [""], ["", "old/"]])
def test_a_single_broker_may_use_its_store_folder_even_if_a_subfolder_contains_an_old_store_copy(
    tmp_path: Path, stores: list[str]
) -> None:
    """A copy that an operator put beside the log of a store is no broker's."""
    for one in stores:
        (tmp_path / one / "commitlog").mkdir(parents=True)
    check_single(tmp_path, "broker-a")


def test_store_folders_of_brokers_that_the_supervisor_no_longer_starts_are_listed(tmp_path: Path) -> None:
    """Fewer brokers than last time: what lies in the other folders is not delivered, and somebody should know."""
    for name in ("broker-a", "broker-c", "broker-b"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    (tmp_path / "flint").mkdir()
    assert left_out(tmp_path, planned(tmp_path, count=1)) == ["broker-b", "broker-c"]
    assert left_out(tmp_path / "new", planned(tmp_path)) == []
