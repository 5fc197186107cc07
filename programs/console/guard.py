"""Protects every page: checks the requested host name and the origin of forms, and adds security headers to answers.

* Against DNS rebinding, ``Host`` must be localhost, an IP address, or a name of ``console.host_names``. Other requests get 421.
* Against forged forms, a form must come from a page of the console, according to the headers ``Sec-Fetch-Site`` and
  ``Origin``. Other forms get 403. A form also contains a token (:mod:`.web`).
* Against injected markup, the security policy of every answer forbids inline scripts and styles. The templates escape every
  value.
* Against framing and sniffing of types, every answer has headers that forbid both.
* Against floods, a request whose query and headers have more than 32 KiB gets 431. The length of forms is limited where forms
  are read (:mod:`.web`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEAD_MAX_BYTES: Final = 32 * 1024
"""Maximum size, in bytes, of a request's query and headers together. Requests of the console's own pages have at most a tenth
of this size."""
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With no-referrer, browsers would send "Origin: null" with the console's own forms, which the console would refuse.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """ASGI middleware that refuses requests not made by the console's own pages, and adds headers to every answer.

    Args:
        app: the next application.
        host_names: the host names under which the console answers, besides localhost and IP addresses.
    """

    def __init__(self, app: ASGIApp, host_names: Collection[str] = ()) -> None:
        self._app = app
        self._host_names = frozenset(name.lower().rstrip(".") for name in host_names) | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with a refusal, or pass the request to the next application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        app = self._app if refusal is None else PlainTextResponse(refusal[1] + "\n", refusal[0])
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        size = len(scope["query_string"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        if size > HEAD_MAX_BYTES:
            return 431, f"The address and the headers of a request have at most {HEAD_MAX_BYTES:,} bytes together."
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            return 421, (
                "The console does not answer under this host name. Use localhost or an IP address, or name it in "
                "console.host_names."
            )
        if scope["method"] in SAFE_METHODS:
            return None
        if not is_same_origin(headers, scope["scheme"], host):
            return 403, "This form does not come from a page of the console, so nothing was done."
        return None

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        if name is None:
            return False
        if name in self._host_names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # An IP address is safe, because DNS rebinding needs a host name.


def host_name(host: str) -> str | None:
    """Return the host name in a ``Host`` header without port and brackets, in lower case; None if the header is not valid."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        if not bracket or (port and not (port[0] == ":" and port[1:].isdecimal())):
            return None
        return name.lower()
    name, colon, port = host.partition(":")
    if not name or (colon and not port.isdecimal()):
        return None
    return name.lower().rstrip(".")


def is_same_origin(headers: Headers, scheme: str, host: str) -> bool:
    """Return whether a request that changes something comes from a page of this server.

    Browsers send ``Sec-Fetch-Site`` and ``Origin``. A request with neither header does not come from a browser, and the result
    is false.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    if origin is None:
        return site is not None
    return str(origin).lower() == f"{scheme}://{host}".lower()
