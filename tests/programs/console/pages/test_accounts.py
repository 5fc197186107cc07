"""Permissions: the brokers' accounts are listed, saved and deleted by those who may, and no page has a secret."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.core.errors import RefusedError
from flintmq.remoting.client import AclSigner, AdminClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import visiting

from .test_account import ACCOUNTS, ADMIN, OTHER_SECRET, READER, SECRET
from .test_cluster import check_form

NEW_SECRET = "a secret of the new one"
SAVED = {
    "key": "shop-key",
    "secret": NEW_SECRET,
    "default_topic_perm": "DENY",
    "default_group_perm": "SUB",
    "topic_perms": "Orders=PUB|SUB, Audit=SUB",
    "group_perms": "",
}


@pytest.fixture(params=[True, False], ids=["listed", "not listed"])
def is_listed(request: pytest.FixtureRequest) -> bool:
    """Whether the brokers list their accounts."""
    return bool(request.param)


@pytest.fixture
def guarded(tmp_path: Path, is_listed: bool) -> Iterator[EmbeddedCluster]:
    """A cluster with access control."""
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    file.chmod(0o600)
    settings = (
        "acl.enable=true",
        f"acl.file={file}",
        f"acl.list_accounts={str(is_listed).lower()}",
        f"namesrv.access_key={ADMIN}",
        f"namesrv.secret_key={SECRET}",
    )
    with EmbeddedCluster(tmp_path / "stores", layout={"broker-a": 0}, settings=settings) as cluster:
        yield cluster


async def is_taken(cluster: EmbeddedCluster, key: str, secret: str) -> bool:
    """Return whether the brokers take an account."""
    async with AdminClient(cluster.name_server.address, hooks=(AclSigner(key, secret),)) as admin:
        try:
            (address,) = (await admin.masters()).values()
            await admin.client.ask(address, request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
        except RefusedError:
            return False
        return True


def test_an_administrator_creates_and_deletes_accounts(
    guarded: EmbeddedCluster, is_listed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A new account works at once, and a deleted one no more; its secret is in no page, no log and no audit."""
    caplog.set_level(logging.DEBUG)

    async def run() -> None:
        async with visiting(guarded.name_server.address) as browser:
            await browser.log_in(ADMIN, SECRET)
            page = await browser.get("/accounts")
            check_form(page)
            assert (READER in page.plain) is is_listed
            assert SECRET not in page.text
            assert OTHER_SECRET not in page.text
            done = await browser.post("/account/save", SAVED)
            assert done.status == 200, done.plain
            check_form(done)
            assert await is_taken(guarded, "shop-key", NEW_SECRET)
            if is_listed:
                assert "Orders=PUB|SUB, Audit=SUB" in (await browser.get("/accounts")).plain
                form = await browser.get("/accounts?key=shop-key")
                check_form(form)
                values = {
                    one["name"]: one.get("value", "") for tag, one in form.elements if tag == "input" and "name" in one
                }
                assert (values["key"], values["topic_perms"]) == ("shop-key", "Orders=PUB|SUB,Audit=SUB")
                assert [one["value"] for tag, one in form.elements if tag == "option" and "selected" in one] == [
                    "DENY",
                    "SUB",
                ]
                assert (await browser.get("/accounts?key=no-such")).status == 404
                kept = {"key": "shop-key", "secret": "", "topic_perms": "", "group_perms": "g=PUB"}
                assert (await browser.post("/account/save", kept)).status == 200
                plain = (await browser.get("/accounts")).plain
                assert "DENY, Orders=PUB|SUB, Audit=SUB SUB, g=PUB" in plain
                assert await is_taken(guarded, "shop-key", NEW_SECRET)
            preview = await browser.get("/account/delete?key=shop-key")
            check_form(preview)
            assert (await browser.confirm(preview)).status == 200
            assert not await is_taken(guarded, "shop-key", NEW_SECRET)
            audit = await browser.get("/audit")
            assert "save account shop-key done: default_topic_perm DENY" in audit.plain
            assert "delete account shop-key done: gone" in audit.plain
            for text in (done.text, preview.text, audit.text, caplog.text):
                assert NEW_SECRET not in text

    asyncio.run(run())


def test_a_forbidden_account_change_is_refused_and_audited(guarded: EmbeddedCluster) -> None:
    """The brokers decide, with the account that is logged in: here one that may only read."""

    async def run() -> None:
        async with visiting(guarded.name_server.address) as browser:
            await browser.log_in(READER, OTHER_SECRET)
            answer = await browser.post("/account/save", SAVED)
            assert answer.status == 403, answer.plain
            assert not await is_taken(guarded, "shop-key", NEW_SECRET)
            preview = await browser.get("/topic/change/preview?name=New&queues=4&perm=rw")
            if preview.status == 200:
                preview = await browser.confirm(preview)
            assert preview.status == 403
            assert "save account shop-key failed:" in (await browser.get("/audit")).plain

    asyncio.run(run())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"key": ""}, "Name the account"),
        ({"secret": "short"}, "less than 7 characters"),
        ({"default_topic_perm": "ALL"}, "A permission is one of"),
        ({"topic_perms": "Orders:PUB"}, "must be written NAME=PUB"),
        ({"group_perms": "g=ROOT"}, "must be written NAME=PUB"),
    ],
)
def test_an_invalid_account_form_is_refused(tmp_path: Path, changed: dict[str, str], says: str) -> None:
    """Before a broker is asked; and without access control the brokers say so."""

    async def run(cluster: EmbeddedCluster) -> None:
        async with visiting(cluster.name_server.address) as browser:
            page = await browser.get("/accounts")
            check_form(page)
            assert "access control is off" in page.plain
            answer = await browser.post("/account/save", SAVED | changed)
            assert (answer.status, says in answer.plain) == (400, True), answer.plain
            off = await browser.post("/account/save", SAVED)
            assert off.status >= 400
            assert "access control is off" in off.plain

    with EmbeddedCluster(tmp_path / "stores", layout={"broker-a": 0}) as cluster:
        asyncio.run(run(cluster))
