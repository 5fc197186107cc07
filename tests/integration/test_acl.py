"""Access control and safe defaults on running brokers and name servers, over sockets."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.config import ConfigError
from flintmq.config.secret import Secret
from flintmq.core.errors import PluginError, RefusedError
from flintmq.core.kernel.hookspecs import RegisterAuthenticator, hookimpl
from flintmq.core.kernel.ports import Caller
from flintmq.remoting.client import AclSigner, AdminClient, Message, Producer, PullConsumer
from flintmq.remoting.server.addresses import is_loopback
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.remoting.wire.signature import add_signature

ADMIN, SECRET = "admin-key", "the admin's secret"
FILE = f"accounts:\n- {{accessKey: {ADMIN}, secretKey: {SECRET}, admin: true}}\n"


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(FILE)
    path.chmod(0o600)
    return path


def signed(wire: Wire, code: int, fields: dict[str, str] | None = None, body: bytes = b"", key: str = ADMIN) -> Any:
    sent = dict(fields or {})
    add_signature(sent, body, key, Secret(SECRET), "")
    return wire.ask(code, sent, body)


def test_accounts_can_be_changed_by_requests_and_each_change_is_written_to_the_audit_log(
    configure: Callable[..., Any],
    accounts: Path,
    connect: Callable[[Any], Wire],
    unexpected: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """50 to 54: made, changed, listed without secrets, deleted, kept in the file; each act leaves a line, none a secret."""
    caplog.set_level(logging.DEBUG, "flintmq")
    config = configure("aclEnable=true", f"acl.file={accounts}", "acl.list_accounts=true")
    with flintmq.Broker(config) as broker:
        wire = connect(broker)
        assert wire.ask(Code.GET_BROKER_CLUSTER_ACL_INFO).remark.startswith("AclException: ")
        new = {"accessKey": "other-key", "secretKey": SECRET, "admin": "false", "defaultTopicPerm": "SUB"}
        assert signed(wire, Code.UPDATE_AND_CREATE_ACL_CONFIG, new | {"topicPerms": "A=PUB,B=DENY"}).code == 0
        topic = {"topic": "A", "queueId": "0"}
        assert signed(wire, Code.GET_MAX_OFFSET, topic, key="other-key").code != 1
        assert signed(wire, Code.GET_MAX_OFFSET, topic | {"topic": "B"}, key="other-key").code == 1
        assert signed(wire, Code.UPDATE_BROKER_CONFIG, body=b"traceOn=true", key="other-key").code == 1
        changed = signed(wire, Code.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "other-key", "topicPerms": "B=SUB"})
        assert changed.code == 0
        assert signed(wire, Code.GET_MAX_OFFSET, topic | {"topic": "B"}, key="other-key").remark is None

        for code, fields, answer in (
            (50, {"accessKey": "third-key"}, 209),
            (50, {"accessKey": "third-key", "secretKey": "x" * 8, "topicPerms": "A=ALL"}, 209),
            (50, {"accessKey": "bad key", "secretKey": "x" * 8}, 209),
            (51, {"accessKey": "third-key"}, 210),
            (51, {"accessKey": ADMIN}, 210),
            (53, {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": "/tmp/elsewhere.yml"}, 211),
            (53, {"globalWhiteAddrs": "1.2"}, 211),
        ):
            assert signed(wire, code, fields).code == answer, fields
        assert signed(wire, 53, {"globalWhiteAddrs": "127.0.0.1,::1", "aclFileFullPath": str(accounts)}).code == 0
        info = signed(wire, Code.GET_BROKER_CLUSTER_ACL_INFO).ext_fields
        assert info["brokerName"] == "broker-a"
        assert '"counter":3' in info["version"]
        assert str(accounts) in info["allAclFileVersion"]
        listed = signed(wire, Code.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert b'"accessKey":"other-key"' in listed.body
        assert b"secret" not in listed.body.lower()
        assert signed(wire, Code.GET_BROKER_CLUSTER_ACL_CONFIG, key="other-key").code == 1
        assert stat.S_IMODE(accounts.stat().st_mode) == 0o600
        assert "other-key" in accounts.read_text()
        assert signed(wire, Code.DELETE_ACL_CONFIG, {"accessKey": "other-key"}).code == 0
        assert "No acl config" in signed(wire, Code.GET_MAX_OFFSET, topic, key="other-key").remark
        configuration = signed(wire, Code.GET_BROKER_CONFIG)
        assert SECRET.encode() not in configuration.body
        assert b"aclEnable=true" in configuration.body
    assert SECRET not in caplog.text
    lines = [record.getMessage() for record in caplog.records if record.name == "flintmq.audit"]
    assert any(
        line.startswith("who='admin-key' what=UPDATE_AND_CREATE_ACL_CONFIG ") and "result='ok'" in line
        for line in lines
    )
    assert any("what=UPDATE_BROKER_CONFIG 'settings'='traceOn'" in line and "Need admin" in line for line in lines)
    assert any("what=DELETE_ACL_CONFIG" in line and "result='210 " in line for line in lines)


def test_requests_that_read_or_change_accounts_are_refused_while_access_control_is_off(
    configure: Callable[..., Any], connect: Callable[[Any], Wire], caplog: pytest.LogCaptureFixture
) -> None:
    """50 to 53 say what is off, 54 is not supported as in 4.9.8, and acts are still audited."""
    caplog.set_level(logging.INFO, "flintmq.audit")
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        assert wire.ask(50, {"accessKey": "some-key", "secretKey": "x" * 8}).code == 209
        assert wire.ask(51, {"accessKey": "some-key"}).code == 210
        assert wire.ask(53, {"globalWhiteAddrs": "*"}).code == 211
        assert wire.ask(52).code == 1
        assert wire.ask(54).code == 3
        assert wire.ask(25, {"x": "a\nwho='admin'"}, b"traceOn=true\n").code == 0
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[1] for line in lines] == [
        "what=UPDATE_AND_CREATE_ACL_CONFIG",
        "what=DELETE_ACL_CONFIG",
        "what=UPDATE_GLOBAL_WHITE_ADDRS_CONFIG",
        "what=UPDATE_BROKER_CONFIG",
    ]
    assert "\n" not in lines[-1]


def test_access_control_accepts_allowed_signed_requests_and_refuses_unsigned_or_forbidden_requests(
    configure: Callable[..., Any], accounts: Path
) -> None:
    """Broker, name server and our own client sign; an account may do what it was given and no more."""
    writer = f"- {{accessKey: writer-key, secretKey: {SECRET}, topicPerms: [T=PUB]}}\n"
    accounts.write_text(FILE + writer)
    overrides = ["acl.enable=true", f"acl.file={accounts}", "nameserver.acl_enable=true", "acl.replay_window_ms=60000"]
    own = [f"namesrv.access_key={ADMIN}", f"namesrv.secret_key={SECRET}"]

    async def run() -> None:
        async with flintmq.NameServer(configure(*overrides)) as names:
            where = f"namesrv.addresses={names.address}"
            async with flintmq.Broker(configure(*overrides, where, store="unsigned")) as broker:
                assert not names.routes.cluster_info().broker_addr_table, (
                    "a broker that does not sign is not registered"
                )
                assert broker.server.keeps_ext_fields
            async with flintmq.Broker(configure(*overrides, where, *own)):
                async with AdminClient(names.address, hooks=[AclSigner(ADMIN, SECRET)]) as admin:
                    await admin.create_topic("T", queues=1)
                    await admin.create_topic("U", queues=1)
                async with Producer("P", names.address, hooks=[AclSigner("writer-key", SECRET)]) as producer:
                    assert (await producer.send(Message("T", b"hello"))).queue_offset == 0
                    with pytest.raises(RefusedError, match="No default permission for topic:U"):
                        await producer.send(Message("U", b"hello"))
                async with PullConsumer("G", names.address, hooks=[AclSigner("writer-key", SECRET)]) as consumer:
                    (queue,) = await consumer.queues("T")
                    with pytest.raises(RefusedError, match="No default permission"):
                        await consumer.pull(queue, 0)
                async with AdminClient(names.address, hooks=[AclSigner("writer-key", SECRET)]) as admin:
                    with pytest.raises(RefusedError, match="Need admin permission"):
                        await admin.topic_list()
                async with PullConsumer("G", names.address) as consumer:
                    with pytest.raises(RefusedError, match="AclException"):
                        await consumer.queues("T")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("no-such-host.invalid", False)],
)  # fmt: skip
def test_loopback_addresses_are_recognized(host: str, loopback: bool) -> None:
    """An address that cannot be classified counts as public."""
    assert is_loopback(host) is loopback


def test_listening_on_a_public_address_requires_access_control_or_the_insecure_setting(
    configure: Callable[..., Any], accounts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers and name servers that anyone may rewrite are how RocketMQ's were taken over; the refusal says what to do."""
    open_broker, open_names = "listen.host=0.0.0.0", "nameserver.host=0.0.0.0"
    with pytest.raises(ConfigError, match=r"listen\.insecure"), flintmq.Broker(configure(open_broker)):
        pass
    with pytest.raises(ConfigError, match=r"nameserver\.acl_enable"), flintmq.NameServer(configure(open_names)):
        pass
    with flintmq.NameServer(configure(open_names, "listen.insecure=true")):
        assert "anyone who reaches it" in caplog.text
    caplog.clear()
    acl = ("acl.enable=true", "nameserver.acl_enable=true", f"acl.file={accounts}")
    with flintmq.NameServer(configure(open_names, *acl)), flintmq.Broker(configure(open_broker, *acl)):
        assert "anyone who reaches it" not in caplog.text


