"""The brokers' own accounts decide: nobody sees a page without one, and the secret stays in the console's memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.programs.console.sessions import FREE_TRIES
from flintmq.remoting.client import AclSigner, AdminClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.remoting.wire.headers_admin import CreateAccessConfigRequestHeader, DeleteAccessConfigRequestHeader
from flintmq.testing.clock import ManualClock
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.tests.support.console_visits import visiting

ADMIN, SECRET = "admin-key", "the admin's secret"
READER, OTHER_SECRET = "reader-key", "the reader's secret"
ACCOUNTS = f"""accounts:
- {{accessKey: {ADMIN}, secretKey: "{SECRET}", admin: true}}
- {{accessKey: {READER}, secretKey: "{OTHER_SECRET}", admin: false, defaultTopicPerm: SUB, defaultGroupPerm: SUB}}
"""
PAGES = ("/", "/brokers", "/broker?name=broker-a", "/topics", "/topic?name=T", "/groups", "/alarms", "/audit")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    file.chmod(0o600)
    settings = (
        "acl.enable=true",
        f"acl.file={file}",
        f"namesrv.access_key={ADMIN}",
        f"namesrv.secret_key={SECRET}",
    )
    with EmbeddedCluster(tmp_path / "stores", layout={"broker-a": 0}, settings=settings) as cluster:
        yield cluster


def test_every_page_requires_a_login(guarded: EmbeddedCluster) -> None:
    async def run() -> None:
        async with visiting(guarded.name_server.address) as browser:
            for path in PAGES:
                answer = await browser.get(path)
                assert answer.status == 303, path
                assert answer.headers["location"].startswith("/login?next=%2F")
                assert not answer.body
            assert (await browser.post("/logout", {})).status == 403  # it has no cookie yet
            await browser.get("/login")
            for path in ("/reset?group=g&topic=T&to=first", "/resend?id=x&how=copy", "/replay?group=g", "/body?id=x"):
                assert (await browser.get(path)).status in (303, 404), path
            for path in ("/reset/now", "/resend/now", "/replay/now"):
                answer = await browser.post(path, {"group": "g", "topic": "T", "to_ms": "0", "confirm": "x"})
                assert (answer.status, "nothing was done" in answer.plain) == (401, True), path
            answer = await browser.post("/logout", {})
            assert answer.status == 401
            assert "broker-a" not in answer.text

    asyncio.run(run())


def test_an_administrator_account_sees_every_page(guarded: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    """An administrator everything; the secret is in no page and no line of the log."""
    caplog.set_level(logging.DEBUG)

    async def run() -> None:
        async with visiting(guarded.name_server.address) as browser:
            before = browser.cookie
            assert (await browser.log_in(ADMIN, SECRET)).headers["location"] == "/"
            assert browser.cookie != before
            for path in ("/", "/brokers", "/broker?name=broker-a", "/topics", "/groups", "/alarms", "/audit"):
                answer = await browser.get(path)
                assert answer.status == 200, path
                assert SECRET not in answer.text
                assert ADMIN in answer.plain
            assert "broker-a" in (await browser.get("/")).plain
            old = browser.cookie
            assert (await browser.post("/logout", {})).headers["location"] == "/login"
            browser.cookie = old
            assert (await browser.get("/")).status == 303
            assert not browser.console.clusters.accounts.keys() - {""}

    asyncio.run(run())
    assert SECRET not in caplog.text
    assert "admin-key logged in from 127.0.0.1" in caplog.text


def test_a_page_shows_that_the_brokers_refused_a_request_of_the_logged_in_account(guarded: EmbeddedCluster) -> None:
    """It is let in, and the brokers refuse what it may not see; the page says who refused."""

    async def run() -> None:
        async with visiting(guarded.name_server.address) as browser:
            assert (await browser.log_in(READER, OTHER_SECRET)).status == 303
            page = await browser.get("/brokers")
            assert page.status == 200
            assert "AclException" in page.plain
            assert "commitLogMaxOffset" not in (await browser.get("/broker?name=broker-a")).plain

    asyncio.run(run())


@pytest.mark.parametrize(
    ("access_key", "secret"),
    [(ADMIN, "wrong"), ("nobody", SECRET), ("<b>", "x"), ("a\nb\x1b[2Jc", "c\x00d"), ("ü", "ü")],
)
def test_a_login_with_wrong_keys_is_refused(
    guarded: EmbeddedCluster, access_key: str, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with visiting(guarded.name_server.address) as browser:
            answer = await browser.log_in(access_key, secret)
            assert answer.status == 401
            assert "do not take" in answer.plain
            assert "<b>" not in answer.text
            assert (await browser.get("/")).status == 303
            assert not browser.console.clusters.accounts.keys() - {""}
            assert (await browser.log_in(access_key, "")).status == 400
            assert (await browser.log_in("x" * 300, "y")).status == 400

    asyncio.run(run())
    lines = [record.getMessage() for record in caplog.records]
    assert secret not in lines
    refused = [line for line in lines if "was refused" in line]
    assert len(refused) == 1
    assert refused[0].isprintable()  # an access key forges no line


def test_repeated_failed_logins_are_delayed(guarded: EmbeddedCluster) -> None:
    """For this address; the right secret has to wait, too, so that it cannot be told from a wrong one."""

    async def run() -> None:
        clock = ManualClock()
        async with visiting(guarded.name_server.address, clock=clock) as browser:
            for _ in range(FREE_TRIES):
                assert (await browser.log_in(ADMIN, "wrong")).status == 401
            answer = await browser.log_in(ADMIN, SECRET)
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            clock.advance_ms(1_000)
            assert (await browser.log_in(ADMIN, SECRET)).status == 303

    asyncio.run(run())


@pytest.mark.parametrize("after", ["//evil.example/", "https://evil.example", "/\\evil.example", "x", "", "/a\nb"])
def test_a_login_redirects_only_to_pages_of_the_console(guarded: EmbeddedCluster, after: str) -> None:
    async def run() -> None:
        async with visiting(guarded.name_server.address) as browser:
            await browser.get("/login")
            form = {"access_key": ADMIN, "secret_key": SECRET, "next": after}
            assert (await browser.post("/login", form)).headers["location"] == "/"
            assert (await browser.post("/login", form | {"next": "/topic?name=T"})).headers[
                "location"
            ] == "/topic?name=T"

    asyncio.run(run())


def test_a_login_without_the_csrf_token_or_from_another_site_is_refused(guarded: EmbeddedCluster) -> None:
    """Else a foreign page could log a visitor in as somebody else, and see what is typed then."""

    async def run() -> None:
        async with visiting(guarded.name_server.address) as browser:
            await browser.get("/login")
            form = {"access_key": ADMIN, "secret_key": SECRET}
            assert (await browser.post("/login", form, token=False)).status == 403
            assert (await browser.post("/login", form, origin="http://evil.example")).status == 403
            assert (await browser.post("/login", form, sec_fetch_site="cross-site")).status == 403
            assert (await browser.get("/")).status == 303

    asyncio.run(run())


def test_a_deleted_account_is_logged_out(guarded: EmbeddedCluster) -> None:
    """Within seconds, although its pages were shown before."""

    async def run() -> None:
        clock = ManualClock()
        signer: Any = AclSigner(ADMIN, SECRET)
        async with (
            visiting(guarded.name_server.address, clock=clock) as browser,
            AdminClient(guarded.name_server.address, hooks=[signer]) as admin,
        ):
            address = (await admin.masters())["broker-a"]
            header = CreateAccessConfigRequestHeader(access_key="short-lived", secret_key="of some length", admin=True)
            await admin.client.ask(address, request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header))
            assert (await browser.log_in("short-lived", "of some length")).status == 303
            assert (await browser.get("/")).status == 200
            gone = DeleteAccessConfigRequestHeader(access_key="short-lived")
            await admin.client.ask(address, request(RequestCode.DELETE_ACL_CONFIG, gone))
            async with asyncio.timeout(30):
                while (await browser.get("/")).status == 200:
                    clock.advance_ms(11_000)
                    await asyncio.sleep(0.02)
            assert (await browser.get("/")).status == 303
            assert not browser.console.clusters.accounts.keys() - {""}

    asyncio.run(run())
