"""The ports: what the kernel wires and plugins implement, one file a subject.

Every port on the hot path takes a batch; one message is a batch of one. A port says which thread calls it: *the loop
thread* is the one event loop that owns the log's tail, *the flush thread* is the flush service's own.
"""

from flintmq.core.kernel.ports.auth import Authenticator, Caller, ReloadingAuthenticator
from flintmq.core.kernel.ports.dispatch import (
    ColumnDispatcher,
    CommitLogDispatcher,
    RunDispatcher,
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
    TransientStorePool,
)
from flintmq.core.kernel.ports.index import ColumnIndexBuilder, IndexBuilder, RunIndexBuilder
from flintmq.core.record.dispatch_request import AppendedBatch, DispatchRequest, Run, count_messages, requests_of

__all__ = [
    "AppendedBatch",
    "Authenticator",
    "BitMapFilter",
    "Caller",
    "ColumnDispatcher",
    "ColumnIndexBuilder",
    "CommitLogDispatcher",
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
    "IndexBuilder",
    "MessageFilter",
    "MessageFilterFactory",
    "ReloadingAuthenticator",
    "ReplicationGate",
    "Run",
    "RunDispatcher",
    "RunIndexBuilder",
    "SupportsCatchUp",
    "SupportsClose",
    "SupportsCommitted",
    "SupportsTruncate",
    "TransientStorePool",
    "count_messages",
    "requests_of",
]
