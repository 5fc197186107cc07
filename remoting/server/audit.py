"""The audit log: one line for each request that is declared as audited, with account, request, address and result.

Lines go to the logger ``flintmq.audit``. The lines contain names and keys of settings, never bodies, signatures or secret keys.
Every value is written as a quoted literal, so that no name can forge a line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports.processor import Handler, Request, Response
from flintmq.core.log_events import event_log
from flintmq.remoting.processors.answers import read_properties
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.remoting.wire.header_codec import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SIGNED_AT

log = event_log("flintmq.audit")

_UNTOLD: Final = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, SIGNED_AT, "secretKey", "value"})
_VALUE_MAX: Final = 120
_FIELDS_MAX: Final = 12


def audited(handler: Handler) -> Handler:
    """Return a handler that calls the given request handler. Each request and its result get a line in the audit log."""

    def handle(request: Request) -> Awaitable[Response | None] | Response | None:
        try:
            answer = handler(request)
        except Exception as error:
            _failed(request, error)
            raise
        if answer is None or isinstance(answer, Response):
            _done(request, answer)
            return answer
        return _wait(request, answer)

    return handle


async def _wait(request: Request, answer: Awaitable[Response | None]) -> Response | None:
    try:
        result = await answer
    except Exception as error:
        _failed(request, error)
        raise
    _done(request, result)
    return result


def _done(request: Request, answer: Response | None) -> None:
    _write(request, "ok" if answer is None or answer.code == 0 else f"{answer.code} {answer.remark or ''}")


def _failed(request: Request, error: Exception) -> None:
    _write(request, f"{error.code} {error.remark}" if isinstance(error, RefusedError) else f"failed: {error}")


def _write(request: Request, result: str) -> None:
    fields = request.ext_fields or {}
    if request.code in (Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG):
        fields = fields | {"settings": _settings_of(request.body)}
    audit(name_of(request.code), fields, request.channel.remote_address, result)


def _settings_of(body: bytes) -> str:
    """Return the keys of the settings in a request's body, joined by commas; ``malformed`` if the body cannot be read."""
    try:
        return ",".join(read_properties(body))
    except RefusedError:
        return "malformed"


def name_of(code: int) -> str:
    """Return RocketMQ's name of a request code; ``CODE_<number>`` if the code has no name."""
    try:
        return Code(code).name
    except ValueError:
        return f"CODE_{code}"


class RefusalAudit:
    """Writes a line of the audit log for each audited request that an authenticator refused.

    Used only on the event loop's thread.

    Args:
        clock: used to count lines per second.
        lines_per_s: limit of lines per second, so that a sender without a valid signature cannot fill the disk.
    """

    def __init__(self, clock: Clock, lines_per_s: int = 20) -> None:
        self._clock = clock
        self._lines_per_s = lines_per_s
        self._second = -1
        self._lines = 0

    def __call__(self, request: Request, error: RefusedError) -> None:
        second = int(self._clock.monotonic_s())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= self._lines_per_s:
            _failed(request, error)


def audit(what: str, ext_fields: Mapping[str, str], address: str, result: str) -> None:
    """Write one line of the audit log.

    Args:
        what: the name of the request.
        ext_fields: the request's fields; secrets among them are not written.
        address: the sender's ``ip:port``.
        result: ``ok``, or an answer's code and remark.
    """
    who = ext_fields.get(ACCESS_KEY)
    told = [name for name in sorted(ext_fields) if name not in _UNTOLD][:_FIELDS_MAX]
    fields = " ".join(f"{_quoted(name)}={_quoted(ext_fields[name])}" for name in told)
    log.info(
        "audit.act",
        "who=%(who)s what=%(what)s %(fields)s from=%(client)s result=%(result)s",
        who=_quoted(who) if who else "-",
        what=what,
        fields=fields or "-",
        client=address,
        result=_quoted(result),
    )


def _quoted(text: str) -> str:
    return ascii(text[:_VALUE_MAX])
