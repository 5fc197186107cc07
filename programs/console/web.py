"""The code that all pages share: the visitor, the submitted form, and the rendering of templates.

A request is first checked by :mod:`.guard`, and then routed to its page. If the brokers require accounts and the visitor has
not logged in, a GET request is redirected to ``/login``, and a form is answered with 401. Otherwise the page's handler gets the
visitor and renders a template. Templates escape every value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from flintmq.core.errors import FlintError, RefusedError, RemotingError
from flintmq.core.response_code import ResponseCode
from flintmq.programs.console.clusters import ClusterAccess, is_denied
from flintmq.programs.console.sessions import Confirmation, new_id

if TYPE_CHECKING:
    from flintmq.programs.cluster_view.view import ClusterView
    from flintmq.programs.console.app import Console

COOKIE: Final = "flintmq_console"
FORM_MAX_BYTES: Final = 256 * 1024
"""Maximum size of a submitted form, in bytes. All forms contain names and numbers. The largest form also contains an Avro
schema."""
_FIELDS_MAX: Final = 64
_MISSING: Final = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.QUERY_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
)
_ID_MAX_CHARS: Final = 64
_NOT_CONFIRMED: Final = (
    "This confirms nothing that waits: it was confirmed already, belongs to another preview, or is older than 15 minutes. "
    "Nothing was done now; the page Audit says what was done before. Go back, and have it shown again."
)


class FormError(Exception):
    """A request cannot be fulfilled, for example because a value in a form is not valid. The page shows the error's message,
    with HTTP status 400 by default."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Visitor:
    """A request to the console, with the visitor who sent it. For the loop thread only.

    Args:
        console: the objects that all requests share, such as the sessions.
        request: the request.
        access: the visitor's access to the cluster.
        browser_id: the id in the cookie.
        fields: the fields of the form; empty without a form.
    """

    def __init__(
        self,
        console: Console,
        request: Request,
        access: ClusterAccess,
        browser_id: str,
        fields: Mapping[str, str],
    ) -> None:
        self.console = console
        self.request = request
        self.access = access
        self.browser_id = browser_id
        self.fields = fields

    @property
    def account(self) -> str:
        """The visitor's access key; empty if the cluster has no access control."""
        return self.access.account

    @cached_property
    def view(self) -> ClusterView:
        """The view of the cluster with the visitor's account."""
        return self.access.view

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the page's address, without surrounding blanks."""
        return str(self.request.query_params.get(name, default)).strip()

    def field(self, name: str) -> str:
        """Return a field of the submitted form, without surrounding blanks; empty if the field is missing."""
        return self.fields.get(name, "").strip()

    def number(self, name: str, text: str, low: int, high: int) -> int:
        """Return the number in a text that the visitor typed. Raises FormError."""
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and low <= int(text) <= high):
            raise FormError(f"{name} is a number from {low} to {high}, not '{text[:40]}'.")
        return int(text)

    def render(self, template: str, status: int = 200, /, **values: Any) -> Response:
        """Return a page from a template for this visitor."""
        return render(
            self.console, self.request, template, status, self.browser_id, account=self.account, visitor=self, **values
        )

    def confirmation(self, path: str, **fields: object) -> Confirmation:
        """Return a confirmation, to be sent with the form of a preview. The form goes to the page at ``path``, whose route must
        be made with ``confirmed=True`` (:func:`page`). This page accepts the confirmation once."""
        given = {name: str(value) for name, value in fields.items()}
        return self.console.confirmations.begin(self.browser_id, path, given)

    def audit(self, action: str, subject: str, result: str) -> None:
        """Record a change that the visitor made or tried to make."""
        client = self.request.client
        self.console.audit.note(self.account or "anyone", client.host if client else "?", action, subject, result)


Handler = Callable[[Visitor], Awaitable[Response]]


def render(
    console: Console, request: Request, template: str, status: int, browser_id: str, /, **values: Any
) -> Response:
    """Return a page from a template. The answer sets the browser's cookie if the browser does not have it."""
    text = console.templates.get_template(template).render(
        token=console.sessions.token(browser_id),
        path=request.url.path,
        here=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        name_servers=console.clusters.name_servers,
        **({"account": "", "visitor": None} | values),
    )
    response = HTMLResponse(text, status)
    if request.cookies.get(COOKIE) != browser_id:
        set_cookie(response, browser_id, is_secure=request.url.scheme == "https")
    return response


def set_cookie(response: Response, browser_id: str, *, is_secure: bool) -> None:
    """Set the cookie with the browser's id. Scripts and requests of foreign pages cannot use the cookie, which lasts until the
    browser is closed."""
    response.set_cookie(COOKIE, browser_id, httponly=True, samesite="strict", secure=is_secure, path="/")