def test_a_broker_with_an_invalid_account_file_does_not_start(configure: Callable[..., Any], accounts: Path) -> None:
    """A broker that cannot read its accounts must not start without them."""
    accounts.chmod(0o644)
    config = configure("acl.enable=true", f"acl.file={accounts}")
    with pytest.raises(ConfigError, match="chmod 600"), flintmq.Broker(config):
        pass
    with pytest.raises(ConfigError, match="without any account"), flintmq.Broker(configure("authenticators=acl")):
        pass


class Tokens:
    """A third party's way to know who it is: a token that every request carries."""

    def __init__(self, config: Any) -> None:
        self.asked = 0

    def authenticate(self, caller: Caller) -> None:
        self.asked += 1
        token = caller.ext_fields.get("SecurityToken")
        if token == "broken":
            raise KeyError(token)
        if token != "open sesame":
            raise RefusedError(1, "TokenException: not you", reason="token.unknown")


class TokenPlugin:
    plugin_name = "tokens"

    @hookimpl
    def flintmq_authenticators(self, register: RegisterAuthenticator) -> None:
        register("tokens", Tokens)


def test_an_authenticator_of_a_plugin_checks_requests_alone_or_with_the_built_in_authenticator(
    configure: Callable[..., Any], accounts: Path, connect: Callable[[Any], Wire], caplog: pytest.LogCaptureFixture
) -> None:
    """It decides alone, or beside the built-in one; when it fails the door stays shut, and others of its read are served."""
    with flintmq.Broker(configure("authenticators=tokens"), plugins=[TokenPlugin()]) as broker:
        wire = connect(broker)
        fields = {"topic": "T", "queueId": "0"}
        assert wire.ask(Code.GET_MAX_OFFSET, fields).remark.startswith("TokenException: not you")
        assert wire.ask(Code.GET_MAX_OFFSET, fields | {"SecurityToken": "open sesame"}).code == 0
        sent = [wire.post(Code.GET_MAX_OFFSET, fields | {"SecurityToken": word}) for word in ("broken", "open sesame")]
        answers = [wire.answer(opaque) for opaque in sent]
        assert [answer.code for answer in answers] == [1, 0]
        assert "authenticator.failed" in answers[0].remark
        assert "an authenticator failed" in caplog.text
    both = ("acl.enable=true", f"acl.file={accounts}", "authenticators=tokens")
    with flintmq.Broker(configure(*both, store="both"), plugins=[TokenPlugin()]) as broker:
        wire = connect(broker)
        assert len(broker.api.server.authenticators) == 2
        token = {"SecurityToken": "open sesame"}
        assert "AclException" in wire.ask(Code.GET_BROKER_CONFIG, token).remark
        assert "TokenException" in signed(wire, Code.GET_BROKER_CONFIG).remark
        assert signed(wire, Code.GET_BROKER_CONFIG, token).code == 0
    with pytest.raises(PluginError, match="nobody"), flintmq.Broker(configure("authenticators=nobody")):
        pass


