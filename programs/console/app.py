"""Assembles the console: its shared objects, its routes and its templates."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from flintmq import __version__
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.log_events import event_log
from flintmq.programs.console import texts
from flintmq.programs.console.audit import AuditLog
from flintmq.programs.console.clusters import Clusters
from flintmq.programs.console.guard import Guard
from flintmq.programs.console.hours import Hours
from flintmq.programs.console.pages import ROUTES
from flintmq.programs.console.sessions import Confirmations, Sessions, Throttle
from flintmq.programs.console.web import browser_id_of, problem, segment, to

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

log = event_log("flintmq.console")

LOOKS_AT_ONCE_MAX: Final = 2
DOWNLOADS_MAX: Final = 8
"""Maximum number of message bodies that are downloaded at the same time. Each body occupies up to 4 MiB of memory until the
browser has received it."""
FOLDER: Final = Path(__file__).parent


class Console:
    """The objects that all pages of the console share. For the loop thread only.

    Args:
        name_servers: ``host:port;host:port`` of the cluster.
        audit_file: the file for the log of changes; None to keep it in memory.
        history_file: the file for the last day's figures; None to keep them in memory.
        ssl_context: for encrypted connections to the cluster.
        clock: the clock of all parts of the console.
    """

    def __init__(
        self,
        name_servers: str,
        *,
        audit_file: Path | None = None,
        history_file: Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.clock = clock
        self.clusters = Clusters(name_servers, clock, ssl_context)
        self.sessions = Sessions(clock)
        self.confirmations = Confirmations(clock)
        self.throttle = Throttle(clock)
        self.logins_under_way = 0
        self.looking = asyncio.Semaphore(LOOKS_AT_ONCE_MAX)
        """Semaphore that a page holds while it has bodies of messages in memory. It limits the number of these pages."""
        self.downloading = asyncio.Semaphore(DOWNLOADS_MAX)
        self.audit = AuditLog(clock, audit_file)
        self.hours = Hours(clock, history_file)
        self._recorder: asyncio.Task[None] | None = None
        self.templates = _templates()

    def start(self) -> None:
        """Start to record a sample of the cluster's figures each minute, until :meth:`close`."""
        self._recorder = asyncio.create_task(self.hours.record(self.clusters.any_taken), name="history of the console")

    async def close(self) -> None:
        """Stop recording samples of the cluster's figures, and close all connections to the cluster."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.cancel()
            await asyncio.gather(recorder, return_exceptions=True)
        await self.clusters.close()


def make_app(console: Console, host_names: Sequence[str] = ()) -> Starlette:
    """Return the console's ASGI application.

    Args:
        console: the shared objects; the caller closes them.
        host_names: see :class:`~flintmq.programs.console.guard.Guard`.
    """
    app = Starlette(
        routes=[
            *ROUTES,
            Route("/healthz", _healthz, methods=["GET"]),
            Mount("/static", StaticFiles(directory=FOLDER / "static"), name="static"),
        ],
        middleware=[Middleware(Guard, host_names=host_names)],
        exception_handlers={HTTPException: _http_error, 500: _fault},
    )
    app.state.console = console
    return app


async def _healthz(_request: Request) -> Response:
    """Answer that the console runs, whatever the state of the cluster."""
    return PlainTextResponse("ok\n")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {404: "There is no such page.", 405: "This page does not take such a request."}
    return problem(
        request.app.state.console,
        request,
        browser_id_of(request),
        text.get(error.status_code, error.detail),
        error.status_code,
    )


async def _fault(request: Request, error: Exception) -> Response:
    log.error("console.page_failed", "the page %(page)s failed", page=request.url.path, exc_info=error)
    text = "The console failed; its log has the error. It is not known whether the page's change was made."
    return problem(request.app.state.console, request, browser_id_of(request), text, 500)


def _templates() -> jinja2.Environment:
    """Return the environment of the page templates. The environment escapes every value, and a missing value is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"version": __version__, "to": to, "ROWS_MAX": texts.ROWS_MAX}
    environment.filters |= {"segment": segment, **texts.FILTERS}
    return environment