def browser_id_of(request: Request) -> str:
    """Return the browser's id from the cookie, or a new id."""
    found = request.cookies.get(COOKIE, "")
    return found if 0 < len(found) <= _ID_MAX_CHARS and found.isascii() else new_id()


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; the last value if a name is repeated.

    Raises:
        FormError: the form is too long, or not of the type that the console's pages send.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise FormError("The form must have the type application/x-www-form-urlencoded.", 415)
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > FORM_MAX_BYTES:
                raise FormError(f"A form of the console has at most {FORM_MAX_BYTES:,} bytes.", 413)
    except ClientDisconnect as gone:
        raise FormError("The form is incomplete: the connection was closed.") from gone
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict"))
    except ValueError as error:
        raise FormError("The form is not UTF-8, or has too many fields.") from error


def page(path: str, handler: Handler, *, changes: bool = False, confirmed: bool = False) -> Route:
    """Return the route of one page of the console.

    Args:
        path: the page's path.
        handler: makes the answer.
        changes: whether the page changes something. If so, it accepts only forms (POST), otherwise only GET requests.
        confirmed: whether the page accepts a form only with the confirmation of a preview (:meth:`Visitor.confirmation`).
    """

    async def answer(request: Request) -> Response:
        console: Console = request.app.state.console
        browser_id = browser_id_of(request)
        try:
            fields = await _checked_form(console, request, browser_id) if changes else {}
            access = await _access(console, browser_id)
        except FormError as error:
            return problem(console, request, browser_id, str(error), error.status)
        except FlintError as error:
            return failed(console, request, browser_id, error)
        if access is None:
            if changes:
                text = "Nobody is logged in any more, so nothing was done. Log in, then send the form again."
                return problem(console, request, browser_id, text, 401)
            return RedirectResponse(f"/login?{urlencode({'next': _here(request)})}", 303)
        await access.open_view()
        visitor = Visitor(console, request, access, browser_id, fields)
        if confirmed and not console.confirmations.take(fields.get("confirm", ""), browser_id, path, fields):
            return problem(console, request, browser_id, _NOT_CONFIRMED, 409, visitor)
        try:
            return await handler(visitor)
        except FormError as error:
            return problem(console, request, browser_id, str(error), error.status, visitor)
        except FlintError as error:
            return failed(console, request, browser_id, error, visitor)

    return Route(path, answer, methods=["POST"] if changes else ["GET"])


async def _checked_form(console: Console, request: Request, browser_id: str) -> dict[str, str]:
    fields = await read_form(request)
    if not console.sessions.token_fits(browser_id, fields.get("token", "")):
        raise FormError(
            "The form's token does not belong to this browser, or is too old: go back, load the page again.", 403
        )
    return fields


async def _access(console: Console, browser_id: str) -> ClusterAccess | None:
    """Return the client of the visitor's account; None if the visitor must log in. Raises RemotingError if no broker
    answers."""
    session = console.sessions.find(browser_id)
    access = console.clusters.anonymous() if session is None else session.access
    if await access.is_taken():
        return access
    # A cluster refuses an account that was deleted or has a new secret key, so all sessions of the account end.
    if session is not None:
        console.sessions.end_all_of(access)
    return None


def _here(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else str(request.url.path)


def safe_next(text: str) -> str:
    """Return ``text`` if it is a path of this server, and ``/`` otherwise. The result is the page to show after a login, which
    must not be a page of another site."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\")) and len(text) <= 2_000
    return text if is_path and text.isprintable() and "\\" not in text else "/"


def to(path: str, **parameters: object) -> str:
    """Return the address of a page with its parameters."""
    return f"{path}?{urlencode({name: str(value) for name, value in parameters.items()})}" if parameters else path


def segment(text: str) -> str:
    """Return a name as an escaped segment of a URL's path."""
    return quote(text, safe="")


def problem(
    console: Console, request: Request, browser_id: str, text: str, status: int, visitor: Visitor | None = None
) -> Response:
    """Return the page that says why a request cannot be fulfilled."""
    account = visitor.account if visitor is not None else ""
    return render(
        console,
        request,
        "problem.html",
        status,
        browser_id,
        text=text,
        status=status,
        account=account,
        visitor=visitor,
    )


def failed(
    console: Console, request: Request, browser_id: str, error: FlintError, visitor: Visitor | None = None
) -> Response:
    """Return the page that says that the cluster does not answer, or why it refuses a request."""
    if isinstance(error, RefusedError) and is_denied(error):
        who = (
            f"the account {visitor.account}" if visitor is not None and visitor.account else "requests without account"
        )
        text, status = f"The brokers do not let {who} do this: {error.remark}", 403
    elif isinstance(error, RefusedError) and error.code in _MISSING:
        text, status = f"That is not there: {error.remark}", 404
    elif isinstance(error, RefusedError):
        text, status = f"The broker refuses: {error.remark}", 502
    elif isinstance(error, RemotingError):
        text, status = f"The cluster does not answer: {error}", 503
    else:
        text, status = str(error), 502
    return problem(console, request, browser_id, text, status, visitor)
