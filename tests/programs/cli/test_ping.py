"""``flintmq ping`` is what health checks of containers run: it must tell a server that answers from one that does not."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import flintmq

from .conftest import SMALL, RunCommand


def test_ping_shows_answers_of_brokers_and_name_servers(cli: RunCommand, name_server: str) -> None:
    """Each of them, with the time that it took."""
    (broker,) = (row["address"] for row in cli("status", "-n", name_server, "--json").json["brokers"])
    found = cli("ping", broker, name_server, "--json")
    assert found.code == 0
    assert [row["address"] for row in found.json] == [broker, name_server]
    assert all(row["error"] is None and 0 < row["answered_ms"] < 3_000 for row in found.json)
    assert f"{broker} answered after " in cli("ping", broker).out


def test_ping_without_an_address_uses_the_broker_address_from_environment_variables(
    tmp_path: Path, cli: RunCommand, name_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The health check of a container is one command, wherever its broker listens."""
    (broker,) = (row["address"] for row in cli("status", "-n", name_server, "--json").json["brokers"])
    monkeypatch.setenv("FLINTMQ_LISTEN__HOST", "0.0.0.0")
    monkeypatch.setenv("FLINTMQ_LISTEN__PORT", broker.rpartition(":")[2])
    assert cli("ping").out.startswith(f"{broker} answered after ")
    file = tmp_path / "broker.yaml"
    file.write_text("listen: {port: many}")
    assert cli("ping", "-c", file).code == 2


def test_ping_counts_a_refused_request_as_an_answer(tmp_path: Path, cli: RunCommand) -> None:
    """A health check has no account."""
    accounts = tmp_path / "acl.yml"
    accounts.write_text("accounts:\n- {accessKey: administrator, secretKey: long-enough-1, admin: true}\n")
    accounts.chmod(0o600)
    settings = [*SMALL, f"store.path={tmp_path / 's'}", "acl.enable=true", f"acl.file={accounts}"]
    with flintmq.Broker(flintmq.load_config(None, settings, {})) as broker:
        assert cli("ping", broker.address).code == 0


def test_ping_exits_with_4_if_a_server_does_not_answer(cli: RunCommand, name_server: str) -> None:
    """Nobody listens at one; the other one takes the connection and says nothing, as a process does that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        found = cli("ping", "127.0.0.1:1", address, name_server, "--timeout", "200ms", "--json")
    assert found.code == 4
    refused, hangs, well = found.json
    assert "127.0.0.1:1" in refused["error"]
    assert hangs["error"]
    assert well["error"] is None


@pytest.mark.parametrize("address", ["localhost", "a:b", "127.0.0.1:70000"])
def test_ping_exits_with_2_for_an_invalid_address(cli: RunCommand, address: str) -> None:
    """A misspelt check must not look like a broker that is ill."""
    outcome = cli("ping", address)
    assert outcome.code == 2
    assert f"'{address}' is not HOST:PORT" in outcome.err
