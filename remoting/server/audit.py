"""Writes the lines of the audit log: one for each request that is declared as audited."""

from __future__ import annotations

from collections.abc import Awaitable

from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports.processor import Handler, Request, Response
from flintmq.remoting.processors.answers import read_properties
from flintmq.remoting.server.audit_log import audit
from flintmq.remoting.wire.codes import RequestCode as Code


def audited(handler: Handler) -> Handler:
    """Return a handler that does the same and writes one line for each request, when its answer is known."""

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
    """The names of settings that a request wants to change."""
    try:
        return ",".join(read_properties(body))
    except RefusedError:
        return "malformed"


def name_of(code: int) -> str:
    """A request code's name; ``CODE_<number>`` for one that has none."""
    try:
        return Code(code).name
    except ValueError:
        return f"CODE_{code}"


class RefusalAudit:
    """Writes a line for each administrative act that an authenticator refused, up to a number a second. Loop thread.

    Args:
        clock: tells the second.
        lines_per_s: a sender that cannot sign must not fill the disk.
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
