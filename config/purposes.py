"""The starting configurations that ``flintmq config init`` writes. Each starting configuration has a few settings with a reason
for each value. The files contain only settings that differ from the defaults and settings that every user must decide, so that
they are short.
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
    """Dotted key of the setting in a starting configuration."""
    value: str
    """Value of the setting as YAML; empty for a secret, for which each file gets a new random value."""
    why: str
    """Reason for the setting's value. The configuration file contains the reason as a comment above the setting."""


@attrs.frozen
class Purpose:
    """A purpose of a broker, such as development, with the starting configuration that ``flintmq config init`` writes for
    it."""

    about: str
    """Paragraphs at the head of the configuration file: the guarantees of the broker, and the command that starts it."""
    choices: tuple[Choice, ...]
    """Settings in the order of the configuration file, grouped by section."""

    @property
    def has_secret(self) -> bool:
        """Return whether the configuration that ``flintmq config init`` writes for this purpose contains a secret. A file with
        a secret can be read only by its owner."""
        return any(KEYS[choice.key].spec.secret for choice in self.choices)


_SYNCED: Final = (
    "Every acknowledgement waits for a sync, which all waiting sends share: a power cut loses nothing acknowledged."
)
_FEW_OFFSETS: Final = (
    "A broker that is killed delivers again at most the messages that were consumed within the last second."
)

