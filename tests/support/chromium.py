"""Headless Chromium for tests of pages: the machine's own, driven by Playwright; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REQUIRED: Final = "FLINTMQ_REQUIRE_BROWSER"
SCREENSHOTS: Final = "FLINTMQ_SCREENSHOTS"
"""The folder that keeps the pictures; by default they go with the test's own folder."""
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LIMIT_MS: Final = 30_000
PHONE: Final = {"width": 360, "height": 740}
DESK: Final = {"width": 1280, "height": 900}


def missing() -> str:
    """Return why there is no browser here; empty when there is one."""
    for name in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed (the extra 'browser')"
    if shutil.which("chromium") is None:
        return "no chromium on the PATH"
    return ""


def need_browser() -> None:
    """Skip the test where there is no browser; fail it there when FLINTMQ_REQUIRE_BROWSER is set."""
    why = missing()
    if why and os.environ.get(REQUIRED):
        pytest.fail(f"a browser is required here: {why}")
    if why:
        pytest.skip(f"needs a browser: {why}")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser, with a profile of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[*FLAGS])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A window on the console, in which every message of the browser's console is an error of the test.

    Args:
        browser: of :func:`chromium`.
        address: ``host:port`` of the console.
        folder: where pictures go where no environment variable says otherwise.
        options: of the window: ``viewport``, ``color_scheme``, ``java_script_enabled``.
    """

    def __init__(self, browser: Browser, address: str, folder: Path, **options: Any) -> None:
        self.address = address
        self._folder = Path(os.environ.get(SCREENSHOTS) or folder)
        self.context = browser.new_context(**({"viewport": DESK} | options))
        self.context.set_default_timeout(LIMIT_MS)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: set[str] = set()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.add(request.url.split("/")[2]))

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.context.close()
        if error is None:
            assert not self.complaints
            assert self.asked <= {self.address}, "a page asks another host"

    def go(self, path: str) -> Page:
        answer = self.page.goto(f"http://{self.address}{path}")
        assert answer is not None
        assert answer.status == 200, f"{path}: {answer.status}"
        return self.page

    def picture(self, name: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{name}.png"
        self.page.screenshot(path=path, full_page=True)
        return path

    def check_width(self) -> None:
        """No page is wider than its window: only tables may be scrolled, inside."""
        width = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], f"{self.page.url} is {width[0]} wide in a window of {width[1]}"

    def check_access(self) -> None:
        """What axe-core calls serious or critical is an error, contrast among it."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page, options={"resultTypes": ["violations"]}).response["violations"]
        told = [
            f"{one['id']}: {one['help']}: {[node['html'][:120] for node in one['nodes'][:3]]}"
            for one in found
            if one["impact"] in ("serious", "critical", "moderate")
        ]
        assert not told, f"{self.page.url}: {told}"
