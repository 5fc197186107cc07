"""Request codes, response codes, language codes, and version ordinals: a version's place in RocketMQ's list of versions.

See docs/internals/protocol.md, Language and version, Request codes and Response codes.
"""

from __future__ import annotations

import enum
from typing import Final

from flintmq.core.response_code import ResponseCode

__all__ = ["PUSHED", "LanguageCode", "RequestCode", "ResponseCode", "language_code", "language_name"]


class RequestCode(enum.IntEnum):
    """Request codes, which select the processor of a request. Numbers and names are RocketMQ's.

    Codes that exist only in RocketMQ 5 are members if FlintMQ supports them; :data:`OF_ROCKETMQ_5` lists the others.
    """

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_BROKER_OFFSET = 13
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    GET_TOPIC_CONFIG_LIST = 22
    GET_TOPIC_NAME_LIST = 23
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    TRIGGER_DELETE_FILES = 27
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_BROKER_CLUSTER_ACL_CONFIG = 54
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    SUSPEND_CONSUMER = 209
    RESUME_CONSUMER = 210
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211
    RESET_CONSUMER_OFFSET_IN_BROKER = 212
    ADJUST_CONSUMER_THREAD_POOL = 213
    WHO_CONSUME_THE_MESSAGE = 214
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    REGISTER_FILTER_SERVER = 301
    REGISTER_MESSAGE_FILTER_CLASS = 302
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    GET_TOPIC_CONFIG = 351
    """Get the settings of a topic. Only mqadmin of RocketMQ 5 sends this request; mqadmin 4.9 requests the settings of all
    topics."""
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    """Get the settings of a consumer group. Only mqadmin of RocketMQ 5 sends this request."""
    LITE_PULL_MESSAGE = 361
    """Pull messages. ``DefaultLitePullConsumer`` of RocketMQ 5 sends this request."""
    GET_BROKER_REPORT = 9_000
    """Get a broker's report (:mod:`.broker_report`). This code exists only in FlintMQ."""


_POP: Final = (
    "pop consumption is of RocketMQ 5, and this broker speaks the protocol of 4.9: consume by push or pull, and leave "
    "clientRebalance on"
)
_RECALL: Final = (
    "a message cannot be recalled: that is of RocketMQ 5; half messages can be rolled back, and a delayed one can carry a key "
    "by which its consumer leaves it out"
)
_TIMER: Final = "the timer wheel of RocketMQ 5 has another form here: flintmq status shows what waits"
_CONTROLLER: Final = "controllers are of RocketMQ 5: a slave is promoted by an operator (docs/replication.md)"
_AUTH: Final = "users and rules of RocketMQ 5 are not known here: accounts are those of 4.9 (mqadmin updateAclConfig)"
_COLD: Final = "flow control of cold data is of RocketMQ 5"
OF_ROCKETMQ_5: Final[dict[int, tuple[str, str]]] = {
    60: ("GET_TIMER_CHECK_POINT", _TIMER),
    61: ("GET_TIMER_METRICS", _TIMER),
    353: (
        "UPDATE_AND_GET_GROUP_FORBIDDEN",
        "a group can be refused all of its topics only: mqadmin updateSubGroup -s false",
    ),
    354: ("CHECK_ROCKSDB_CQ_WRITE_PROGRESS", "consume queues are never kept in RocksDB here"),
    355: ("EXPORT_ROCKSDB_CONFIG_TO_JSON", "topics, groups and offsets are kept in JSON here"),
    370: ("RECALL_MESSAGE", _RECALL),
    400: ("QUERY_ASSIGNMENT", _POP),
    401: ("SET_MESSAGE_REQUEST_MODE", _POP),
    402: ("GET_ALL_MESSAGE_REQUEST_MODE", _POP),
    513: ("UPDATE_AND_CREATE_STATIC_TOPIC", "static topics, which span brokers, are of RocketMQ 5"),
    907: ("GET_BROKER_HA_STATUS", "flintmq status shows the replication of a FlintMQ broker"),
    **{
        code: (name, _CONTROLLER)
        for code, name in (
            (1001, "CONTROLLER_ALTER_SYNC_STATE_SET"),
            (1002, "CONTROLLER_ELECT_MASTER"),
            (1003, "CONTROLLER_REGISTER_BROKER"),
            (1004, "CONTROLLER_GET_REPLICA_INFO"),
            (1005, "CONTROLLER_GET_METADATA_INFO"),
            (1006, "CONTROLLER_GET_SYNC_STATE_DATA"),
            (1007, "GET_BROKER_EPOCH_CACHE"),
            (1008, "NOTIFY_BROKER_ROLE_CHANGED"),
            (1009, "UPDATE_CONTROLLER_CONFIG"),
            (1010, "GET_CONTROLLER_CONFIG"),
            (1011, "CLEAN_BROKER_DATA"),
        )
    },
    2001: ("UPDATE_COLD_DATA_FLOW_CTR_CONFIG", _COLD),
    2002: ("REMOVE_COLD_DATA_FLOW_CTR_CONFIG", _COLD),
    2003: ("GET_COLD_DATA_FLOW_CTR_INFO", _COLD),
    2004: ("SET_COMMITLOG_READ_MODE", "how the log is read ahead is the operating system's affair here"),
    **{
        code: (name, _AUTH)
        for code, name in (
            (3001, "AUTH_CREATE_USER"),
            (3002, "AUTH_UPDATE_USER"),
            (3003, "AUTH_DELETE_USER"),
            (3004, "AUTH_GET_USER"),
            (3005, "AUTH_LIST_USER"),
            (3006, "AUTH_CREATE_ACL"),
            (3007, "AUTH_UPDATE_ACL"),
            (3008, "AUTH_DELETE_ACL"),
            (3009, "AUTH_GET_ACL"),
            (3010, "AUTH_LIST_ACL"),
        )
    },
    **{
        code: (name, _POP)
        for code, name in (
            (200_050, "POP_MESSAGE"),
            (200_051, "ACK_MESSAGE"),
            (200_052, "PEEK_MESSAGE"),
            (200_053, "CHANGE_MESSAGE_INVISIBLETIME"),
            (200_054, "NOTIFICATION"),
            (200_055, "POLLING_INFO"),
            (200_056, "POP_ROLLBACK"),
            (200_151, "BATCH_ACK_MESSAGE"),
        )
    },
}
"""Name of each request code of RocketMQ 5 that FlintMQ refuses, and the text of the refusal, keyed by code."""

