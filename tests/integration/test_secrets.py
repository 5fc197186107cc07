"""No request, whatever its code and fields, may be answered with what the configuration keeps secret."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

import flintmq
from flintmq.config import load_config
from flintmq.core.kernel.hookspecs import RegisterAuthenticator, RegisterConfigSection, hookimpl
from flintmq.core.kernel.ports import Caller
from flintmq.remoting.wire.codes import RequestCode

SECRET = "s3cr3t-7f1d"


@attrs.frozen
class Vault:
    password: str = ""
    path: str = ""


class LetEveryoneIn:
    def __init__(self, settings: Vault) -> None:
        assert settings.password == SECRET

    def authenticate(self, caller: Caller) -> None:
        """Everyone may."""


class VaultPlugin:
    plugin_name = "vault"

    @hookimpl
    def flintmq_config_sections(self, register: RegisterConfigSection) -> None:
        register("vault", Vault)

    @hookimpl
    def flintmq_authenticators(self, register: RegisterAuthenticator) -> None:
        register("vault", lambda context: LetEveryoneIn(context.settings))


def test_no_answer_to_any_request_code_contains_a_secret(tmp_path: Path, connect: Callable[[Any], Any]) -> None:
    """Each code is sent to broker and name server, without fields and with the fields of requests for settings."""
    config = load_config(
        None,
        [
            f"store.path={tmp_path / 'store'}",
            "listen.port=0",
            "listen.vip=false",
            "nameserver.port=0",
            "store.commit_log_file_bytes=1048576",
            f"vault.password={SECRET}",
            "authenticators=vault",
        ],
        {},
    )
    fields = {"topic": "T", "group": "g", "consumerGroup": "g", "statsName": "vault", "statsKey": "password"}
    answered = 0
    with flintmq.NameServer(config) as name_server, flintmq.Broker(config, plugins=[VaultPlugin()]) as broker:
        for server in (broker, name_server):
            for code in (*RequestCode, 0, 16, 18, 400, 9_999):
                for ext_fields, body in (({}, b""), (fields, b"vault.password=x\n")):
                    wire = connect(server)
                    opaque = wire.post(int(code), ext_fields, body)
                    wire.post(RequestCode.GET_ALL_TOPIC_CONFIG)  # an answer that says that the first had its time
                    while True:
                        command = wire.read()
                        text = f"{command.ext_fields} {command.remark}".encode() + command.body
                        assert SECRET.encode() not in text, int(code)
                        answered += command.opaque == opaque
                        if command.opaque == opaque + 1:
                            break
                    wire.close()
    assert answered > 300
