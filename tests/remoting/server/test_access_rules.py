"""Who may send which request: every code of the protocol, asked by every kind of caller, with the exact answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount, AclSection
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.access import ADMIN as ADMIN_ONLY
from flintmq.core.kernel.ports.access import Access, AccessRule, Caller
from flintmq.plugins.acl.account_store import AccountStore
from flintmq.plugins.acl.authenticator import AclAuthenticator
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.header_codec import SIGNATURE
from flintmq.remoting.wire.signature import add_signature, sign, signed_content, verify
from flintmq.testing.clock import ManualClock
from flintmq.tests.support.request_headers import DECLARED

SECRET = "a secret of some length"
TRACE = "RMQ_SYS_TRACE_TOPIC"
ACCOUNTS = {
    "admin-key": {"admin": True},
    "reader-key": {"topicPerms": ("T=SUB",), "groupPerms": ("G=SUB",)},
    "writer-key": {"topicPerms": ("T=PUB",)},
    "nothing-key": {},
    "local-key": {"admin": True, "whiteRemoteAddress": "10.1.0.{1,2}"},
}
FIELDS = {
    "topic": "T",
    "b": "T",
    "consumerGroup": "G",
    "group": "G",
    "offset": "100",
    "delayLevel": "0",
    "producerGroup": "P",
    "tranStateTableOffset": "0",
    "commitLogOffset": "100",
    "commitOrRollback": "8",
    "msgId": "x",
}
_MQ = {"topic": "T", "brokerName": "b", "queueId": 0}
BODIES = {
    34: {"clientID": "c", "producerDataSet": [{"groupName": "P"}],
         "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}, {"topic": "%RETRY%G"}]}]},
    41: {"clientId": "c", "consumerGroup": "G", "mqSet": [_MQ]},
    42: {"clientId": "c", "consumerGroup": "G", "mqSet": [_MQ]},
    46: {"clientId": "c", "group": "G", "subscriptionData": {"topic": "T"}},
}  # fmt: skip

# Written by hand, apart from the code: what a reader or a writer of topic T (and group G) may send, and what not.
READER = {11, 12, 14, 15, 33, 34, 35, 36, 38, 41, 42, 46, 203, 208, 303, 352, 361}
WRITER = {10, 37, 310, 320, 324, 325}
EITHER = {29, 30, 31, 32, 202, 300, 351}
EVERY_ACCOUNT = {101, 105, 106, 219, 304, 305}
ADMIN = {17, 21, 25, 26, 28, 43, 45, 50, 51, 52, 53, 54, 100, 102, 103, 104, 200, 201, 204, 205, 206, 207, 215, 216, 222, 223,
         224, 306, 307, 308, 309, 311, 312, 313, 314, 315, 316, 317, 318, 319, 321, 322, 323, 327, 328, 329, 9_000}  # fmt: skip
PUSHED = {39, 40, 220, 221, 326}
AUDITED = {17, 25, 50, 51, 53, 100, 102, 200, 205, 207, 215, 216, 222, 306, 309, 314, 316, 318, 323, 327, 329}
"""Acts that change something for others."""
NOBODY = {13, 22, 23, 27, 209, 210, 211, 212, 213, 214, 301, 302}


EXTRA = {60_001: AccessRule(Access.CLIENT), 60_002: ADMIN_ONLY, 60_003: AccessRule(Access.PUBLIC)}


def caller(host: str, code: int, fields: Mapping[str, str], body: bytes) -> Caller:
    """A request as a server shows it to an authenticator: with what the code's declaration says."""
    return Caller(host, code, fields, body, DECLARED[code].needs if code in DECLARED else None)


