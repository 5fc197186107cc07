"""People use the console with a browser: the main journeys in headless Chromium, against a broker under load.

Pictures of the pages are kept in the folder that FLINTMQ_SCREENSHOTS names: `.ci/run` names artifacts/console. Without it they
lie in the folders of the tests, which pytest keeps for three runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.console.child import ConsoleChild
from flintmq.programs.cli.child import ServedChild
from flintmq.remoting.client import AdminClient, Message, Producer
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.tests.interop.peer import Peer, fetch_jars
from flintmq.tests.support.chromium import PHONE, Visit, chromium, need_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

T = TypeVar("T")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("browser")]

PAGES = {
    "overview": "/",
    "brokers": "/brokers",
    "broker": "/broker?name=broker-a&id=0",
    "topics": "/topics",
    "topic": "/topic?name=Orders",
    "groups": "/groups",
    "group": "/group?name=billing",
    "messages": "/messages?by=time&topic=Orders",
    "tail": "/tail?topic=Orders",
    "hours": "/hours?span=1",
    "topic-change": "/topic/change?name=Orders",
    "topic-preview": "/topic/change/preview?name=Orders&queues=64&perm=r",
    "topic-delete": "/topic/delete?name=Orders",
    "group-change": "/group/change?name=billing",
    "permissions": "/accounts",
    "backlog": "/backlog",
    "alarms": "/alarms",
    "audit": "/audit",
    "reset": "/reset?group=billing&topic=Orders&to=first",
    "reset-queue": "/reset?group=billing&topic=Orders&queue=broker-a:0&to=offset&offset=1",
    "login": "/login",
}
JAVA_HEAP = {"PEER_HEAP": "-Xms96m -Xmx320m", "PEER_NS_HEAP": "-Xms32m -Xmx96m", "PEER_LOG": "WARN"}


def done(work: Coroutine[Any, Any, T]) -> T:
    """Return what work returns, in a thread of its own: Playwright has a loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


