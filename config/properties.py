"""Imports RocketMQ's ``broker.conf`` (or ``namesrv.conf``): our YAML for what means the same, the reason for what does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from flintmq.config.binding import bind_field
from flintmq.config.emit import HIDDEN, yaml_tree, yaml_value
from flintmq.config.errors import ConfigError, nearest
from flintmq.config.flush_type import FlushType
from flintmq.config.java_properties import Property, parse_properties
from flintmq.config.load import build_config
from flintmq.config.raw import Origin, RawScalar
from flintmq.config.schema import COMPOSITES, KEYS, Role, aliases

STRATEGY = "flush.strategy"

_THREADS = "one event loop serves all requests: there are no thread pools to size"
_LOCK = "one thread appends: there is no lock to choose"
_DLEDGER = "replication by DLedger is not supported"
_NO_HOLD = "files are deleted in the background; readers keep what they hold"

MEANINGLESS: Final[Mapping[str, str]] = {
    "adminBrokerThreadPoolNums": _THREADS,
    "clientManageThreadPoolNums": _THREADS,
    "consumerManageThreadPoolNums": _THREADS,
    "dLegerGroup": _DLEDGER,
    "dLegerPeers": _DLEDGER,
    "dLegerSelfId": _DLEDGER,
    "deleteCommitLogFilesInterval": _NO_HOLD,
    "deleteConsumeQueueFilesInterval": _NO_HOLD,
    "destroyMapedFileIntervalForcibly": _NO_HOLD,
    "enableDLegerCommitLog": _DLEDGER,
    "endTransactionThreadPoolNums": _THREADS,
    "fastFailIfNoBufferInStorePool": "a send waits for a buffer of the pool",
    "fetchNamesrvAddrByAddressServer": "name servers are listed in namesrv.addresses",
    "filterSupportRetry": "a retried message is filtered by its own properties, which a retry keeps",
    "filterServerNums": "there are no filter servers: they ran code sent by clients",
    "heartbeatThreadPoolNums": _THREADS,
    "messageIndexSafe": "the index is always checked against the log after a crash",
    "processReplyMessageThreadPoolNums": _THREADS,
    "pullMessageThreadPoolNums": _THREADS,
    "queryMessageThreadPoolNums": _THREADS,
    "redeleteHangedFileInterval": _NO_HOLD,
    "rocketmqHome": "there is no home folder",
    "sendMessageThreadPoolNums": _THREADS,
    "serverCallbackExecutorThreads": _THREADS,
    "serverSelectorThreads": _THREADS,
    "serverWorkerThreads": _THREADS,
    "storePathConsumeQueue": "consume queues lie in store.path",
    "storePathIndex": "the index lies in store.path",
    "abortFile": "it lies in store.path",
    "storeCheckpoint": "it lies in store.path",
    "useEpollNativeSelector": "the event loop is chosen by listen.loop",
    "useReentrantLockWhenPutMessage": _LOCK,
}
"""RocketMQ's keys that are known and mean nothing here, each with the reason."""


@attrs.frozen
class ImportResult:
    """What became of a properties file."""

    yaml: str
    """The settings that mean the same here, in our names; loads without an error."""
    kept: Mapping[str, tuple[str, ...]]
    """RocketMQ's names that were taken over, each with the dotted keys it set."""
    dropped: tuple[tuple[str, str, str], ...]
    """(name, value, why) of the rest, in the file's order."""


def import_broker_conf(text: str, *, role: Role = "broker", file: str = "broker.conf") -> ImportResult:
    """Translates a properties file. Of a repeated key the last value counts, as in Java.

    Args:
        text: the file's content.
        role: ``namesrv`` for a name server's file.
        file: what errors call it.

    Raises:
        ConfigError: it is not a properties file, or its settings do not fit together.
    """
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    kept: dict[str, tuple[str, ...]] = {}
    dropped: list[tuple[str, str, str]] = []
    flush_type = FlushType()
    entries = parse_properties(text, file=file)
    last = {entry.key: entry for entry in entries}
    for entry in entries:
        value = entry.value.strip()
        if last[entry.key] is not entry:
            dropped.append((entry.key, value, f"given again in line {last[entry.key].line}"))
            continue
        node = RawScalar(value, Origin("file", file, entry.line))
        try:
            if entry.key in COMPOSITES:
                flush_type = flush_type.with_composite(entry.key, node, entry.key)
                kept[entry.key] = (STRATEGY,)
                values[STRATEGY], origins[STRATEGY] = flush_type.strategy, node.origin
                continue
            names = aliases(role).get(entry.key, ())
            found = {name: _typed(name, node) for name in names}
        except ConfigError as error:
            dropped.append((entry.key, value, error.message))
            continue
        if any(KEYS[name].spec.secret for name in names):
            dropped.append((entry.key, HIDDEN, f"a secret: write it to '{names[0]}' yourself"))
            continue
        if not found:
            dropped.append((entry.key, value, _why(entry, role)))
            continue
        kept[entry.key] = names
        values |= found
        origins |= dict.fromkeys(names, node.origin)
    build_config(values, origins)
    ordered = {name: yaml_value(values[name], key.spec) for name, key in KEYS.items() if name in values}
    return ImportResult(yaml_tree(ordered), kept, tuple(dropped))


def _typed(name: str, node: RawScalar) -> Any:
    key = KEYS[name]
    return bind_field(node, key.hint, key.field, name, plain=key.spec.rocketmq_unit)


def _why(entry: Property, role: Role) -> str:
    if entry.key in MEANINGLESS:
        return MEANINGLESS[entry.key]
    near = nearest(entry.key, (*aliases(role), *COMPOSITES), cutoff=0.8)
    return f"unknown key; did you mean '{near}'?" if near else "not supported"