def authenticator(
    tmp_path: Path, *, strict: bool = False, window_ms: int = 0, white: tuple[str, ...] = ()
) -> AclAuthenticator:
    accounts = tuple(
        AclAccount(accessKey=key, secretKey=Secret(SECRET), **more)  # type: ignore[arg-type]
        for key, more in ACCOUNTS.items()
    )
    clock = ManualClock()
    section = AclSection(accounts=accounts, global_white_remote_addresses=white)
    store = AccountStore(section, tmp_path / "none.yml", clock)
    made = AclAuthenticator(store, clock, trace_topic=TRACE, extra=EXTRA, strict=strict, replay_window_ms=window_ms)
    made.topic_at = lambda offset: "T" if offset == 100 else None
    return made


def asked(
    code: int,
    key: str | None = "admin-key",
    *,
    secret: str = SECRET,
    fields: Mapping[str, str] = FIELDS,
    body: bytes | None = None,
    host: str = "127.0.0.1",
    signed_at: str = "",
) -> Caller:
    sent = dict(fields)
    content = json.dumps(BODIES.get(code, {})).encode() if body is None else body
    if key is not None:
        add_signature(sent, content, key, Secret(secret), signed_at)
    return caller(host, code, sent, content)


def outcome(door: AclAuthenticator, caller: Caller) -> str:
    """``ok``, ``3`` (not supported), or the reason of a refusal."""
    try:
        door.authenticate(caller)
    except RefusedError as error:
        return {1: error.reason, 3: "3"}[error.code] if SECRET not in error.remark else "the secret is told"
    return "ok"


def expected(code: int, who: str) -> str:
    if code in PUSHED:
        return "acl.pushed"
    if code in NOBODY:
        return "3"
    if code in ADMIN:
        return "ok" if who == "admin-key" else "acl.admin"
    allowed = {
        "admin-key": True,
        "reader-key": code in READER | EITHER | EVERY_ACCOUNT,
        "writer-key": code in WRITER | EITHER | EVERY_ACCOUNT,
        "nothing-key": code in EVERY_ACCOUNT,
    }
    return "ok" if allowed[who] else "acl.permission"


def test_every_request_code_has_exactly_one_access_rule() -> None:
    """A declaration without a rule is refused to everybody, and this says so before a user does."""
    classes = (READER, WRITER, EITHER, EVERY_ACCOUNT, ADMIN, PUSHED, NOBODY)
    assert sorted(code for group in classes for code in group) == sorted(map(int, RequestCode))
    assert {one.code for one in DECLARED.values() if one.needs is None} == set()
    assert {one.code for one in DECLARED.values() if one.audited} == AUDITED


@pytest.mark.parametrize("code", sorted(RequestCode), ids=lambda code: code.name)
def test_requests_of_every_code_require_a_valid_signature_and_an_authorized_account(
    code: RequestCode, tmp_path: Path
) -> None:
    """No key, an unknown one, a wrong secret, a changed request, a replay; then rights of four kinds of account."""
    door = authenticator(tmp_path)
    assert outcome(door, asked(code, None)) == "acl.unsigned"
    assert outcome(door, asked(code, "nobody-key")) == "acl.unknown"
    for who in ACCOUNTS:
        if who != "local-key":
            assert outcome(door, asked(code, who, secret="another secret")) == "acl.signature"
    genuine = asked(code)
    changed = caller(genuine.remote_host, code, {**genuine.ext_fields, "topic": "U"}, genuine.body)
    assert outcome(door, changed) == "acl.signature"
    assert outcome(door, caller("127.0.0.1", code, genuine.ext_fields, genuine.body + b" ")) == "acl.signature"
    stripped = {name: value for name, value in genuine.ext_fields.items() if name != SIGNATURE}
    assert outcome(door, caller("127.0.0.1", code, stripped, genuine.body)) == "acl.signature"
    for who in ("admin-key", "reader-key", "writer-key", "nothing-key"):
        assert outcome(door, asked(code, who)) == expected(code, who), who
        assert outcome(door, asked(code, who)) == expected(code, who), "the protocol cannot tell a replayed request"

    windowed = authenticator(tmp_path, window_ms=5_000)
    now_ms = windowed._clock.now_ms()
    assert outcome(windowed, asked(code)) == "acl.replayed", "not dated"
    assert outcome(windowed, asked(code, signed_at=f"{now_ms - 5_001}-a")) == "acl.replayed"
    fresh = asked(code, signed_at=f"{now_ms}-b")
    assert outcome(windowed, fresh) == expected(code, "admin-key")
    assert outcome(windowed, fresh) == "acl.replayed"


