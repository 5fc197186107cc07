"""Every hard limit, in one place, each with its reason. What an operator may change is in :mod:`flintmq.config`."""

from __future__ import annotations

from typing import Final

FRAME_MAX_BYTES: Final = 16 * 1024 * 1024
"""RocketMQ's ``frameMaxLength``: a peer that announces more is not speaking the protocol.

See docs/internals/protocol.md, Frame.
"""

HEADER_MAX_BYTES: Final = 1024 * 1024
"""Properties are at most 32,767 bytes, of which JSON may make 200 KB (``\\u0001``). RocketMQ reads headers of any length; one
that is longer than this is refused unread, because it would keep the loop for longer than a slice of work."""

HEADER_LENIENT_MAX_BYTES: Final = 256 * 1024
"""Of a header that is not plain JSON of the right types, but what fastjson takes: the longest legal send fits in."""

HEADER_MARKS_MAX: Final = 40 * 1024
"""Values in a header that is not plain JSON of the right types: Python's reader makes an object of each."""

HEADER_DIALECT_MARKS_MAX: Final = 6 * 1024
"""Values and escapes in one that is only fastjson's dialect: its reader takes some microseconds for each."""

ANSWER_HEADER_MAX_BYTES: Final = 512 * 1024
"""The answer to a batch names each of its up to 4,096 messages: 33 characters of IPv4, 57 of IPv6. For clients."""

HEADER_FIELDS_MAX: Final = 4_096
"""The longest request of the protocol has some 30 fields. Each is sorted, copied and looked at by access control."""

TOPIC_MAX_BYTES: Final = 127
"""The record stores the topic's length in one signed byte (docs/internals/store-format.md, Commit log record)."""

GROUP_MAX_BYTES: Final = 255
"""A group becomes part of ``%RETRY%<group>``; longer names cannot be subscribed to by RocketMQ's clients."""

PROPERTIES_MAX_BYTES: Final = 32_767
"""The record stores the properties' length in one signed short (docs/internals/store-format.md, Commit log record)."""

BATCH_MAX_MESSAGES: Final = 4_096
"""Bounds the work of one request; a 4 MiB body holds at most some 190,000 empty items otherwise. RocketMQ counts no messages,
only bytes (``maxMessageSize``): a sender has 4 MiB of messages of 1 KiB before it meets this. The entries and keys of its
messages are not bounded, but worked off in turns (:mod:`flintmq.remoting.processors.send_message`)."""

IN_FLIGHT_PER_CONNECTION: Final = 4_096
"""Requests of one connection that are not answered yet; beyond it the connection is not read from."""

SEND_BUFFER_MAX_BYTES: Final = 64 * 1024 * 1024
"""What may wait for one peer that does not read: four answers of the largest frame. Then it is disconnected."""

BUFFERED_MAX_BYTES: Final = 1024 * 1024 * 1024
"""Halves of frames and answers not read, of all peers together (``listen.max_buffered_bytes``): 256 producers that are in the
midst of the largest message. Beyond it the peer that holds most is disconnected: the limits of 10,000 peers add up."""

CONNECTIONS_PER_ADDRESS_MAX: Final = 8_000
"""Of one address (``listen.max_connections_per_address``): a rest of ``listen.max_connections`` stays for others."""

ACCEPTS_PER_TURN: Final = 8
"""Connections accepted in one turn of the loop, a millisecond of work with their ends: a flood of connections delays no
other."""

FIRST_FRAME_TIMEOUT_S: Final = 30.0
"""The first frame of a connection must be whole so long after its first byte: a peer that is not known yet holds memory."""

TLS_HANDSHAKE_TIMEOUT_S: Final = 10.0
"""From the first byte of a handshake to its end. Before that byte a connection may be silent as long as any other."""

TLS_PENDING_MAX: Final = 1_000
"""Connections in their handshake: each costs some 50 KB and a signature."""

TLS_PENDING_PER_ADDRESS_MAX: Final = 500
"""Of one address: half, so that one cannot keep all others from their handshakes. Those that are silent so far count, too."""

FRAME_TIMEOUT_S: Final = 60.0
"""A frame must be whole after this: half a frame holds memory."""

ENDING_S: Final = 0.5
"""What a peer still sends is dropped for so long after the answer that says why its connection ends: it may be amid a frame."""

JSON_BODY_MAX_BYTES: Final = FRAME_MAX_BYTES
"""A JSON body is bounded by its frame."""

REQUEST_JSON_MAX_BYTES: Final = 1024 * 1024
"""Of a client's heartbeat, locks, or group: one with a thousand subscriptions has 250 KB. What they say is kept."""

REQUEST_JSON_MAX_OBJECTS: Final = 16_384
"""Objects in it: each costs a microsecond to make. More than a heartbeat may have of groups and topics together."""

REQUEST_JSON_DIALECT_MAX_BYTES: Final = 32 * 1024
"""A body from outside that is not plain JSON but fastjson's dialect: its reader takes a microsecond a character."""

REQUEST_SETTINGS_MAX_BYTES: Final = 32 * 1024
"""Of a request that changes settings (25, 318): every setting there is, with RocketMQ's names, has 10 KB."""

