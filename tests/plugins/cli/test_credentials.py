"""Commands sign and encrypt by what the environment holds: without that nobody could administer a closed broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import flintmq
from flintmq.config import ConfigError, load_config
from flintmq.core.errors import RefusedError
from flintmq.remoting.client import AdminClient
from flintmq.remoting.client.environment import options_of_environment

KEYS = {"FLINT_ACCESS_KEY": "admin-key", "FLINT_SECRET_KEY": "a secret of some length"}


def test_keys_of_the_environment_open_a_closed_name_server(tmp_path: Path) -> None:
    """With them an administrator's request passes, without it is refused."""
    file = tmp_path / "acl.yml"
    file.write_text("accounts: [{accessKey: admin-key, secretKey: a secret of some length, admin: true}]")
    file.chmod(0o600)
    config = load_config(None, ["nameserver.port=0", "nameserver.acl_enable=true", f"acl.file={file}"], {})

    async def topics(environ: dict[str, str]) -> list[str]:
        async with (
            flintmq.NameServer(config) as names,
            AdminClient(names.address, **options_of_environment(environ)) as admin,
        ):
            return await admin.topic_list()

    assert asyncio.run(topics(KEYS)) == []
    with pytest.raises(RefusedError, match="AclException"):
        asyncio.run(topics({}))


def test_half_of_the_keys_is_a_mistake() -> None:
    """And so is a file of authorities that is not there; the secret is in no message."""
    for name in KEYS:
        with pytest.raises(ConfigError, match="go together"):
            options_of_environment({name: KEYS[name]})
    with pytest.raises(ConfigError, match="FLINT_TLS_CA"):
        options_of_environment({**KEYS, "FLINT_TLS_CA": "/nowhere/ca.pem"})
    assert options_of_environment({}) == {}
