"""The answers to requests that fail: each has a reason id, whatever the cause."""

from __future__ import annotations

from flintmq.core.errors import (
    FlintError,
    JsonSyntaxError,
    JsonTypeError,
    RefusedError,
    StoreError,
    StoreExhaustedError,
)
from flintmq.core.kernel.blame import brief
from flintmq.core.log.no_room import no_room
from flintmq.core.response_code import ResponseCode


def unsupported(code: int) -> RefusedError:
    """REQUEST_CODE_NOT_SUPPORTED, in the words of RocketMQ."""
    return RefusedError(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported", reason="code.unsupported"
    )


def hook_failed(error: BaseException) -> RefusedError:
    """Return the refusal of a request on which a hook raised something other than a refusal."""
    return RefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"a hook of the broker's refused the request: {brief(error)}",
        reason="hook.failed",
    )


def refusal_of(error: BaseException) -> RefusedError:
    """An error as a refusal: its text, and for what is not ours its type."""
    if isinstance(error, RefusedError):
        return error
    code = ResponseCode.SYSTEM_ERROR
    if isinstance(error, JsonTypeError):
        measured = f"{error.field} = {error.measured}"[:1000]
        return RefusedError(code, str(error)[:1000], reason="request.field", measured=measured)
    if isinstance(error, JsonSyntaxError):
        return RefusedError(code, str(error)[:1000], reason="request.malformed")
    if isinstance(error, StoreExhaustedError):
        return no_room(error)
    if isinstance(error, StoreError):
        return RefusedError(code, str(error)[:1000], reason="store.failed")
    if isinstance(error, FlintError):
        return RefusedError(code, str(error)[:1000], reason="request.failed")
    return RefusedError(code, brief(error), reason="broker.defect")
