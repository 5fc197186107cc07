"""A browser for tests of the console: it asks the ASGI application in the same loop, and keeps cookies; it runs no scripts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import attrs

from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.programs.console.app import Console, make_app

HOST = "localhost:9880"
_VOID = {"meta", "link", "input", "br", "hr", "img"}


@attrs.define
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def plain(self) -> str:
        """What people read, on one line."""
        reader = _Reader()
        reader.feed(self.text)
        return " ".join(" ".join(reader.texts).split())

    @property
    def elements(self) -> list[tuple[str, dict[str, str]]]:
        """Every element with its attributes; what is not balanced fails the test."""
        reader = _Reader()
        reader.feed(self.text)
        reader.close()
        assert not reader.open, reader.open
        return reader.elements


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attributes}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


class Browser:
    """Somebody who visits the console."""

    def __init__(self, console: Console, *, client: str = "127.0.0.1") -> None:
        self.console = console
        self._app = make_app(console)
        self._client = client
        self.cookie = ""

    async def get(self, path: str, **headers: str) -> Answer:
        return await self._ask("GET", path, b"", headers)

    async def post(self, path: str, form: dict[str, Any] | bytes, *, token: bool = True, **headers: str) -> Answer:
        """Send a form as a page of the console does: with its token, and from its own origin."""
        if isinstance(form, dict):
            form = urlencode(form | ({"token": self.token} if token else {})).encode()
        own = {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{HOST}"}
        return await self._ask("POST", path, form, own | headers)

    async def confirm(self, preview: Answer, **more: str) -> Answer:
        """Send the form with which a preview is confirmed."""
        (path,) = {at["action"] for tag, at in preview.elements if tag == "form" and at["action"].endswith("/now")}
        hidden = [at for tag, at in preview.elements if tag == "input" and at.get("type") == "hidden"]
        fields = {at["name"]: at["value"] for at in hidden if at["name"] != "token"}
        return await self.post(path, fields | more)

    @property
    def token(self) -> str:
        return self.console.sessions.token(self.cookie)

    async def log_in(self, access_key: str, secret_key: str) -> Answer:
        await self.get("/login")
        return await self.post("/login", {"access_key": access_key, "secret_key": secret_key, "next": "/"})

    async def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        given = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in given.items() if value}
        if self.cookie:
            sent.setdefault("cookie", f"flintmq_console={self.cookie}")
        where, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": where,
            "raw_path": where.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
            "client": (self._client, 50_000),
            "server": ("localhost", 9880),
        }
        parts = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]
        answers: list[dict[str, Any]] = []

        async def receive() -> Any:
            return parts.pop(0)

        async def send(message: Any) -> None:
            answers.append(message)

        try:
            await self._app(scope, receive, send)
        except Exception:
            if not answers:  # the server logs what a page raised after its answer, which says 500
                raise
        start = answers[0]
        found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        cookie = re.match(r"flintmq_console=([^;]*)", found.get("set-cookie", ""))
        if cookie is not None:
            self.cookie = cookie.group(1)
        return Answer(start["status"], found, b"".join(message.get("body", b"") for message in answers[1:]))


@asynccontextmanager
async def visiting(
    name_servers: str, *, clock: Clock = SYSTEM_CLOCK, client: str = "127.0.0.1"
) -> AsyncIterator[Browser]:
    """Have a console of a cluster, and a browser that visits it."""
    console = Console(name_servers, clock=clock)
    try:
        yield Browser(console, client=client)
    finally:
        await console.close()
