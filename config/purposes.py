"""The starting configurations of ``flintmq config init``: for each purpose a few settings, each with its reason.

The files contain only settings that differ from the defaults, and those that the reader must decide, so that they stay short.
"""

from __future__ import annotations

import secrets
import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from flintmq.config.loading.schema import KEYS
from flintmq.config.loading.show import yaml_tree

_SECRET_BYTES: Final = 32


@attrs.frozen
class Choice:
    """One setting of a starting configuration."""

    key: str
    """Dotted key of the setting."""
    value: str
    """Value as YAML; empty for a secret, for which each file gets a new random value."""
    why: str
    """Reason for the value, written as a comment above it."""


@attrs.frozen
class Purpose:
    """A purpose of a broker, with its starting configuration."""

    about: str
    """Paragraphs at the head of the file: the guarantees of the broker, and the command that starts it."""
    choices: tuple[Choice, ...]
    """Settings in the order of the file; those of a section are adjacent."""

    @property
    def has_secret(self) -> bool:
        """Return whether the file contains a secret, so that only its owner may read it."""
        return any(KEYS[choice.key].spec.secret for choice in self.choices)


_SYNCED: Final = (
    "Every acknowledgement waits for a sync, which all who wait share: a power cut takes nothing acknowledged."
)
_FEW_OFFSETS: Final = "A broker that is killed delivers again at most what was consumed within the last second."

