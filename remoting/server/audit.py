"""Puts the audit around handlers of administrative acts, once, when a server is put together."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Final

from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.remoting.processors.answers import read_properties
from flintmq.remoting.server.audit_log import audit
from flintmq.remoting.server.request import Handler, Request, Response
from flintmq.remoting.wire.codes import RequestCode as Code

AUDITED: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_BROKER_CONFIG,
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CONSUME_MESSAGE_DIRECTLY,
        Code.CLONE_GROUP_OFFSET,
        Code.CLEAN_UNUSED_TOPIC,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.DELETE_EXPIRED_COMMITLOG,
    }
)
"""Administrative acts: each leaves a line in the audit log, with access control and without."""


def audited(handler: Handler) -> Handler:
    """The same handler; each request leaves one line when its answer is known."""

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
    """Writes a line for each administrative act that was refused before it began, up to so many a second. Loop thread.

    Args:
        clock: tells the second.
        codes: the acts.
        lines_per_s: whoever may not even sign must not fill the disk.
    """

    def __init__(self, clock: Clock, codes: Collection[int], lines_per_s: int = 20) -> None:
        self._clock = clock
        self._codes = codes
        self._lines_per_s = lines_per_s
        self._second = -1
        self._lines = 0

    def __call__(self, request: Request, error: RefusedError) -> None:
        if request.code not in self._codes:
            return
        second = int(self._clock.monotonic_s())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= self._lines_per_s:
            _failed(request, error)