PURPOSES: Final[Mapping[str, Purpose]] = MappingProxyType(
    {
        "development": Purpose(
            "A broker to write and test programs with: quick to start and small on disk.\n\nStart: flintmq run -c FILE",
            (
                Choice(
                    "store.path",
                    "./flintmq-store",
                    "The store is in the current folder; delete it to start without messages.",
                ),
                Choice(
                    "store.commit_log_file_bytes",
                    "64MiB",
                    "Files of 64 MiB instead of 1 GiB fit on any disk. A store can only be opened with the size with which it "
                    "was written.",
                ),
                Choice("store.file_reserved_hours", "1d", "Tests rarely need messages that are older than a day."),
                Choice(
                    "index.max_hash_slot_num",
                    "100000",
                    "With the next setting, an index file takes 8 MB instead of 420 MB.",
                ),
                Choice("index.max_index_num", "400000", "Entries of an index file: four for each slot, as by default."),
                Choice(
                    "flush.strategy",
                    "flush_real_time",
                    "Acknowledges at once and syncs in the background: only a power cut loses messages, which tests accept.",
                ),
                Choice("topics.auto_create", "true", "A topic is created when the first message is sent to it."),
                Choice("offsets.flush_interval_ms", "1s", _FEW_OFFSETS),
                Choice("pull.property_filter", "true", "Lets consumers subscribe with SQL92 expressions."),
                Choice(
                    "transactions.check_interval_ms",
                    "5s",
                    "The producer of an open transaction is asked for its state within seconds, not after a minute.",
                ),
            ),
        ),
        "durable": Purpose(
            "A broker that loses no acknowledged message, even in a power cut, unless its disk fails.\n\n"
            "Start: flintmq run -c FILE\n\n"
            "It accepts connections from this machine only. For other machines, set listen.host and acl.enable (see "
            "SECURITY.md).",
            (
                Choice(
                    "broker.shutdown_timeout_ms",
                    "30s",
                    "A stop waits for the syncs of requests under way.",
                ),
                Choice("store.path", "./flintmq-store", "An absolute path on a disk without other writers is better."),
                Choice("store.file_reserved_hours", "7d", "A stopped consumer should be noticed within a week."),
                Choice(
                    "store.hold_until_consumed",
                    "true",
                    "Keeps an expired file until every group has consumed it by its stored offsets, and until its delayed and "
                    "transactional messages are delivered, up to store.hold_max_bytes. A queue without an offset counts as "
                    "unread. Topics without a reader are not kept, nor files for a group without offsets and connections.",
                ),
                Choice(
                    "store.hold_max_bytes",
                    "64GiB",
                    "Most bytes that are kept for them. Above it, the oldest file is deleted with a warning.",
                ),
                Choice("flush.strategy", "group_commit", _SYNCED),
                Choice(
                    "flush.group_commit.sync_flush_timeout_ms",
                    "5s",
                    "A send that is not synced by then is answered FLUSH_DISK_TIMEOUT, and its producer must repeat it.",
                ),
                Choice(
                    "topics.auto_create",
                    "false",
                    "A misspelled topic is refused. Create topics with flintmq topics create.",
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
            "Both accept connections from this machine only. On two machines, set listen.host and acl.enable (see "
            "docs/replication.md and SECURITY.md).",
            (
                Choice(
                    "broker.name",
                    "broker-a",
                    "A master and its slaves have the same name, by which a slave finds its master.",
                ),
                Choice(
                    "broker.role",
                    "sync_master",
                    "Without a connected slave, sends are answered SLAVE_NOT_AVAILABLE, and consumers get no new messages.",
                ),
                Choice("listen.ha_port", "10912", "Slaves connect here."),
                Choice(
                    "ha.secret",
                    "",
                    "Both brokers prove that they know it. It is random: allow only the owner to read this file (chmod 600).",
                ),
                Choice(
                    "ha.slave_timeout_ms",
                    "3s",
                    "A send that no slave has by then is answered FLUSH_SLAVE_TIMEOUT. Its message is stored nevertheless.",
                ),
                Choice("store.path", "./flintmq-store", "The slave needs another store, preferably on another disk."),
                Choice(
                    "flush.strategy",
                    "group_commit",
                    f"{_SYNCED} With a slave, even the loss of a disk loses nothing.",
                ),
                Choice("offsets.flush_interval_ms", "1s", _FEW_OFFSETS),
            ),
        ),
        "edge": Purpose(
            "A broker on a small machine with little disk, little memory, and power that may fail at any time.\n\n"
            "Start: flintmq run -c FILE",
            (
                Choice("listen.max_connections", "200", "Connections above this number are closed at once."),
                Choice(
                    "listen.max_buffered_bytes",
                    "64MiB",
                    "Answers that clients do not read take at most this much memory.",
                ),
                Choice("store.path", "./flintmq-store", "An absolute path on a durable disk is better."),
                Choice(
                    "store.commit_log_file_bytes",
                    "16MiB",
                    "The log grows and shrinks in files of this size. A store can only be opened with the size with which it "
                    "was written.",
                ),
                Choice(
                    "store.consume_queue_file_bytes", "120000", "The files of a queue grow in steps of 6,000 messages."
                ),
                Choice("store.preallocate", "false", "Files are created only when they are needed."),
                Choice(
                    "store.retention_bytes",
                    "512MiB",
                    "Older files are deleted if the log is longer, even if they have not expired.",
                ),
                Choice(
                    "index.max_hash_slot_num",
                    "50000",
                    "With the next setting, an index file takes 4 MB instead of 420 MB.",
                ),
                Choice("index.max_index_num", "200000", "Entries of an index file: four for each slot, as by default."),
                Choice("flush.strategy", "group_commit", _SYNCED),
                Choice(
                    "topics.default_queue_nums",
                    "2",
                    "Each queue needs files, and few clients need few queues.",
                ),
                Choice("topics.count_max", "1000", "Each topic takes about 1 KB of memory, in addition to its queues."),
                Choice(
                    "delay.timer_minute_max",
                    "10000",
                    "Messages that are due within a minute are in memory, 70 bytes each.",
                ),
                Choice("pull.held_max", "2000", "Pulls that wait for messages take 1.3 KB of memory each."),
                Choice(
                    "admission.send_queue", "1000", "Further sends are answered SYSTEM_BUSY, and are repeated later."
                ),
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
        is_command = paragraph.startswith("  ")  # A command is not wrapped, so that users can copy the line.
        lines += [f"# {line}" for line in ([paragraph] if is_command else textwrap.wrap(paragraph, 100))]
    values = {
        choice.key: secrets.token_hex(_SECRET_BYTES) if KEYS[choice.key].spec.secret else choice.value
        for choice in chosen.choices
    }
    body = yaml_tree(values, {choice.key: choice.why for choice in chosen.choices})
    return "".join(f"{line}\n" for line in lines) + "\n" + body