PUSHED: Final = frozenset(
    {
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    }
)
"""Codes of the requests that brokers send to clients."""


class LanguageCode(enum.IntEnum):
    """Codes for the language in which a client or server is written. Headers in the binary codec contain them."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    """Code of the language Rust, which only clients of RocketMQ 5 send."""


PULLS: Final = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})
"""Request codes of pulls. The broker may hold a pull until a message arrives."""

LANGUAGE_NAMES: Final[dict[int, str]] = {int(language): language.name for language in LanguageCode}
LANGUAGE_CODES: Final[dict[str, int]] = {language.name: int(language) for language in LanguageCode}


def language_name(code: int) -> str:
    """Return the name of a language code; ``OTHER`` for an unknown code."""
    return LANGUAGE_NAMES.get(code, "OTHER")


def language_code(name: str) -> int:
    """Return the code of a language name; the code of ``OTHER`` for an unknown name."""
    return LANGUAGE_CODES.get(name, int(LanguageCode.OTHER))


V3_0_7_SNAPSHOT: Final = 28
"""First version of RocketMQ whose consumers understand the requests that reset offsets and read their status (220, 222,
307)."""
V3_0_11: Final = 37
"""First version of RocketMQ whose REGISTER_BROKER requests contain a RegisterBrokerBody."""
V3_1_8_SNAPSHOT: Final = 62
"""First version of RocketMQ whose consumers understand the requests 307 (running info) and 309 (consume a message)."""
V3_4_9: Final = 121
"""First version of RocketMQ in whose requests ``maxReconsumeTimes`` overrides the setting of the consumer group."""
V4_0_0: Final = 213
V4_1_0: Final = 233
V4_2_0: Final = 253
V4_3_0: Final = 273
V4_4_0: Final = 293
V4_5_0: Final = 313
V4_6_0: Final = 333
V4_7_0: Final = 353
V4_8_0: Final = 373
V4_9_0: Final = 393
V4_9_2: Final = 397
V4_9_3: Final = 399
V4_9_4: Final = 401
"""First version of RocketMQ whose clients read routes as strict JSON."""
V4_9_5: Final = 403
V4_9_7: Final = 407
V4_9_8: Final = 409
V5_0_0: Final = 413

MQ_VERSION: Final = V4_9_7
"""Version that FlintMQ's requests and answers contain: the release of RocketMQ with which FlintMQ's answers were compared."""

VERSION_NAMES: Final[dict[int, str]] = {
    ordinal: name for name, ordinal in globals().copy().items() if name.startswith("V") and isinstance(ordinal, int)
}


def version_name(ordinal: int) -> str:
    """Return the name of a version's ordinal, such as ``V4_9_7``.

    For an ordinal between two known releases, the name of the older release with a ``+`` is returned.
    """
    if ordinal in VERSION_NAMES:
        return VERSION_NAMES[ordinal]
    below = [known for known in VERSION_NAMES if known < ordinal]
    return f"{VERSION_NAMES[max(below)]}+" if below else f"V?{ordinal}"
