"""Pages to log in and out, and the log of changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.log_events import event_log
from flintmq.programs.console.clusters import is_denied
from flintmq.programs.console.web import (
    FormError,
    Visitor,
    browser_id_of,
    failed,
    page,
    problem,
    read_form,
    render,
    safe_next,
    set_cookie,
)

if TYPE_CHECKING:
    from flintmq.programs.console.app import Console

log = event_log("flintmq.console")

_KEY_MAX_CHARS: Final = 256
LOGINS_AT_ONCE_MAX: Final = 8
"""Maximum number of logins that are checked with the brokers at the same time. Further logins are refused, and the user must
try again."""


async def login_form(request: Request) -> Response:
    """Show the login form of the console."""
    console: Console = request.app.state.console
    after = safe_next(request.query_params.get("next", "/"))
    return render(console, request, "login.html", 200, browser_id_of(request), after=after, error="", access_key="")


async def login(request: Request) -> Response:
    """Check an access key and its secret key by a signed request, which the brokers accept or refuse."""
    console: Console = request.app.state.console
    browser_id = browser_id_of(request)
    try:
        fields = await read_form(request)
        if not console.sessions.token_fits(browser_id, fields.get("token", "")):
            raise FormError(
                "The form's token does not belong to this browser, or is too old: load the page again.", 403
            )
    except FormError as error:
        return problem(console, request, browser_id, str(error), error.status)
    client = request.client.host if request.client is not None else "?"
    access_key, secret = fields.get("access_key", "").strip(), fields.get("secret_key", "")
    after = safe_next(fields.get("next", "/"))

    def again(text: str, status: int) -> Response:
        return render(
            console,
            request,
            "login.html",
            status,
            browser_id,
            after=after,
            error=text,
            access_key=access_key[:_KEY_MAX_CHARS],
        )

    wait_s = console.throttle.wait_s(client)
    if wait_s > 0 or console.logins_under_way >= LOGINS_AT_ONCE_MAX:
        answer = again(f"Too many failed logins: try again in {max(1, math.ceil(wait_s))} s.", 429)
        answer.headers["retry-after"] = str(max(1, math.ceil(wait_s)))
        return answer
    if not access_key or not secret or len(access_key) > _KEY_MAX_CHARS or len(secret) > _KEY_MAX_CHARS:
        return again("Give the access key of an account and its secret key.", 400)
    access = console.clusters.signed(access_key, secret)
    access.hold()
    console.logins_under_way += 1
    try:
        await access.check()
        console.throttle.succeeded(client)
        new_id = console.sessions.begin(access)
    except RefusedError as error:
        if not is_denied(error):
            return failed(console, request, browser_id, error)
        console.throttle.failed(client)
        log.warning(
            "console.login_refused", "a login from %(client)s as %(who)s was refused", client=client, who=access_key
        )
        return again("The brokers do not take this access key and secret key.", 401)
    except FlintError as error:
        return failed(console, request, browser_id, error)
    finally:
        console.logins_under_way -= 1
        access.release()
    console.sessions.end(browser_id)
    log.info("console.logged_in", "%(who)s logged in from %(client)s", who=access_key, client=client)
    answer = RedirectResponse(after, 303)
    set_cookie(answer, new_id, is_secure=request.url.scheme == "https")
    return answer


async def logout(visitor: Visitor) -> Response:
    """Log the visitor out by ending the session."""
    visitor.console.sessions.end(visitor.browser_id)
    return RedirectResponse("/login", 303)


async def audit(visitor: Visitor) -> Response:
    """Show the changes made through this console."""
    return visitor.render("audit.html", entries=visitor.console.audit.entries())


ROUTES: Final = (
    Route("/login", login_form, methods=["GET"]),
    Route("/login", login, methods=["POST"]),
    page("/logout", logout, changes=True),
    page("/audit", audit),
)