def test_a_name_server_uses_authenticators_of_plugins(
    configure: Callable[..., Any], accounts: Path, connect: Callable[[Any], Wire], caplog: pytest.LogCaptureFixture
) -> None:
    """A third party's decides there, too, alone or beside the built-in one, and without a known one it does not start."""
    plugins = [TokenPlugin()]
    token = {"SecurityToken": "open sesame"}
    with flintmq.NameServer(configure("nameserver.authenticators=tokens"), plugins=plugins) as names:
        wire = connect(names)
        assert "TokenException" in (wire.ask(Code.GET_BROKER_CLUSTER_INFO, {}).remark or "")
        assert wire.ask(Code.GET_BROKER_CLUSTER_INFO, token).code == 0
        assert "authenticator.failed" in (
            wire.ask(Code.GET_BROKER_CLUSTER_INFO, {"SecurityToken": "broken"}).remark or ""
        )
        assert "an authenticator failed" in caplog.text
    both = ("nameserver.acl_enable=true", f"acl.file={accounts}", "nameserver.authenticators=tokens")
    with flintmq.NameServer(configure(*both), plugins=plugins) as names:
        wire = connect(names)
        assert len(names.authenticators) == 2
        assert "AclException" in (wire.ask(Code.GET_NAMESRV_CONFIG, token).remark or "")
        assert "TokenException" in (signed(wire, Code.GET_NAMESRV_CONFIG).remark or "")
        assert signed(wire, Code.GET_NAMESRV_CONFIG, token).code == 0
    nobody = flintmq.NameServer(configure("nameserver.authenticators=nobody"))
    with pytest.raises(PluginError, match="nobody"), nobody:
        pass
    open_to_others = ("nameserver.host=0.0.0.0", "nameserver.authenticators=tokens")
    with flintmq.NameServer(configure(*open_to_others), plugins=plugins):
        assert "open door" not in caplog.text