@pytest.mark.parametrize("code", [330, 999, 60_000, 200_050, -1])
def test_unknown_request_codes_are_refused(code: int, tmp_path: Path) -> None:
    """Codes of newer brokers and of plugins nobody classified: to strangers as everything, to others as not supported."""
    door = authenticator(tmp_path)
    assert outcome(door, asked(code, None)) == "acl.unsigned"
    assert outcome(door, asked(code)) == "3"


def test_the_acl_extra_codes_setting_defines_who_may_send_the_request_codes_of_plugins(tmp_path: Path) -> None:
    """``acl.extra_codes``."""
    door = authenticator(tmp_path)
    assert [outcome(door, asked(60_001, who)) for who in (None, "nothing-key")] == ["acl.unsigned", "ok"]
    assert [outcome(door, asked(60_002, who)) for who in ("nothing-key", "admin-key")] == ["acl.admin", "ok"]
    assert outcome(door, asked(60_003, None)) == "ok"


@pytest.mark.parametrize(("code", "name"), [(10, "topic"), (310, "b"), (320, "b"), (324, "topic"), (325, "b")])
def test_a_send_request_with_full_or_abbreviated_field_names_needs_permission_for_its_topic(
    code: int, name: str, tmp_path: Path
) -> None:
    """Batches need PUB; a retry topic needs its own group, whatever group the request names; a trace is taken, nothing else."""
    door = authenticator(tmp_path)
    other = {**FIELDS, name: "U", "topic" if name == "b" else "b": "T"}
    assert outcome(door, asked(code, "writer-key", fields=other)) == "acl.permission"
    own, foreign = {**FIELDS, name: "%RETRY%G"}, {**FIELDS, name: "%RETRY%H", "group": "G", "a": "G"}
    assert outcome(door, asked(code, "reader-key", fields=own)) == "ok"
    assert outcome(door, asked(code, "reader-key", fields=foreign)) == "acl.permission"
    assert outcome(door, asked(code, "nothing-key", fields={**FIELDS, name: TRACE})) == "ok"
    assert outcome(door, asked(11, "nothing-key", fields={**FIELDS, "topic": TRACE})) == "acl.permission"
    for field in (name, None):
        fields = {} if field is None else {**FIELDS, field: ""}
        assert outcome(door, asked(code, "writer-key", fields=fields)) == "acl.unspecific"


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (34, {"consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}, {"topic": "U"}]}]}),
        (34, {"consumerDataSet": [{"groupName": "G"}, {"groupName": "H"}]}),
        (34, {"consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "%RETRY%H"}]}]}),
        (41, {"consumerGroup": "G", "mqSet": [_MQ, {**_MQ, "topic": "U"}]}),
        (42, {"consumerGroup": "H", "mqSet": []}),
        (46, {"group": "G", "subscriptionData": {"topic": "U"}}),
    ],
)
def test_a_request_body_with_a_topic_or_group_without_permission_is_refused(
    code: int, body: object, tmp_path: Path
) -> None:
    """One foreign topic or group among one's own is enough to refuse all of it."""
    door = authenticator(tmp_path)
    assert outcome(door, asked(code, "reader-key", body=json.dumps(body).encode())) == "acl.permission"
    assert outcome(door, asked(code, "reader-key", body=b"{")) == "acl.unspecific"


@pytest.mark.parametrize(("code", "name"), [(33, "offset"), (36, "offset"), (37, "commitLogOffset")])
def test_requests_by_physical_offset_need_permission_for_the_topic_of_the_message(
    code: int, name: str, tmp_path: Path
) -> None:
    """Otherwise a reader of one topic could view every message, or have it sent back into a group of its own."""
    door = authenticator(tmp_path)
    topics = {100: "T", 200: "U", 300: "%RETRY%G", 400: "%RETRY%H"}
    door.topic_at = topics.get
    who = "writer-key" if code == 37 else "reader-key"
    results = {place: outcome(door, asked(code, who, fields={**FIELDS, name: str(place)})) for place in (*topics, 500)}
    retry = "acl.permission" if code == 37 else "ok"
    assert results == {100: "ok", 200: "acl.permission", 300: retry, 400: "acl.permission", 500: "ok"}


def test_a_request_from_an_allowed_address_still_needs_a_valid_signature_by_default(
    tmp_path: Path,
) -> None:
    """``compat: safe``: everyone signs; who is not on a list that there is may not come in."""
    door = authenticator(tmp_path)
    assert outcome(door, asked(25, "local-key", host="10.1.0.2")) == "ok"
    assert outcome(door, asked(25, "local-key", host="10.1.0.3")) == "acl.address"
    assert outcome(door, asked(25, "local-key", host="10.1.0.2", secret="another secret")) == "acl.signature"
    door = authenticator(tmp_path, white=("10.1.*.*", "127.0.0.1"))
    assert outcome(door, asked(25, None)) == "acl.unsigned"
    assert outcome(door, asked(25)) == "ok"
    assert outcome(door, asked(25, host="10.2.0.1")) == "acl.address"
    assert outcome(door, asked(25, "local-key")) == "acl.address"


def test_requests_from_whitelisted_addresses_need_no_signature_in_rocketmq_compatible_mode(
    tmp_path: Path,
) -> None:
    """``compat: strict``: a listed address needs no signature, globally not even a key."""
    door = authenticator(tmp_path, strict=True)
    assert outcome(door, asked(25, "local-key", host="10.1.0.1", secret="another secret")) == "ok"
    assert outcome(door, asked(25, "local-key", secret="another secret")) == "acl.signature"
    assert outcome(door, asked(25, "local-key")) == "ok"
    door = authenticator(tmp_path, strict=True, white=("127.0.0.1",))
    assert outcome(door, asked(25, None)) == "ok"
    assert outcome(door, asked(25, None, host="127.0.0.2")) == "acl.unsigned"


def test_a_signature_computed_without_the_field_unique_key_query_is_accepted(tmp_path: Path) -> None:
    """RocketMQ's client signs _UNIQUE_KEY_QUERY, RocketMQ's broker verifies without it."""
    door = authenticator(tmp_path)
    fields = {**FIELDS, "key": "k", "_UNIQUE_KEY_QUERY": "true", "AccessKey": "reader-key"}
    for without in ("", "_UNIQUE_KEY_QUERY"):
        signature = sign(Secret(SECRET), signed_content(fields, b"", without=without))
        assert outcome(door, caller("127.0.0.1", 12, {**fields, SIGNATURE: signature}, b"")) == "ok"
    assert outcome(door, caller("127.0.0.1", 12, {**fields, SIGNATURE: "x"}, b"")) == "acl.signature"


def test_a_request_signature_equals_the_hmac_sha1_that_openssl_computes() -> None:
    """Base64 of what ``openssl dgst -sha1 -hmac`` makes of the values in the order of their names, and the body."""
    fields = {"AccessKey": "flintadmin", "a": "1", "topic": "T"}
    assert signed_content(fields, b"body") == b"flintadmin1Tbody"
    assert sign(Secret("flintsecret"), b"flintadmin1Tbody") == "renkm20dS0jlyBGAQuqmqMw4vpA="


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=6), st.binary(max_size=40))
def test_a_signature_is_verified_only_with_the_right_secret_and_an_unchanged_body(
    fields: dict[str, str], body: bytes
) -> None:
    """Whatever the names, the values and the body; and nothing but the right secret will do."""
    signed = dict(fields)
    add_signature(signed, body, "some-key", Secret(SECRET), "")
    assert verify(Secret(SECRET), signed, body)
    assert not verify(Secret(SECRET + "x"), signed, body)
    assert not verify(Secret(SECRET), signed, body + b"x")
