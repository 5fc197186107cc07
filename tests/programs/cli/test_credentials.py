"""Commands sign and encrypt by what the environment holds: without that nobody could administer a closed broker."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

import flintmq
from flintmq.config import ConfigError, load_config
from flintmq.core.errors import RefusedError
from flintmq.remoting.client import AdminClient
from flintmq.remoting.client.access import Access, access_of

from .conftest import SMALL, RunCommand

KEYS = {"FLINT_ACCESS_KEY": "admin-key", "FLINT_SECRET_KEY": "a secret of some length"}


def test_access_keys_from_the_environment_sign_the_requests_of_commands(tmp_path: Path) -> None:
    """With them an administrator's request passes, without it is refused."""
    file = tmp_path / "acl.yml"
    file.write_text("accounts: [{accessKey: admin-key, secretKey: a secret of some length, admin: true}]")
    file.chmod(0o600)
    config = load_config(None, ["nameserver.port=0", "nameserver.acl_enable=true", f"acl.file={file}"], {})

    async def topics(environ: dict[str, str]) -> list[str]:
        async with (
            flintmq.NameServer(config) as names,
            AdminClient(names.address, **access_of(environ).options()) as admin,
        ):
            return await admin.topic_list()

    assert asyncio.run(topics(KEYS)) == []
    with pytest.raises(RefusedError, match="AclException"):
        asyncio.run(topics({}))


def test_an_access_key_without_its_secret_is_refused() -> None:
    """And so is a file of authorities that is not there; the secret is in no message."""
    for name in KEYS:
        with pytest.raises(ConfigError, match="must both be set"):
            access_of({name: KEYS[name]})
    with pytest.raises(ConfigError, match="FLINT_TLS_CA"):
        access_of({**KEYS, "FLINT_TLS_CA": "/nowhere/ca.pem"})
    assert access_of({}) == Access()


SECRET = "a secret of some length"


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Closed]:
    """A name server and a broker that take only signed requests, and only encrypted ones where openssl makes a certificate."""
    for name in list(os.environ):
        if name.startswith("FLINT_"):
            monkeypatch.delenv(name)
    file = tmp_path / "acl.yml"
    file.write_text(f"accounts: [{{accessKey: admin-key, secretKey: {SECRET}, admin: true}}]")
    file.chmod(0o600)
    key = tmp_path / "secret"
    key.write_text(f"{SECRET}\n")
    settings = [*SMALL, "acl.enable=true", "nameserver.acl_enable=true", f"acl.file={file}", f"store.path={tmp_path / 'store'}",
                "namesrv.access_key=admin-key", f"namesrv.secret_key={SECRET}"]  # fmt: skip
    words = ["--access-key", "admin-key", "--secret-key-file", str(key)]
    openssl = shutil.which("openssl")
    if openssl is not None:
        pem = tmp_path / "one.pem"
        subprocess.run(
            [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=one", "-keyout", str(pem), "-out", str(tmp_path / "public.pem")],
            capture_output=True, check=True,
        )  # fmt: skip
        pem.write_text(pem.read_text() + (tmp_path / "public.pem").read_text())
        settings.append(f"listen.tls.certificate={pem}")
        words += ["--tls-ca", str(tmp_path / "public.pem")]
    with flintmq.NameServer(load_config(None, settings, {})) as names:
        config = load_config(None, [*settings, f"namesrv.addresses={names.address}"], {})
        with flintmq.Broker(config):
            yield Closed(names.address, words, settings)


@attrs.frozen
class Closed:
    address: str
    words: list[str]
    """Options that open it."""
    settings: list[str]


COMMANDS = [
    ("topics", "create", "T", "--queues", "2"),
    ("topics", "list"),
    ("send", "T", "hello"),
    ("consume", "T", "--count", "1"),
    ("groups", "list"),
    ("status",),
    ("query", "T", "--key", "none"),
    ("bench", "send", "--count", "50", "--warmup", "0", "--connections", "1", "--topic", "T"),
    ("bench", "send", "--count", "64", "--batch", "8", "--warmup", "0", "--connections", "1", "--topic", "T"),
    ("bench", "consume", "--count", "50", "--warmup", "0", "--connections", "1", "--topic", "T"),
    ("bench", "latency", "--seconds", "0.3", "--warmup", "0", "--rate", "100", "--topic", "T"),
]


def test_every_client_command_can_access_a_broker_that_requires_access_keys_and_tls(
    closed: Closed, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By options or by variables, benches too; without them nobody is let in, and the secret is in no output."""
    for words in COMMANDS:
        outcome = cli(*words, "-n", closed.address, *closed.words)
        assert outcome.code == (1 if words[0] == "query" else 0), (words, outcome.out, outcome.err)
        if words[0] == "bench":
            (figures,) = outcome.json_lines
            assert figures["errors"] == 0, figures
        assert SECRET not in outcome.out + outcome.err
        if words[:2] != ("topics", "create"):
            assert cli(*words, "-n", closed.address).code != 0, words
    for option, value in zip(closed.words[::2], closed.words[1::2], strict=True):
        monkeypatch.setenv(f"FLINT{option[1:].upper().replace('-', '_')}", value)
    assert cli("send", "T", "hello", "-n", closed.address).code == 0
    assert cli("send", "T", "hello", "-n", closed.address, "--secret-key-file", __file__).code != 0, (
        "options count more"
    )


def test_every_client_command_has_the_access_options(cli: RunCommand) -> None:
    """Said once for all of them, in the help of each; not where there is no client."""
    for words in {words[:2] if words[0] in ("topics", "groups", "bench") else words[:1] for words in COMMANDS}:
        shown = cli(*words, "--help").out
        assert "--secret-key-file" in shown, words
        assert "--tls-insecure" in shown
    for words in (("broker",), ("run",), ("store", "verify"), ("config", "show")):
        assert "--secret-key-file" not in cli(*words, "--help").out, words


def test_incomplete_access_options_are_refused(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says which, and what it was read from."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    empty = tmp_path / "empty"
    empty.touch()
    for words, wrong in (
        (["--access-key", "some-key"], "must both be set"),
        (["--secret-key-file", str(empty)], "is empty"),
        (["--secret-key-file", str(tmp_path / "none")], "No such file"),
        (["--tls-certificate", str(tmp_path / "none")], "FLINT_TLS_CERTIFICATE"),
    ):
        outcome = cli("topics", "list", *words)
        assert outcome.code == 2, words
        assert wrong in outcome.err


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_demo_command_uses_access_control_and_tls_settings_from_environment_variables(
    closed: Closed, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has access control and TLS in the environment gets a demo with both."""
    for setting in closed.settings:
        name, _, value = setting.partition("=")
        if name.startswith(("acl.", "nameserver.acl", "namesrv.", "listen.tls")):
            monkeypatch.setenv(f"FLINTMQ_{name.replace('.', '__').upper()}", value)
    outcome = cli("demo", "--messages", "50", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["ok"]
    outcome = cli("bench", "send", "--count", "50", "--warmup", "0", "--connections", "1")
    assert outcome.code == 0, outcome.err
    assert outcome.json_lines[0]["errors"] == 0