class Load:
    """Sends to a cluster from a thread, some hundred messages a second, until it is stopped."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self.sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as failure:
            self._failure = failure

    async def _send(self) -> None:
        async with Producer("load", self._name_server) as producer:
            while not self._stopping.is_set():
                number = self.sent
                body = f'{{"id": {number}, "note": "<b>not bold</b>"}}'.encode()
                await producer.send(Message("Orders", body, tags="new", keys=f"order-{number}"))
                self.sent += 1
                await asyncio.sleep(0.005)


async def prepared(name_server: str, broker: str) -> None:
    """Have a topic, a group that is behind, and a topic whose name a page must not take for markup."""
    async with AdminClient(name_server) as admin, Producer("p", name_server) as producer:
        async with asyncio.timeout(60):
            while broker not in await admin.masters():  # noqa: ASYNC110 - a server is waited for
                await asyncio.sleep(0.2)
        await admin.create_topic("Orders", queues=2)
        await admin.create_group(SubscriptionGroupConfig(group_name="billing"))
        for number in range(20):
            await producer.send(Message("Orders", b'{"id": %d}' % number, tags="old", keys=f"first-{number}"))
        for queue in range(2):
            await BrokerApi(admin.client, "billing").commit(MessageQueue(broker, queue, "Orders"), 3)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    need_browser()
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[str]:
    """A FlintMQ under load and its console, in processes of their own."""
    store = tmp_path_factory.mktemp("store")
    arguments = ["--store", str(store), "--port", "0", "--namesrv-port", "0", "--set", "listen.vip=false"]
    with ServedChild(arguments) as served:
        done(prepared(served.namesrv, "broker-a"))
        with Load(served.namesrv), consoled(served.namesrv, store) as address:
            yield address


class consoled:  # noqa: N801 - reads as what it gives
    """A console of a cluster, as a process, from a thread that has no loop."""

    def __init__(self, name_server: str, folder: Path) -> None:
        import os

        arguments = ["-n", name_server, "--port", "0", "--audit", str(folder / "audit.jsonl"), "--supervised"]
        self._child = ConsoleChild(arguments, os.environ)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._child.start(), self._loop).result(60)
        return self._child.address

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._child.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["phone", "desk"])
def test_every_console_page_fits_the_screen_width_and_passes_accessibility_checks(
    browser: Browser, console: str, tmp_path: Path, scheme: str, width: str
) -> None:
    """At the width of a phone and of a desk, in the light and in the dark; axe-core finds nothing that matters."""
    options = {"color_scheme": scheme} | ({"viewport": PHONE} if width == "phone" else {})
    with Visit(browser, console, tmp_path, **options) as visit:
        for name, path in PAGES.items():
            visit.go(path)
            visit.picture(f"{name}-{width}-{scheme}")
            visit.check_width()
            visit.check_access()
        visit.go("/messages?by=key&topic=Orders&text=first-7").locator("tbody a").first.click()
        visit.picture(f"message-{width}-{scheme}")
        visit.check_width()
        visit.check_access()


def test_numbers_on_a_console_page_are_updated_live_until_the_user_pauses_the_updates(
    browser: Browser, console: str, tmp_path: Path
) -> None:
    """The page changes by itself, without losing what is focused; paused it does not."""
    with Visit(browser, console, tmp_path) as visit:
        page = visit.go("/topic?name=Orders")
        total = page.locator("dl.tiles div").nth(1).locator("dd")
        before = total.inner_text()
        page.wait_for_function("text => document.querySelectorAll('dl.tiles dd')[1].innerText !== text", arg=before)
        page.get_by_role("button", name="Pause live figures").click()
        assert page.get_by_role("button", name="Resume live figures").get_attribute("aria-pressed") == "true"
        page.evaluate(
            "window.fetched = 0; const f = window.fetch; window.fetch = (...a) => (window.fetched++, f(...a)); 0"
        )
        page.clock.install()
        page.clock.run_for(20_000)
        assert page.evaluate("window.fetched") == 0


@pytest.mark.parametrize("with_scripts", [True, False])
def test_charts_have_text_labels_and_their_values_are_also_shown_in_a_table(
    browser: Browser, console: str, tmp_path: Path, with_scripts: bool
) -> None:
    """Throughput, lag and latency, as pictures that have words and a table; without JavaScript as they were at the loading."""
    with Visit(browser, console, tmp_path, java_script_enabled=with_scripts) as visit:
        page = visit.go("/")
        for name in ("Throughput", "Lag of all groups", "Latency of a send, p99"):
            picture = page.get_by_role("img", name=f"{name}. ")
            if with_scripts and "Latency" not in name:  # which is that of the last minute, and there was none yet
                picture.locator("polyline").first.wait_for(state="attached")
                page.wait_for_function(
                    "() => document.querySelector('polyline').getAttribute('points').split(' ').length > 2"
                )
                box = picture.locator("polyline").first.bounding_box()
                assert box is not None
                assert box["width"] > 0
            assert picture.count() == 1, name
        page.get_by_text("The same as a table").click()
        assert page.get_by_role("region", name="Figures of the last minutes").locator("tbody tr").count() >= 1
        visit.picture(f"charts-{'live' if with_scripts else 'static'}")
        page = visit.go("/group?name=billing")
        assert page.get_by_role("img", name="Lag.").count() == 1


def test_pages_are_usable_by_keyboard(browser: Browser, console: str, tmp_path: Path) -> None:
    """The skip link comes first, what is focused can be seen, and a link leads on."""
    with Visit(browser, console, tmp_path) as visit:
        page = visit.go("/topics")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        visit.picture("skip-link")
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        for _ in range(60):
            page.keyboard.press("Tab")
            style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert style != "none", page.evaluate("document.activeElement.outerHTML")
            if page.evaluate("document.activeElement.textContent") == "Orders":
                break
        page.keyboard.press("Enter")
        page.wait_for_url("**/topic?name=Orders")


def test_a_message_is_found_by_key_and_sent_again(browser: Browser, console: str, tmp_path: Path) -> None:
    """By its key; its body is text, whatever it holds; the copy is in the audit."""
    with Visit(browser, console, tmp_path) as visit:
        page = visit.go("/messages")
        page.get_by_label("Topic", exact=True).fill("Orders")
        page.get_by_label("key", exact=True).check()
        page.get_by_label("Key or id").fill("order-0")
        page.get_by_role("button", name="Find").click()
        page.locator("tbody a").first.click()
        assert "<b>not bold</b>" in page.locator("pre").inner_text()
        assert page.locator("pre b").count() == 0
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert Path(download.value.path()).read_bytes().startswith(b'{"id": 0')
        page.get_by_role("button", name="Send a copy").click()
        visit.picture("resend")
        visit.check_access()
        page.get_by_role("button", name="Send the copy").click()
        assert "has the id" in page.get_by_role("status").first.inner_text()
        page.get_by_role("link", name="Audit").first.click()
        assert "send a copy" in page.locator("tbody").inner_text()


def test_group_offsets_can_be_previewed_and_reset_in_a_browser_without_javascript(
    browser: Browser, console: str, tmp_path: Path
) -> None:
    """And is where the preview said, without JavaScript, too."""
    with Visit(browser, console, tmp_path, java_script_enabled=False) as visit:
        page = visit.go("/group?name=billing")
        page.get_by_label("the first message that is there").check()
        page.get_by_role("button", name="Show what would change").click()
        assert "would be consumed again" in page.locator("main").inner_text()
        visit.picture("reset-preview")
        page.get_by_role("button", name="Move the group").click()
        page.get_by_role("link", name="Back", exact=True).click()
        rows = page.locator("section, div").get_by_role("region", name="Queues").locator("tbody tr")
        assert {rows.nth(number).locator("td").first.inner_text() for number in range(rows.count())} == {"0"}


@pytest.mark.java
def test_console_pages_show_and_change_messages_and_offsets_of_a_java_broker(browser: Browser, tmp_path: Path) -> None:
    """The same pages and journeys: nothing asks for what only FlintMQ answers."""
    fetch_jars()
    peer = Peer(tmp_path, JAVA_HEAP)
    settings = (
        "mappedFileSizeCommitLog=67108864",
        "mappedFileSizeConsumeQueue=20000",
        "maxHashSlotNum=1000",
        "maxIndexNum=4000",
    )
    with peer.name_server(), peer.broker(tmp_path / "store", *settings, "registerNameServerPeriod=10000", kill=True):
        broker = done(only_broker(peer.namesrv))
        done(prepared(peer.namesrv, broker))
        with (
            Load(peer.namesrv),
            consoled(peer.namesrv, tmp_path) as address,
            Visit(browser, address, tmp_path, viewport=PHONE, color_scheme="dark") as visit,
        ):
            visit.go("/")
            visit.page.locator("polyline").first.wait_for(state="attached")
            for name, path in PAGES.items():
                page = visit.go(path.replace("broker-a", broker))
                visit.picture(f"java-{name}")
                visit.check_width()
                visit.check_access()
            page.goto(f"http://{address}/messages?by=key&topic=Orders&text=first-3")
            page.locator("tbody a").first.click()
            assert '"id": 3' in page.locator("pre").inner_text()
            visit.picture("java-message")
            page.get_by_role("button", name="Send a copy").click()
            page.get_by_role("button", name="Send the copy").click()
            assert "has the id" in page.get_by_role("status").first.inner_text()
            page.goto(f"http://{address}/reset?group=billing&topic=Orders&to=first")
            page.get_by_role("button", name="Move the group").click()
            assert "goes on elsewhere in 2 queues" in page.get_by_role("status").first.inner_text()
            page.goto(f"http://{address}/group?name=billing")
            page.locator("input[name=queue]").fill(f"{broker}:1")
            page.get_by_label("this offset of the one queue").check()
            page.locator("input[name=offset]").fill("2")
            page.get_by_role("button", name="Show what would change").click()
            assert page.locator("tbody tr").count() == 1
            page.get_by_role("button", name="Move the group").click()
            assert "goes on at offset 2 of Orders" in page.get_by_role("status").first.inner_text()


async def only_broker(name_server: str) -> str:
    """Return the name of the only broker, once it is registered."""
    async with AdminClient(name_server) as admin, asyncio.timeout(60):
        while not (found := await admin.masters()):  # noqa: ASYNC110 - a server is waited for
            await asyncio.sleep(0.2)
        return next(iter(found))
