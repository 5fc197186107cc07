"""The typed headers of every request code, as the built-in processors of broker and name server declare them."""

from __future__ import annotations

from typing import Any, Final

from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.ports.processor import RequestDeclaration
from flintmq.plugins.builtin import BUILTIN_PLUGINS, name_server_plugins
from flintmq.programs.broker.processors import ProcessorsPlugin
from flintmq.programs.broker.processors_in_force import processors_of
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_admin import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from flintmq.remoting.wire.headers_message import (
    CheckTransactionStateRequestHeader,
    ConsumerGroupRequestHeader,
    ReplyMessageRequestHeader,
)


def declared() -> dict[int, RequestDeclaration]:
    """Return the declaration of every code that a built-in processor answers, of either server."""
    broker = processors_of(Kernel.assemble((), (*BUILTIN_PLUGINS, ProcessorsPlugin())).registries, "broker")
    name_server = processors_of(Kernel.assemble((), name_server_plugins()).registries, "nameserver")
    return {one.code: one for entry in (*broker, *name_server) for one in entry.value.declarations}


DECLARED: Final = declared()
REQUEST_HEADERS: Final[dict[int, Any]] = {
    RequestCode.CHECK_TRANSACTION_STATE: CheckTransactionStateRequestHeader,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: ConsumerGroupRequestHeader,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: ResetOffsetRequestHeader,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: GetConsumerStatusRequestHeader,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: ReplyMessageRequestHeader,
    **{code: one.header for code, one in DECLARED.items() if one.header is not None},
}
"""By code; those that brokers send to clients included."""
RESPONSE_HEADERS: Final[dict[int, Any]] = {
    **{code: one.answer for code, one in DECLARED.items() if one.answer is not None},
}
"""By the code of the request."""