PURPOSES: Final[Mapping[str, Purpose]] = MappingProxyType(
    {
        "development": Purpose(
            "A broker to write and test programs with: quick to start, small on disk, forgiving.\n\nStart: flintmq run -c FILE",
            (
                Choice("store.path", "./flintmq-store", "The store lies beside you; delete the folder to begin again."),
                Choice(
                    "store.commit_log_file_bytes",
                    "64MiB",
                    "Files of 64 MiB instead of 1 GiB fit on any disk. A store can only be opened with the size it was written "
                    "with.",
                ),
                Choice("store.file_reserved_hours", "1d", "A day of messages is enough to look back at."),
                Choice(
                    "index.max_hash_slot_num",
                    "100000",
                    "With the next one, an index file takes 8 MB instead of 420 MB.",
                ),
                Choice("index.max_index_num", "400000", "Entries of an index file: four for each slot, as by default."),
                Choice(
                    "flush.strategy",
                    "flush_real_time",
                    "Acknowledges at once and syncs in the background: only a power cut loses something, which no test minds.",
                ),
                Choice("topics.auto_create", "true", "A topic is there when the first message is sent to it."),
                Choice("offsets.flush_interval_ms", "1s", _FEW_OFFSETS),
                Choice("pull.property_filter", "true", "Lets consumers subscribe with SQL92 expressions."),
                Choice(
                    "transactions.check_interval_ms",
                    "5s",
                    "A producer that leaves a transaction open is asked within seconds, not after a minute.",
                ),
            ),
        ),
        "durable": Purpose(
            "A broker that loses no message it has acknowledged, not in a power cut either, as long as its disk lives.\n\n"
            "Start: flintmq run -c FILE\n\n"
            "It listens at this machine only. For others set listen.host, and acl.enable (see SECURITY.md).",
            (
                Choice(
                    "broker.shutdown_timeout_ms",
                    "30s",
                    "A stop gives requests under way the time that their syncs take.",
                ),
                Choice(
                    "store.path", "./flintmq-store", "Better an absolute path on a disk that nothing else writes to."
                ),
                Choice("store.file_reserved_hours", "7d", "A week is the time to notice that a consumer has stopped."),
                Choice(
                    "store.hold_until_consumed",
                    "true",
                    "An expired file stays until every group has read it, by its stored offsets (a queue without one counts "
                    "from its beginning), and until what is delayed or in a transaction is delivered, up to "
                    "store.hold_max_bytes. A topic that no group reads is not kept, nor for a group that has no offset and is "
                    "not connected.",
                ),
                Choice(
                    "store.hold_max_bytes",
                    "64GiB",
                    "What they may hold back of the log; then the oldest file goes, unread, with a warning. Fit the disk.",
                ),
                Choice("flush.strategy", "group_commit", _SYNCED),
                Choice(
                    "flush.group_commit.sync_flush_timeout_ms",
                    "5s",
                    "A send that is not synced by then is answered FLUSH_DISK_TIMEOUT, and its producer must send again.",
                ),
                Choice(
                    "topics.auto_create",
                    "false",
                    "A misspelt topic is refused; make topics with flintmq topics create.",
                ),
                Choice("offsets.flush_interval_ms", "1s", _FEW_OFFSETS),
            ),
        ),
        "replicated": Purpose(
            "The master of a pair: it acknowledges a message when a slave has synced it, too.\n\n"
            "Start the master: flintmq run -c FILE\n\n"
            "Start the slave, from a copy of this file:\n\n"
            "  flintmq broker -c FILE -n 127.0.0.1:9876 --store ./flintmq-slave --port 10921 "
            "--set listen.ha_port=10922 --set broker.role=slave --set broker.id=1\n\n"
            "Both listen at this machine only. On two machines set listen.host, and acl.enable (see docs/replication.md and "
            "SECURITY.md).",
            (
                Choice(
                    "broker.name",
                    "broker-a",
                    "A master and its slaves share the name: so a slave finds its master.",
                ),
                Choice(
                    "broker.role",
                    "sync_master",
                    "Without a slave in reach sends are answered SLAVE_NOT_AVAILABLE, and nothing new is read.",
                ),
                Choice("listen.ha_port", "10912", "Slaves connect here."),
                Choice(
                    "ha.secret",
                    "",
                    "Both ends prove that they know it. It was made for this file: let only its owner read it (chmod 600).",
                ),
                Choice(
                    "ha.slave_timeout_ms",
                    "3s",
                    "A send that no slave holds by then is answered FLUSH_SLAVE_TIMEOUT; the message is stored all the same.",
                ),
                Choice("store.path", "./flintmq-store", "The slave has a store of its own, on another disk at best."),
                Choice(
                    "flush.strategy",
                    "group_commit",
                    f"{_SYNCED} With a slave, a lost disk takes nothing either.",
                ),
                Choice("offsets.flush_interval_ms", "1s", _FEW_OFFSETS),
            ),
        ),
        "edge": Purpose(
            "A broker on a small machine: little disk, little memory, and power that may go at any time.\n\n"
            "Start: flintmq run -c FILE",
            (
                Choice("listen.max_connections", "200", "More clients than this machine serves are closed at once."),
                Choice(
                    "listen.max_buffered_bytes", "64MiB", "Answers that nobody reads take at most this much memory."
                ),
                Choice(
                    "store.path", "./flintmq-store", "Better an absolute path, on storage that outlives the machine."
                ),
                Choice(
                    "store.commit_log_file_bytes",
                    "16MiB",
                    "Disk is taken and given back in such steps. A store can only be opened with the size it was written with.",
                ),
                Choice("store.consume_queue_file_bytes", "120000", "A queue takes disk for 6,000 messages at a time."),
                Choice("store.preallocate", "false", "No file is made before it is needed."),
                Choice("store.retention_bytes", "512MiB", "Older files go when the log is longer, expired or not."),
                Choice(
                    "index.max_hash_slot_num", "50000", "With the next one, an index file takes 4 MB instead of 420 MB."
                ),
                Choice("index.max_index_num", "200000", "Entries of an index file: four for each slot, as by default."),
                Choice("flush.strategy", "group_commit", _SYNCED),
                Choice(
                    "topics.default_queue_nums",
                    "2",
                    "Each queue has files of its own, and few clients need few queues.",
                ),
                Choice("topics.count_max", "1000", "Each topic takes about 1 KB of memory, besides its queues."),
                Choice("delay.timer_minute_max", "10000", "Messages due within a minute are in memory, 70 bytes each."),
                Choice("pull.held_max", "2000", "Pulls that wait for messages take 1.3 KB of memory each."),
                Choice("admission.send_queue", "1000", "A burst beyond it is told SYSTEM_BUSY, and sent again later."),
            ),
        ),
    }
)
"""Starting configurations that ``flintmq config init`` writes, keyed by the name of the purpose."""


def starting_yaml(purpose: str, schema: str | None = None) -> str:
    """Return the starting configuration of a purpose as YAML with comments.

    Args:
        purpose: a key of :data:`PURPOSES`.
        schema: path of the JSON Schema relative to the file, written to the first line for editors; None for no schema.
    """
    chosen = PURPOSES[purpose]
    lines = [f"# yaml-language-server: $schema={schema}"] if schema is not None else []
    origin = f"Written by: flintmq config init --for {purpose}. Every setting: flintmq config show"
    for paragraph in (*chosen.about.split("\n\n"), origin):
        is_command = paragraph.startswith("  ")  # A command stays on one line, so that it can be copied.
        lines += [f"# {line}" for line in ([paragraph] if is_command else textwrap.wrap(paragraph, 100))]
    values = {
        choice.key: secrets.token_hex(_SECRET_BYTES) if KEYS[choice.key].spec.secret else choice.value
        for choice in chosen.choices
    }
    body = yaml_tree(values, {choice.key: choice.why for choice in chosen.choices})
    return "".join(f"{line}\n" for line in lines) + "\n" + body
