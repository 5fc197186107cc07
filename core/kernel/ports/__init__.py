"""The ports: the interfaces that plugins implement, with one file for each subject.

Every port on the path of sends and pulls takes a batch; a single message is a batch of one. A port's docstring names the thread
that calls its methods. *The loop thread* runs the broker's event loop; only this thread appends to the log. *The flush thread*
belongs to the flush service.
"""

from typing import Final

from flintmq.core.kernel.ports.access import Caller
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm
from flintmq.core.kernel.ports.auth import Authenticator, ReloadingAuthenticator
from flintmq.core.kernel.ports.dispatch import (
    CommitLogDispatcher,
    SupportsCatchUp,
    SupportsClose,
    SupportsCommitted,
    SupportsTruncate,
)
from flintmq.core.kernel.ports.filter import BitMapFilter, MessageFilter, MessageFilterFactory
from flintmq.core.kernel.ports.flush import (
    FileWriter,
    FlushableLog,
    FlushCommitLogService,
    FlushContext,
    FlushServiceFactory,
    FlushStatistics,
    FlushStatus,
    FlushStrategy,
    FlushWaiter,
    ReplicationGate,
    SupportsFlushSoon,
    TransientStorePool,
)
from flintmq.core.kernel.ports.follow import FollowsMessages, HandedOut, StoredMessages
from flintmq.core.kernel.ports.index import (
    IndexBuilder,
    SupportsCommittedBelow,
    SupportsDeleteBefore,
    SupportsQuerySteps,
)
from flintmq.core.kernel.ports.intake import ChecksAhead, ChecksBatches, IntakeStep, Sent
from flintmq.core.kernel.ports.metrics import Measurement, SupportsMetrics
from flintmq.core.kernel.ports.older import ServesOlderMessages
from flintmq.core.kernel.ports.queues import (
    ConsumeQueues,
    MakeConsumeQueues,
    MakeIndexBuilder,
    QueueReader,
    StoreFolder,
    SupportsDeleted,
    SupportsEvict,
    SupportsExtend,
)
from flintmq.core.kernel.ports.service import (
    Service,
    SupportsAlarms,
    SupportsFigures,
    SupportsFollowing,
    SupportsHealth,
    SupportsPersist,
    SupportsReady,
    SupportsReadyWords,
    SupportsWithdraw,
)
from flintmq.core.kernel.ports.system_topic import SystemTopic, TagsCodes, TagsCodesFactory, tags_codes_of
from flintmq.core.record.dispatch_request import AppendedBatch, AppendUnit, DispatchRequest, count_messages, requests_of
from flintmq.core.record.record_batch import RecordBatch

__all__ = [
    "CRITICAL",
    "OPTIONAL_OF_SERVICES",
    "WARNING",
    "Alarm",
    "AppendUnit",
    "AppendedBatch",
    "Authenticator",
    "BitMapFilter",
    "Caller",
    "ChecksAhead",
    "ChecksBatches",
    "CommitLogDispatcher",
    "ConsumeQueues",
    "DispatchRequest",
    "FileWriter",
    "FlushCommitLogService",
    "FlushContext",
    "FlushServiceFactory",
    "FlushStatistics",
    "FlushStatus",
    "FlushStrategy",
    "FlushWaiter",
    "FlushableLog",
    "FollowsMessages",
    "HandedOut",
    "IndexBuilder",
    "IntakeStep",
    "MakeConsumeQueues",
    "MakeIndexBuilder",
    "Measurement",
    "MessageFilter",
    "MessageFilterFactory",
    "QueueReader",
    "RecordBatch",
    "ReloadingAuthenticator",
    "ReplicationGate",
    "Sent",
    "ServesOlderMessages",
    "Service",
    "StoreFolder",
    "StoredMessages",
    "SupportsAlarms",
    "SupportsCatchUp",
    "SupportsClose",
    "SupportsCommitted",
    "SupportsCommittedBelow",
    "SupportsDeleteBefore",
    "SupportsDeleted",
    "SupportsEvict",
    "SupportsExtend",
    "SupportsFigures",
    "SupportsFlushSoon",
    "SupportsFollowing",
    "SupportsHealth",
    "SupportsMetrics",
    "SupportsPersist",
    "SupportsQuerySteps",
    "SupportsReady",
    "SupportsReadyWords",
    "SupportsTruncate",
    "SupportsWithdraw",
    "SystemTopic",
    "TagsCodes",
    "TagsCodesFactory",
    "TransientStorePool",
    "count_messages",
    "requests_of",
    "tags_codes_of",
]

OPTIONAL_OF_SERVICES: Final = (
    SupportsReady,
    SupportsWithdraw,
    SupportsPersist,
    SupportsFigures,
    SupportsHealth,
    SupportsAlarms,
    SupportsReadyWords,
    SupportsFollowing,
    SupportsMetrics,
    FollowsMessages,
    ServesOlderMessages,
)
"""Protocols of optional methods that a :class:`.service.Service` may have."""
