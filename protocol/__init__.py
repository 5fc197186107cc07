"""The names for writing request processors: codes, headers, declarations of handlers, access rules, answers and records.

::

    from flintmq.protocol import ADMIN, DeclaredProcessor, Request, Response, handles

    class StatusProcessor(DeclaredProcessor):
        @handles(20_001, needs=ADMIN)
        def status(self, request: Request) -> Response:
            \"\"\"Return the status of the plugin.\"\"\"
            return Response(body=b"well")

A module is imported only when one of its names is first used, so that a command that sends a request does not import the
broker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flintmq.core.broker.hold import HeldPull, places_of
    from flintmq.core.broker.outlet import Empty, Found, Wanted
    from flintmq.core.broker.sink import Incoming, Stored, not_durable, not_stored, until_flushed
    from flintmq.core.errors import RefusedError, StoreError
    from flintmq.core.kernel.ports.access import (
        ACCOUNT,
        ADMIN,
        PUBLIC,
        Access,
        AccessFacts,
        AccessRule,
        Need,
        Permission,
    )
    from flintmq.core.kernel.ports.processor import (
        BatchProcessor,
        DeclaredProcessor,
        DefaultProcessor,
        Handler,
        Header,
        Request,
        RequestChannel,
        RequestDeclaration,
        RequestProcessor,
        Response,
        declared_by,
        handles,
    )
    from flintmq.core.record.batch import MessageBatch
    from flintmq.core.record.host import batch_message_id, offset_message_id
    from flintmq.core.record.message_keys import index_keys
    from flintmq.core.record.properties import stored_properties
    from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, Unit, is_filler
    from flintmq.core.record.record import RECORD_MIN_BYTES, MessageExtBrokerInner
    from flintmq.core.record.sys_flag import indexed, queued
    from flintmq.core.record.topic_lives import begins_again, deleted_topic, deletion
    from flintmq.core.response_code import ONEWAY_FLAG, ResponseCode
    from flintmq.remoting.processors import needs
    from flintmq.remoting.processors.pull_message import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
    from flintmq.remoting.wire.codes import LanguageCode, RequestCode
    from flintmq.remoting.wire.command import JSON, ROCKETMQ, RemotingCommand, request
    from flintmq.remoting.wire.fast_json import encode_pull_response_json, make_batch_ok_encoder, make_send_ok_encoder
    from flintmq.remoting.wire.header_codec import CommandHeader, encode_header
    from flintmq.remoting.wire.headers_admin import (
        CloneGroupOffsetRequestHeader,
        ConsumeMessageDirectlyRequestHeader,
        CreateAccessConfigRequestHeader,
        CreateTopicRequestHeader,
        DeleteAccessConfigRequestHeader,
        DeleteSubscriptionGroupRequestHeader,
        GetBrokerAclConfigResponseHeader,
        GetBrokerConfigResponseHeader,
        GetBrokerConsumeStatsRequestHeader,
        GetConsumerRunningInfoRequestHeader,
        GetConsumerStatusRequestHeader,
        GetConsumeStatsRequestHeader,
        GetProducerConnectionListRequestHeader,
        GroupRequestHeader,
        QueryConsumeQueueRequestHeader,
        QueryCorrectionOffsetRequestHeader,
        ResetOffsetRequestHeader,
        ResumeCheckHalfMessageRequestHeader,
        TopicGroupRequestHeader,
        TopicRequestHeader,
        UpdateGlobalWhiteAddrsConfigRequestHeader,
        ViewBrokerStatsDataRequestHeader,
    )
    from flintmq.remoting.wire.headers_message import (
        CheckTransactionStateRequestHeader,
        ConsumerGroupRequestHeader,
        ConsumerSendMsgBackRequestHeader,
        EndTransactionRequestHeader,
        GetEarliestMsgStoretimeResponseHeader,
        PullMessageRequestHeader,
        PullMessageResponseHeader,
        QueryConsumerOffsetRequestHeader,
        QueryConsumerOffsetResponseHeader,
        QueryMessageRequestHeader,
        QueryMessageResponseHeader,
        QueueOffsetResponseHeader,
        QueueRequestHeader,
        ReplyMessageRequestHeader,
        SearchOffsetRequestHeader,
        SendMessageRequestHeader,
        SendMessageRequestHeaderV2,
        SendMessageResponseHeader,
        SentRequestHeader,
        UnregisterClientRequestHeader,
        UpdateConsumerOffsetRequestHeader,
        ViewMessageRequestHeader,
    )
    from flintmq.remoting.wire.headers_route import (
        AddWritePermOfBrokerResponseHeader,
        BrokerIdentityRequestHeader,
        BrokerNameRequestHeader,
        DeleteTopicFromNamesrvRequestHeader,
        GetKVConfigResponseHeader,
        GetKVListByNamespaceRequestHeader,
        GetRouteInfoRequestHeader,
        GetTopicsByClusterRequestHeader,
        KVKeyRequestHeader,
        PutKVConfigRequestHeader,
        QueryDataVersionResponseHeader,
        RegisterBrokerRequestHeader,
        RegisterBrokerResponseHeader,
        WipeWritePermOfBrokerResponseHeader,
    )
    from flintmq.remoting.wire.refusal import refusal_of, system_error

__all__ = [
    "ACCOUNT",
    "ADMIN",
    "COMMIT_OFFSET",
    "FILLER_SIZE",
    "JSON",
    "ONEWAY_FLAG",
    "PUBLIC",
    "RECORD_MIN_BYTES",
    "ROCKETMQ",
    "SUBSCRIPTION",
    "SUSPEND",
    "UNIT",
    "Access",
    "AccessFacts",
    "AccessRule",
    "AddWritePermOfBrokerResponseHeader",
    "BatchProcessor",
    "BrokerIdentityRequestHeader",
    "BrokerNameRequestHeader",
    "CheckTransactionStateRequestHeader",
    "CloneGroupOffsetRequestHeader",
    "CommandHeader",
    "ConsumeMessageDirectlyRequestHeader",
    "ConsumerGroupRequestHeader",
    "ConsumerSendMsgBackRequestHeader",
    "CreateAccessConfigRequestHeader",
    "CreateTopicRequestHeader",
    "DeclaredProcessor",
    "DefaultProcessor",
    "DeleteAccessConfigRequestHeader",
    "DeleteSubscriptionGroupRequestHeader",
    "DeleteTopicFromNamesrvRequestHeader",
    "Empty",
    "EndTransactionRequestHeader",
    "Found",
    "GetBrokerAclConfigResponseHeader",
    "GetBrokerConfigResponseHeader",
    "GetBrokerConsumeStatsRequestHeader",
    "GetConsumeStatsRequestHeader",
    "GetConsumerRunningInfoRequestHeader",
    "GetConsumerStatusRequestHeader",
    "GetEarliestMsgStoretimeResponseHeader",
    "GetKVConfigResponseHeader",
    "GetKVListByNamespaceRequestHeader",
    "GetProducerConnectionListRequestHeader",
    "GetRouteInfoRequestHeader",
    "GetTopicsByClusterRequestHeader",
    "GroupRequestHeader",
    "Handler",
    "Header",
    "HeldPull",
    "Incoming",
    "KVKeyRequestHeader",
    "LanguageCode",
    "MessageBatch",
    "MessageExtBrokerInner",
    "Need",
    "Permission",
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "PutKVConfigRequestHeader",
    "QueryConsumeQueueRequestHeader",
    "QueryConsumerOffsetRequestHeader",
    "QueryConsumerOffsetResponseHeader",
    "QueryCorrectionOffsetRequestHeader",
    "QueryDataVersionResponseHeader",
    "QueryMessageRequestHeader",
    "QueryMessageResponseHeader",
    "QueueOffsetResponseHeader",
    "QueueRequestHeader",
    "RefusedError",
    "RegisterBrokerRequestHeader",
    "RegisterBrokerResponseHeader",
    "RemotingCommand",
    "ReplyMessageRequestHeader",
    "Request",
    "RequestChannel",
    "RequestCode",
    "RequestDeclaration",
    "RequestProcessor",
    "ResetOffsetRequestHeader",
    "Response",
    "ResponseCode",
    "ResumeCheckHalfMessageRequestHeader",
    "SearchOffsetRequestHeader",
    "SendMessageRequestHeader",
    "SendMessageRequestHeaderV2",
    "SendMessageResponseHeader",
    "SentRequestHeader",
    "StoreError",
    "Stored",
    "TopicGroupRequestHeader",
    "TopicRequestHeader",
    "Unit",
    "UnregisterClientRequestHeader",
    "UpdateConsumerOffsetRequestHeader",
    "UpdateGlobalWhiteAddrsConfigRequestHeader",
    "ViewBrokerStatsDataRequestHeader",
    "ViewMessageRequestHeader",
    "Wanted",
    "WipeWritePermOfBrokerResponseHeader",
    "batch_message_id",
    "begins_again",
    "declared_by",
    "deleted_topic",
    "deletion",
    "encode_header",
    "encode_pull_response_json",
    "handles",
    "index_keys",
    "indexed",
    "is_filler",
    "make_batch_ok_encoder",
    "make_send_ok_encoder",
    "needs",
    "not_durable",
    "not_stored",
    "offset_message_id",
    "places_of",
    "queued",
    "refusal_of",
    "request",
    "stored_properties",
    "system_error",
    "until_flushed",
]

_HOMES: Final = {
    "flintmq.core.broker.hold": "HeldPull places_of",
    "flintmq.core.broker.outlet": "Empty Found Wanted",
    "flintmq.core.broker.sink": "Incoming Stored not_durable not_stored until_flushed",
    "flintmq.core.errors": "RefusedError StoreError",
    "flintmq.core.kernel.ports.access": "ACCOUNT ADMIN PUBLIC Access AccessFacts AccessRule Need Permission",
    "flintmq.core.kernel.ports.processor": (
        "BatchProcessor DeclaredProcessor DefaultProcessor Handler Header Request RequestChannel "
        "RequestDeclaration RequestProcessor Response declared_by handles"
    ),
    "flintmq.core.record.batch": "MessageBatch",
    "flintmq.core.record.host": "batch_message_id offset_message_id",
    "flintmq.core.record.message_keys": "index_keys",
    "flintmq.core.record.properties": "stored_properties",
    "flintmq.core.record.queue_unit": "FILLER_SIZE UNIT Unit is_filler",
    "flintmq.core.record.record": "RECORD_MIN_BYTES MessageExtBrokerInner",
    "flintmq.core.record.sys_flag": "indexed queued",
    "flintmq.core.record.topic_lives": "begins_again deleted_topic deletion",
    "flintmq.core.response_code": "ONEWAY_FLAG ResponseCode",
    "flintmq.remoting.processors.needs": "needs",
    "flintmq.remoting.processors.pull_message": "COMMIT_OFFSET SUBSCRIPTION SUSPEND",
    "flintmq.remoting.wire.codes": "LanguageCode RequestCode",
    "flintmq.remoting.wire.command": "JSON ROCKETMQ RemotingCommand request",
    "flintmq.remoting.wire.fast_json": "encode_pull_response_json make_batch_ok_encoder make_send_ok_encoder",
    "flintmq.remoting.wire.header_codec": "CommandHeader encode_header",
    "flintmq.remoting.wire.headers_message": (
        "CheckTransactionStateRequestHeader ConsumerGroupRequestHeader ConsumerSendMsgBackRequestHeader "
        "EndTransactionRequestHeader GetEarliestMsgStoretimeResponseHeader PullMessageRequestHeader "
        "PullMessageResponseHeader QueryConsumerOffsetRequestHeader QueryConsumerOffsetResponseHeader "
        "QueryMessageRequestHeader QueryMessageResponseHeader QueueOffsetResponseHeader QueueRequestHeader "
        "ReplyMessageRequestHeader SearchOffsetRequestHeader SendMessageRequestHeader SendMessageRequestHeaderV2 "
        "SendMessageResponseHeader SentRequestHeader UnregisterClientRequestHeader "
        "UpdateConsumerOffsetRequestHeader ViewMessageRequestHeader"
    ),
    "flintmq.remoting.wire.headers_route": (
        "AddWritePermOfBrokerResponseHeader BrokerIdentityRequestHeader BrokerNameRequestHeader "
        "DeleteTopicFromNamesrvRequestHeader GetKVConfigResponseHeader GetKVListByNamespaceRequestHeader "
        "GetRouteInfoRequestHeader GetTopicsByClusterRequestHeader KVKeyRequestHeader PutKVConfigRequestHeader "
        "QueryDataVersionResponseHeader RegisterBrokerRequestHeader RegisterBrokerResponseHeader "
        "WipeWritePermOfBrokerResponseHeader"
    ),
    "flintmq.remoting.wire.headers_admin": (
        "CloneGroupOffsetRequestHeader ConsumeMessageDirectlyRequestHeader CreateAccessConfigRequestHeader "
        "CreateTopicRequestHeader DeleteAccessConfigRequestHeader DeleteSubscriptionGroupRequestHeader "
        "GetBrokerAclConfigResponseHeader GetBrokerConfigResponseHeader GetBrokerConsumeStatsRequestHeader "
        "GetConsumeStatsRequestHeader GetConsumerRunningInfoRequestHeader GetConsumerStatusRequestHeader "
        "GetProducerConnectionListRequestHeader GroupRequestHeader QueryConsumeQueueRequestHeader "
        "QueryCorrectionOffsetRequestHeader ResetOffsetRequestHeader ResumeCheckHalfMessageRequestHeader "
        "TopicGroupRequestHeader TopicRequestHeader UpdateGlobalWhiteAddrsConfigRequestHeader "
        "ViewBrokerStatsDataRequestHeader"
    ),
    "flintmq.remoting.wire.refusal": "refusal_of system_error",
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'flintmq.protocol' has no attribute {name!r}")
    module = importlib.import_module(home)
    value = module if home.endswith(f".{name}") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
