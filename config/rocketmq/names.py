"""Keys of RocketMQ 4.9's broker that cannot be set in FlintMQ, with the fixed value and the reason of each.

The answer to request 26 (get a broker's configuration) contains these keys, with the value that describes FlintMQ's behavior.
If a ``broker.conf`` contains such a key, a warning gives the reason why it has no effect. Keys that can be set are fields of
the sections, with RocketMQ's name (see :mod:`flintmq.config.fields`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs


@attrs.frozen
class FixedKey:
    """The fixed value of a RocketMQ key that cannot be set in FlintMQ."""

    value: str | None
    """Value of the key in the answer to request 26 (GET_BROKER_CONFIG). None if RocketMQ's answer does not contain the key, or
    if other settings determine the value."""
    why: str
    """The reason why users cannot set this RocketMQ key in FlintMQ."""


def _fixed(why: str, **values: str | None) -> dict[str, FixedKey]:
    return {name: FixedKey(value, why) for name, value in values.items()}


FIXED: Final[Mapping[str, FixedKey]] = MappingProxyType(
    _fixed(
        "one event loop serves all requests: there are no thread pools to size",
        adminBrokerThreadPoolNums="1",
        clientCallbackExecutorThreads="1",
        clientManageThreadPoolNums="1",
        clientWorkerThreads="1",
        consumerManageThreadPoolNums="1",
        endTransactionThreadPoolNums="1",
        heartbeatThreadPoolNums="1",
        processReplyMessageThreadPoolNums="1",
        pullMessageThreadPoolNums="1",
        putMessageFutureThreadPoolNums="1",
        queryMessageThreadPoolNums="1",
        sendMessageThreadPoolNums="1",
        serverCallbackExecutorThreads="1",
        serverSelectorThreads="1",
        serverWorkerThreads="1",
    )
    | _fixed(
        "one thread appends, so no lock has to be chosen",
        debugLockEnable="false",
        useReentrantLockWhenPutMessage="false",
    )
    | _fixed(
        "replication by DLedger is not supported",
        dLegerGroup=None,
        dLegerPeers=None,
        dLegerSelfId=None,
        enableDLegerCommitLog="false",
        isEnableBatchPush="false",
        preferredLeaderId=None,
    )
    | _fixed(
        "files are deleted in the background; readers keep what they hold",
        deleteCommitLogFilesInterval="0",
        deleteConsumeQueueFilesInterval="0",
        destroyMapedFileIntervalForcibly="0",
        redeleteHangedFileInterval="0",
    )
    | _fixed(
        "it lies in store.path",
        abortFile=None,
        storeCheckpoint=None,
    )
    | _fixed("consume queues lie in store.path", storePathConsumeQueue=None)
    | _fixed("the index lies in store.path", storePathIndex=None)
    | _fixed(
        "buffers of sockets are the system's, and no pool of buffers stands before them",
        clientPooledByteBufAllocatorEnable="false",
        clientSocketRcvBufSize="0",
        clientSocketSndBufSize="0",
        serverPooledByteBufAllocatorEnable="false",
        serverSocketRcvBufSize="0",
        serverSocketSndBufSize="0",
    )
    | _fixed(
        "what may wait for a peer that does not read is a fixed limit (SECURITY.md), counted against "
        "listen.max_buffered_bytes",
        writeBufferHighWaterMark="0",
        writeBufferLowWaterMark="0",
    )
    | _fixed(
        "requests to other servers have one bound together",
        clientAsyncSemaphoreValue="65535",
        clientOnewaySemaphoreValue="65535",
    )
    | _fixed(
        "requests to clients are few, and end with their timeouts",
        serverAsyncSemaphoreValue="64",
        serverOnewaySemaphoreValue="256",
    )
    | _fixed(
        "connections to other servers that are idle are closed after two minutes", clientChannelMaxIdleTimeSeconds="120"
    )
    | _fixed("an answer that does not come ends the request, not its connection", clientCloseSocketIfTimeout="false")
    | _fixed("opening a connection to another server may take three seconds", connectTimeoutMillis="3000")
    | _fixed(
        "connections are watched by listen.idle_timeout_ms (serverChannelMaxIdleTimeSeconds)",
        channelNotActiveInterval="0",
    )
    | _fixed(
        "light message queues (LMQ) and multiple dispatch are not supported",
        enableLmq="false",
        enableMultiDispatch="false",
        maxLmqConsumeQueueNum="0",
    )
    | _fixed(
        "delayed messages are delivered in batches that wait for nothing",
        enableScheduleAsyncDeliver="false",
        scheduleAsyncDeliverMaxPendingLimit="0",
        scheduleAsyncDeliverMaxResendNum2Blocked="0",
    )
    | _fixed(
        "statistics are always counted, and go with their topic or group",
        autoDeleteUnusedStats="true",
        enableDetailStat="true",
        enableScheduleMessageStats="true",
    )
    | _fixed(
        "statistics for billing are not counted",
        commercialBaseCount="1",
        commercialBigCount="1",
        commercialEnable="false",
        commercialTimerCount="1",
        commercialTransCount="1",
    )
    | _fixed("how far behind a group reads on disk is not counted", diskFallRecorded="false")
    | _fixed(
        "a group that reads slowly is not switched off",
        consumerFallbehindThreshold="17179869184",
        disableConsumeIfConsumerReadSlowly="false",
    )
    | _fixed(
        "only sends are refused for having waited (admission.send_wait_ms)",
        waitTimeMillsInHeartbeatQueue="31000",
        waitTimeMillsInPullQueue="5000",
        waitTimeMillsInTransactionQueue="3000",
    )
    | _fixed(
        "a query finds at most 64 messages",
        defaultQueryMaxNum="64",
        maxMsgsNumBatch="64",
    )
    | _fixed(
        "the index is written with the consume queues, with no queue of its own before it",
        putMsgIndexHightWater="0",
    )
    | _fixed("sends wait in one queue, sized by admission.send_queue", putThreadPoolQueueCapacity="0")
    | _fixed(
        "it follows from expectConsumerNumUseFilter and maxErrorRateOfBloomFilter", bitMapLengthConsumeQueueExt=None
    )
    | _fixed("filters of groups that have left are forgotten after a day", filterDataCleanTimeSpan="86400000")
    | _fixed("a retried message is filtered by its own properties, which a retry keeps", filterSupportRetry="false")
    | _fixed("there are no filter servers: they ran code sent by clients", filterServerNums="0")
    | _fixed("offsets are kept in one file, with its backup", flushConsumerOffsetHistoryInterval="0")
    | _fixed("a broker registers with every name server, at every interval, with its whole table", forceRegister="true")
    | _fixed("registrations are sent as they are", compressedRegister="false")
    | _fixed("name servers are listed in namesrv.addresses", fetchNamesrvAddrByAddressServer="false")
    | _fixed(
        "a file for which the pool has no buffer is written through its pages: no send waits for one, or fails",
        fastFailIfNoBufferInStorePool="false",
    )
    | _fixed(
        "a new file is filled as a whole, in the background (warmMapedFileEnable)", flushLeastPagesWhenWarmMapedFile="0"
    )
    | _fixed("the index is always checked against the log after a crash", messageIndexSafe="true")
    | _fixed("RocketMQ's plugins are Java classes; FlintMQ's are named in plugins", messageStorePlugIn="")
    | _fixed("there is no home folder", rocketmqHome="")
    | _fixed("answers to pulls are copied once, from the map to the socket", transferMsgByHeap="true")
    | _fixed("the event loop is chosen by listen.loop", useEpollNativeSelector="false")
    | _fixed("sends are accepted as soon as the broker listens", startAcceptSendRequestTimeStamp="0")
    | _fixed("a slave corrects a position outside its log as a master does", offsetCheckInSlave="true")
    | _fixed("duplicates of a log are not supported", duplicationEnable="false")
    | _fixed("RocketMQ reads it nowhere", highSpeedMode="false", isolateLogEnable="false", maxDelayTime="40")
)
"""RocketMQ's keys that have a fixed value in FlintMQ, keyed by RocketMQ's name."""