JSON_MAX_DEPTH: Final = 64
"""No body of the protocol nests deeper than 6; the lenient parser recurses."""

CLIENTS_PER_GROUP_MAX: Final = 10_000
"""Members of one group: each gets the rebalance notice."""

CLIENT_ID_MAX_BYTES: Final = 1_024
"""RocketMQ's clients make theirs of an address, a process id and an instance's name."""

GROUPS_PER_CONNECTION_MAX: Final = 4_096
"""Groups of producers, and again of consumers, that one connection belongs to: a client of many tenants has hundreds."""

QUEUE_NUMS_MAX: Final = 65_536
"""A topic with more queues is a mistake: each queue becomes a folder and an entry at every client."""

QUEUE_LOCKS_MAX: Final = 200_000
"""Locked queues of all groups (about 300 bytes each): a thousand orderly groups with 200 queues each."""

KEPT_REGISTRATIONS_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of the file with the consumers that a start has to know again: ten thousand groups with a few members have some 5 MB."""

SUBSCRIPTIONS_PER_HEARTBEAT_MAX: Final = 10_000
"""Topics in one heartbeat."""

SUBSCRIPTIONS_PER_CONNECTION_MAX_BYTES: Final = 16 * 1024 * 1024
"""What the subscriptions of one connection take of memory, over all of its groups: 4,096 groups with ten topics each."""

SUBSCRIPTIONS_MAX_BYTES: Final = 256 * 1024 * 1024
"""Those of all connections: 10,000 clients with sixty topics each. A heartbeat needs no rights, and what it says is kept."""

MEMBERSHIPS_MAX: Final = 200_000
"""Members of all groups of producers, and again of consumers, some 700 bytes each: 10,000 clients in twenty groups each."""

COUNTERS_MAX: Final = 500_000
"""Counters of request 315, some 2 KB each: of topics, and of each group in each topic that it pulled from. Pulls need few
rights, and their groups may be made up."""

REGISTERED_TOPICS_MAX: Final = 200_000
"""Topics that one broker registers: compressed, 16 KB of a stranger become millions of them."""

REGISTERED_BROKERS_MAX: Final = 10_000
"""Broker names, and addresses, that a name server knows: anyone who may register makes new ones. Clusters have some hundred."""

REGISTERED_BROKERS_PER_CONNECTION_MAX: Final = 256
"""Addresses of one connection; RocketMQ's brokers register one each, a container of brokers those that are in it."""

REGISTERED_TOPICS_IN_ALL_MAX: Final = 1_000_000
"""Topics of all brokers together, each counted once for each broker that has it: some 300 MiB of a name server."""

KV_CONFIG_ENTRIES_MAX: Final = 200_000
"""Keys of all namespaces of a name server; an ordered topic has one."""

KV_CONFIG_MAX_BYTES: Final = 32 * 1024 * 1024
"""Their names and values together, which are kept in memory and in ``kvConfig.json``."""

FILTER_EXPRESSION_MAX_BYTES: Final = 16 * 1024
"""A filter expression: some 700 ids in an IN list; cutting it into tokens takes some 10 ms of the loop's time."""

FILTER_MAX_DEPTH: Final = 48
"""Parentheses, NOTs, signs and chained comparisons of a filter expression: the parser and the compiled program recurse."""

FILTER_MAX_TERMS: Final = 512
"""Names and values of a filter expression outside IN lists: all of them may be looked at for each of a pull's 800 units."""

CONSUMER_FILTERS_MAX: Final = 10_000
"""Filters of groups that do not subscribe by tags, of the whole broker: some 2 KB each. No bit maps are made of those beyond
it; their pulls evaluate every message, as they do without ``pull.calc_filter_bitmap``."""

CONSUMER_FILTERS_PER_GROUP_MAX: Final = 256
"""Of one group: a group that subscribes to more topics by expressions is a mistake, and shall not take the room of others."""

CONSUMER_FILTERS_MAX_BYTES: Final = 8 * 1024 * 1024
"""Their expressions together, which are written to ``consumerFilter.json`` when one of them changes."""

CONSUMER_FILTERS_COMPILED_BYTES_PER_S: Final = 128 * 1024
"""Expressions in heartbeats that are compiled within a second: 80 ms of the loop's time. The next heartbeat brings the
others."""

HA_FRAME_MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the log in one frame of a replication stream: RocketMQ's masters send 32 KiB (``haTransferBatchSize``)."""

HA_SLAVE_FRAME_MAX_BYTES: Final = 4 * 1024 * 1024
"""What a slave says at once: its state, with some hundred bytes for each epoch. It is kept before its seal can be checked."""

HA_PENDING_MAX: Final = 32
"""Connections to the replication port that have not proved themselves yet."""

HA_EPOCHS_MAX: Final = 10_000
"""Epochs that a store remembers; the oldest are forgotten first."""

HA_RECORD_MAX_BYTES: Final = 64 * 1024 * 1024
"""A slave keeps a record in memory until it is whole: sixteen times the largest message by default, its properties included."""

HA_SEND_BUFFER_BYTES: Final = 1024 * 1024
"""What may wait for one slave that does not read; as RocketMQ's."""

HA_HANDSHAKE_TIMEOUT_S: Final = 10.0
"""From a slave's connection to its request; it says it at once."""
