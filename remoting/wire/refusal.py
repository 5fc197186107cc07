"""Functions that return the refusals for failed requests. Each refusal has the id of its reason."""

from __future__ import annotations

from flintmq.core.errors import (
    FlintError,
    JsonSyntaxError,
    JsonTypeError,
    RefusedError,
    StoreError,
    StoreExhaustedError,
)
from flintmq.core.kernel.failures import brief
from flintmq.core.log.no_room import no_room
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.wire.codes import OF_ROCKETMQ_5


def system_error(message: str, *, reason: str, measured: str = "", key: str = "") -> RefusedError:
    """Return a refusal with SYSTEM_ERROR, RocketMQ's code for errors without a special code.

    The arguments are those of :class:`RefusedError`.
    """
    return RefusedError(ResponseCode.SYSTEM_ERROR, message, reason=reason, measured=measured, key=key)


def unsupported(code: int) -> RefusedError:
    """Return the refusal REQUEST_CODE_NOT_SUPPORTED with RocketMQ's remark.

    For a code of RocketMQ 5, the remark also has the reason and a remedy.
    """
    name, why = OF_ROCKETMQ_5.get(code, ("", ""))
    told = f" ({name}): {why}" if name else ""
    return RefusedError(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported{told}", reason="code.unsupported"
    )


def hook_failed(error: BaseException) -> RefusedError:
    """Return the refusal of a request for which a hook raised an exception other than ``RefusedError``."""
    return system_error(f"a hook of the broker's refused the request: {brief(error)}", reason="hook.failed")


def refusal_of(error: BaseException) -> RefusedError:
    """Return the refusal for an error, with the error's text, and also its type if it is not a FlintMQ error."""
    if isinstance(error, RefusedError):
        return error
    text = str(error)[:1000]
    if isinstance(error, JsonTypeError):
        return system_error(text, reason="request.field", measured=f"{error.field} = {error.measured}"[:1000])
    if isinstance(error, JsonSyntaxError):
        return system_error(text, reason="request.malformed")
    if isinstance(error, StoreExhaustedError):
        return no_room(error)
    if isinstance(error, StoreError):
        return system_error(text, reason="store.failed")
    if isinstance(error, FlintError):
        return system_error(text, reason="request.failed")
    return system_error(brief(error), reason="broker.defect")
