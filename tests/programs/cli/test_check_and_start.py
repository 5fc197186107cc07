"""``config check`` refuses exactly what a start refuses: a deployment that checks first must not learn it from the start."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flintmq
from flintmq.config import load_config
from flintmq.config.errors import ConfigError
from flintmq.core.errors import FlintError
from flintmq.programs.cli.plugins import check_start
from flintmq.programs.cli.serving import with_environment, with_name_server

from .conftest import SMALL, RunCommand

COMMANDS: Final = ("run", "broker", "namesrv")
MISSING: Final = "/nowhere/certificate.pem"
CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "listen.host": ("127.0.0.1", "0.0.0.0"),
    "listen.insecure": (True, False),
    "listen.enable": (True, False),
    "listen.tls.certificate": (MISSING,),
    "nameserver.host": ("127.0.0.1", "0.0.0.0"),
    "nameserver.listeners": (["a=127.0.0.1:0"], ["a=0.0.0.0:0"]),
    "nameserver.acl_enable": (True, False),
    "acl.enable": (True, False),
    "acl.accounts": ([{"accessKey": "administrator", "secretKey": "12345678", "admin": True}], []),
    "authenticators": (["acl"], ["nobody"], []),
    "namesrv.addresses": (["127.0.0.1:1"], []),
    "broker.role": ("async_master", "sync_master", "slave"),
    "broker.id": (0, 1),
    "ha.enable": (True, False),
    "ha.tls": (True, False),
    "disabled_plugins": ([], ["console"], ["filters"], ["filterz"], ["retentoin", "delay"], ["acl"], ["registration"]),
    "dispatchers": (["consume_queue", "index"], ["index"], ["consume_queue", "nope"]),
    "flush.strategy": ("async", "sync", "nope"),
    "index.builder": ("default", "nope"),
    "plugins": (["no.such:thing"], []),
    "nobodys.key": (1,),
    "pull.property_filter": (True, False),
    "metrics.enable": (True, False),
}


def text_of(chosen: dict[str, Any]) -> str:
    """Return the YAML of settings by dotted keys."""
    tree: dict[str, Any] = {}
    for key, value in chosen.items():
        *path, last = key.split(".")
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return yaml.safe_dump(tree)


async def start(file: Path, folder: Path, command: str) -> None:
    """Start what a command starts, and stop it."""
    loaded = load_config(
        file, [*SMALL, f"store.path={folder}", "metrics.port=0"], role="namesrv" if command == "namesrv" else "broker"
    )
    async with contextlib.AsyncExitStack() as stack:
        if command != "broker":
            names = await stack.enter_async_context(flintmq.NameServer(loaded))
            loaded = with_name_server(loaded, f"127.0.0.1:{names.port}") if command == "run" else loaded
        else:
            loaded = with_environment(loaded)
        if command != "namesrv":
            await stack.enter_async_context(flintmq.Broker(loaded))


def refusal(work: Callable[[], Any]) -> str:
    """Return why something is refused; nothing where it is not."""
    try:
        asyncio.run(work())
    except (FlintError, ConfigError) as error:
        return str(error)
    return ""


@pytest.fixture
def no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    command=st.sampled_from(COMMANDS),
    chosen=st.dictionaries(st.sampled_from(sorted(CHOICES)), st.integers(0, 9), max_size=4),
)
@pytest.mark.slow
def test_config_check_and_the_start_of_a_server_refuse_the_same_configuration_files(
    no_name_server: None, command: str, chosen: dict[str, int]
) -> None:
    """Over all settings that something else than their own value may forbid."""
    values = {key: CHOICES[key][number % len(CHOICES[key])] for key, number in chosen.items()}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flintmq.yaml"
        file.write_text(text_of(values))
        role = "namesrv" if command == "namesrv" else "broker"

        async def check() -> None:
            await check_start(load_config(file, SMALL, role=role), command)  # type: ignore[arg-type]

        checked = refusal(check)
        started = refusal(lambda: start(file, Path(folder) / "store", command))
        assert bool(checked) == bool(started), (command, values, checked, started)


PUBLIC: Final = {"listen.host": "0.0.0.0"}


@pytest.mark.parametrize(
    ("chosen", "command", "said"),
    [
        (PUBLIC, "run", "'listen.host' 0.0.0.0 can be reached from other machines"),
        (PUBLIC, "broker", "'listen.host' 0.0.0.0 can be reached from other machines"),
        (PUBLIC, "namesrv", ""),
        (PUBLIC | {"listen.insecure": True}, "run", ""),
        ({"nameserver.host": "0.0.0.0"}, "namesrv", "'nameserver.host' 0.0.0.0 can be reached"),
        ({"nameserver.host": "0.0.0.0"}, "broker", ""),
        ({"console.enable": True}, "run", ""),
        ({"console.enable": True}, "broker", "set 'namesrv.addresses'"),
        ({"console.enable": True, "console.certificate": MISSING}, "run", f"certificate {MISSING} cannot be used"),
        ({"listen.tls.certificate": MISSING}, "namesrv", MISSING),
        (
            {"disabled_plugins": ["consoel"]},
            "run",
            "no installed plugin has this name; did you mean 'console'?",
        ),
        ({"disabled_plugins": ["filter"]}, "namesrv", "did you mean 'filters'?"),
        ({"disabled_plugins": ["filters"]}, "namesrv", ""),
        ({"listen.enable": False, "namesrv.addresses": ["127.0.0.1:1"]}, "broker", "'listen.enable' is false"),
    ],
)
def test_config_check_for_a_named_command_applies_the_rules_of_that_command(
    cli: RunCommand, tmp_path: Path, chosen: dict[str, Any], command: str, said: str
) -> None:
    """What one command refuses may be right for another."""
    pytest.importorskip("starlette", reason="the extra 'console' is not installed")
    file = tmp_path / "flintmq.yaml"
    file.write_text(text_of(chosen))
    outcome = cli("config", "check", file, "--for", command)
    assert outcome.code == (2 if said else 0), outcome.err
    assert said in outcome.err
    if command == "run":
        assert cli("config", "check", file).code == outcome.code


def test_config_check_does_not_create_a_store(cli: RunCommand, tmp_path: Path) -> None:
    """It may run beside the broker whose configuration it is."""
    file = tmp_path / "flintmq.yaml"
    store = tmp_path / "store"
    file.write_text(text_of({"store.path": str(store), "nameserver.kv_path": str(tmp_path / "kv.json")}))
    for command in COMMANDS:
        assert cli("config", "check", file, "--for", command).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["flintmq.yaml"]
