"""A broker that replicates says at its start what is missing, before anybody connects."""

from __future__ import annotations

from pathlib import Path

import pytest

import flintmq
from flintmq.config import ConfigError, load_config
from flintmq.plugins.replication.link_settings import load_secret

SECRET = "x" * 32


def configured(*settings: str) -> flintmq.BrokerConfig:
    return load_config(None, ["listen.port=0", "listen.vip=false", *settings], {}).config


def test_the_replication_secret_is_read_from_a_setting_or_a_file(tmp_path: Path) -> None:
    """An operator keeps it where other secrets are."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    assert load_secret(configured(f"ha.secret={SECRET}")) == SECRET.encode()
    assert load_secret(configured(f"ha.secret_file={file}")) == SECRET.encode()
    assert load_secret(configured("ha.compat=rocketmq", f"ha.secret={SECRET}")) is None
    loaded = load_config(None, [], {"FLINTMQ_HA__SECRET": SECRET})
    assert load_secret(loaded.config) == SECRET.encode()


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (SECRET, 0o640, "chmod 600"),
        (SECRET, 0o604, "chmod 600"),
        ("short", 0o600, "16 bytes"),
        (None, 0, "No such file"),
    ],
)
def test_an_invalid_replication_secret_is_refused(tmp_path: Path, content: str | None, mode: int, reason: str) -> None:
    """A secret that others read, or that can be guessed, protects nothing."""
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(ConfigError, match=reason):
        load_secret(configured(f"ha.secret_file={file}"))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["broker.role=sync_master"], r"ha\.secret_file"),
        (["ha.enable=true"], r"ha\.secret_file"),
        (["broker.role=slave", "broker.id=1"], r"ha\.secret_file"),
        (["broker.role=sync_master", "ha.compat=rocketmq", "ha.host=0.0.0.0"], "whole log"),
        (["broker.role=sync_master", f"ha.secret={SECRET}", "ha.tls=true"], r"listen\.tls\.certificate"),
    ],
)
def test_a_start_with_incomplete_replication_settings_is_refused(
    tmp_path: Path, settings: list[str], reason: str
) -> None:
    """Nothing listens then, and nothing is left behind."""
    broker = flintmq.Broker(configured(f"store.path={tmp_path / 'store'}", *settings))
    with pytest.raises(ConfigError, match=reason), broker:
        pass


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["broker.role=slave"], r"broker\.id"),
        (["ha.secret=short"], "16 characters"),
        ([f"ha.secret={SECRET}", "ha.secret_file=/x"], "only one of them"),
        (["ha.send_heartbeat_interval_ms=20000"], "less than"),
        (["ha.master_address=somewhere"], "host:port"),
        (["ha.truncate=perhaps"], "proven"),
        (["broker.role=leader"], "sync_master"),
    ],
)
def test_conflicting_replication_settings_are_refused(settings: list[str], reason: str) -> None:
    """Told with the key, before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        configured(*settings)


def test_rocketmqs_replication_settings_are_imported() -> None:
    """A broker.conf is taken over as it is."""
    from flintmq.config.rocketmq.importing import import_broker_conf

    text = (
        "brokerId=1\nbrokerRole=SLAVE\nhaMasterAddress=10.0.0.1:10912\nhaSendHeartbeatInterval=4000\nhaListenPort=0\n"
        "haHousekeepingInterval=9000\nhaTransferBatchSize=65536\nhaSlaveFallbehindMax=1048576\nslaveTimeout=2500\n"
        "brokerIP2=10.0.0.9\n"
    )
    result = import_broker_conf(text)
    assert result.dropped == ()
    from flintmq.config import load_text

    config = load_text(result.yaml).config
    assert (config.broker.role, config.broker.id, config.listen.ha_port) == ("slave", 1, 0)
    assert (config.ha.master_address, config.ha.advertised_host) == ("10.0.0.1:10912", "10.0.0.9")
    assert (config.ha.send_heartbeat_interval_ms, config.ha.housekeeping_interval_ms) == (4000, 9000)
    assert (config.ha.transfer_batch_bytes, config.ha.slave_fallbehind_max_bytes) == (65536, 1048576)
    assert config.ha.slave_timeout_ms == 2500
