"""All fixed limits of FlintMQ, each with its reason. Limits that operators can change are settings in :mod:`flintmq.config`."""

from __future__ import annotations

from typing import Final

FRAME_MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a frame, RocketMQ's ``frameMaxLength``; a peer that announces a larger frame does not speak the protocol.

See docs/internals/protocol.md, Frame.
"""

HEADER_MAX_BYTES: Final = 1024 * 1024
"""Maximum size of a header. A longer header is refused unread, because reading it would block the event loop too long.

Properties have at most 32,767 bytes, which JSON can escape to 200 KB (``\\u0001``). RocketMQ reads headers of any length.
"""

HEADER_LENIENT_MAX_BYTES: Final = 256 * 1024
"""Maximum size of a header that only the lenient reader (fastjson's rules) accepts; the longest valid header of a send is
shorter."""

HEADER_MARKS_MAX: Final = 40 * 1024
"""Maximum number of values in a header whose JSON is valid, but whose values do not have the declared types. Such a header is
read by Python's JSON reader, which creates an object for each value."""

HEADER_DIALECT_MARKS_MAX: Final = 6 * 1024
"""Maximum number of values and escapes in a header in fastjson's dialect; the reader takes some microseconds for each value and
each escape."""

ANSWER_HEADER_MAX_BYTES: Final = 512 * 1024
"""Maximum size of an answer's header that clients accept; the answer to a batch lists up to 4,096 message ids of 33 (IPv6: 57)
characters."""

HEADER_FIELDS_MAX: Final = 4_096
"""Maximum number of fields in a header, because access control processes every field. The longest request has about 30
fields."""

TOPIC_MAX_BYTES: Final = 127
"""Maximum length of a topic name; a record stores the length in one signed byte (store-format.md, Commit log record)."""

GROUP_MAX_BYTES: Final = 255
"""Maximum length of a group name; RocketMQ's clients cannot subscribe to ``%RETRY%<group>`` if the name is longer."""

PROPERTIES_MAX_BYTES: Final = 32_767
"""Maximum length of properties; a record stores the length in one signed short (store-format.md, Commit log record)."""

BATCH_MAX_MESSAGES: Final = 4_096
"""Maximum number of messages in a batch, which limits the work of one request; a body of 4 MiB could contain 190,000 empty
messages.

RocketMQ limits only the bytes (``maxMessageSize``); a batch of 1 KiB messages reaches 4 MiB first. The number of properties and
keys is not limited. Instead, a large batch is checked in several steps, between which the event loop can do other work
(:mod:`flintmq.remoting.processors.send_message`).
"""

IN_FLIGHT_PER_CONNECTION: Final = 4_096
"""Maximum number of unanswered requests of a connection; at this limit the server does not read from the connection."""

SEND_BUFFER_MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of unsent answers to one peer: four of the largest frames. A peer with more unsent answers is disconnected."""

BUFFERED_MAX_BYTES: Final = 1024 * 1024 * 1024
"""Default of ``listen.max_buffered_bytes``, the limit for incomplete frames and unsent answers of all peers together. The
default is enough for 256 producers that have each sent a part of the largest message. Beyond this size the peer with the most
bytes is disconnected. The limits per peer are not sufficient, because they add up for 10,000 peers."""

CONNECTIONS_PER_ADDRESS_MAX: Final = 8_000
"""Default of ``listen.max_connections_per_address``. The default leaves some of ``listen.max_connections`` for clients at other
addresses."""

ACCEPTS_PER_TURN: Final = 8
"""Maximum number of connections accepted per iteration of the event loop, about 1 ms of work, so that accepting delays other
connections little."""

FIRST_FRAME_TIMEOUT_S: Final = 30.0
"""Seconds from the first byte of a connection until its first frame must be complete, because the incomplete frame of an
unknown peer occupies memory."""

TLS_HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds from the first byte of a TLS handshake to its end; before the first byte the ordinary idle timeout applies."""

TLS_PENDING_MAX: Final = 1_000
"""Maximum number of connections in their TLS handshake; each connection costs about 50 KB of memory and the computation of a
signature."""

TLS_PENDING_PER_ADDRESS_MAX: Final = 500
"""Maximum number of connections from one address that are in their TLS handshake or have sent nothing yet, so that clients at
other addresses can connect."""

FRAME_TIMEOUT_S: Final = 60.0
"""Seconds within which a frame must be complete, because an incomplete frame occupies memory."""

ENDING_S: Final = 0.5
"""Seconds for which the server discards further bytes of a peer after the answer that ends the peer's connection."""

JSON_BODY_MAX_BYTES: Final = FRAME_MAX_BYTES
"""Maximum size of a JSON body, equal to the maximum size of a frame."""

REQUEST_JSON_MAX_BYTES: Final = 1024 * 1024
"""Maximum size of a client's JSON body, such as a heartbeat or a list of queues to lock; a heartbeat with 1,000 subscriptions
has 250 KB."""

REQUEST_JSON_MAX_OBJECTS: Final = 16_384
"""Maximum number of objects in a client's JSON body; decoding an object takes a microsecond. Bodies within the limits of groups
and topics have fewer objects."""

REQUEST_JSON_DIALECT_MAX_BYTES: Final = 32 * 1024
"""Maximum size of a request body in fastjson's dialect, whose reader takes a microsecond per character."""

REQUEST_SETTINGS_MAX_BYTES: Final = 32 * 1024
"""Maximum size of a request that changes settings (request codes 25 and 318); all settings with RocketMQ's names take 10 KB."""

JSON_MAX_DEPTH: Final = 64
"""Maximum nesting of JSON, because the lenient parser recurses; no body of the protocol is nested deeper than 6."""

CLIENTS_PER_GROUP_MAX: Final = 10_000
"""Maximum number of members of a group; each member gets every rebalance notification."""

CLIENT_ID_MAX_BYTES: Final = 1_024
"""Maximum length of a client id; RocketMQ's clients combine an address, a process id and an instance name."""

GROUPS_PER_CONNECTION_MAX: Final = 4_096
"""Maximum number of producer groups of a connection, and maximum number of its consumer groups; a client of many tenants has
hundreds of groups."""

QUEUE_NUMS_MAX: Final = 65_536
"""Maximum number of queues of a topic; each queue has a folder in the store, and an entry in the memory of every client."""

QUEUE_LOCKS_MAX: Final = 200_000
"""Maximum number of locked queues of all groups (about 300 bytes each), enough for 1,000 orderly groups with 200 queues
each."""

KEPT_REGISTRATIONS_MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of the file ``flint/consumers``, in which the broker stores the known consumers for a restart; 10,000 groups
with a few members have 5 MB."""

SUBSCRIPTIONS_PER_HEARTBEAT_MAX: Final = 10_000
"""Maximum number of topics in one heartbeat."""

SUBSCRIPTIONS_PER_CONNECTION_MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum memory of a connection's subscriptions in all its groups, enough for 4,096 groups with ten topics each."""

SUBSCRIPTIONS_MAX_BYTES: Final = 256 * 1024 * 1024
"""Maximum memory of the subscriptions of all connections, enough for 10,000 clients with 60 topics each. The limit is needed
because subscriptions come with heartbeats, and clients need no permission for heartbeats."""

MEMBERSHIPS_MAX: Final = 200_000
"""Maximum number of members of all producer groups together, and of all consumer groups together, enough for 10,000 clients in
20 groups each. A member takes about 700 bytes."""

COUNTERS_MAX: Final = 500_000
"""Maximum number of counters that VIEW_BROKER_STATS_DATA (request 315) reads; a counter takes about 2 KB. There are counters
for each topic, and for each pair of group and topic in a pull. The limit is needed because pulls need few permissions, and
clients can invent group names."""

REGISTERED_TOPICS_MAX: Final = 200_000
"""Maximum number of topics in a broker's registration; 16 KB of compressed data can expand to millions of topics."""

REGISTERED_BROKERS_MAX: Final = 10_000
"""Maximum number of broker names in a name server, and maximum number of broker addresses; clusters have some hundred
brokers."""

REGISTERED_BROKERS_PER_CONNECTION_MAX: Final = 256
"""Maximum number of broker addresses registered by one connection. RocketMQ's brokers register one address per connection."""

REGISTERED_TOPICS_IN_ALL_MAX: Final = 1_000_000
"""Maximum number of topics in a name server. A topic of several brokers counts once for each broker. This number of topics
takes about 300 MiB."""

KV_CONFIG_ENTRIES_MAX: Final = 200_000
"""Maximum number of keys in a name server's key-value configuration; an ordered topic has one key."""

KV_CONFIG_MAX_BYTES: Final = 32 * 1024 * 1024
"""Maximum total size of the names and values in a name server's key-value configuration, which is kept in memory and in
``kvConfig.json``."""

FILTER_EXPRESSION_MAX_BYTES: Final = 16 * 1024
"""Maximum length of a filter expression, enough for 700 ids in an IN list; splitting the expression into tokens takes about 10
ms."""

FILTER_MAX_DEPTH: Final = 48
"""Maximum nesting of parentheses, NOTs, unary plus and minus, and chained comparisons in a filter expression, because parsers
recurse."""

FILTER_MAX_TERMS: Final = 512
"""Maximum number of names and values in a filter expression, outside IN lists; a pull evaluates the expression for up to 800
messages."""

CONSUMER_FILTERS_MAX: Final = 10_000
"""Maximum number of filter expressions in a broker whose results are computed when a message is stored, and are saved as bits
of the message's bloom filter. Each expression takes about 2 KB. A pull with any other expression evaluates the expression for
every message, as without ``pull.calc_filter_bitmap``."""

CONSUMER_FILTERS_PER_GROUP_MAX: Final = 256
"""Maximum number of one group's filter expressions whose results are saved as bits of stored messages' bloom filters. The limit
prevents that one group uses up :data:`CONSUMER_FILTERS_MAX`."""

CONSUMER_FILTERS_MAX_BYTES: Final = 8 * 1024 * 1024
"""Maximum total size of the filter expressions whose results are saved as bits of stored messages' bloom filters. All these
expressions are written to ``consumerFilter.json`` at each change."""

CONSUMER_FILTERS_COMPILED_BYTES_PER_S: Final = 128 * 1024
"""Maximum total size of filter expressions from heartbeats that are compiled per second, which takes about 80 ms. Further
expressions are compiled after the next heartbeat."""

HA_FRAME_MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum number of log bytes in a frame of a replication stream; RocketMQ sends 32 KiB (``haTransferBatchSize``)."""

HA_SLAVE_FRAME_MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a frame in which a slave sends its state, which has about 100 bytes for each epoch of the slave's log. The
frame is buffered before the slave is authenticated."""

HA_PENDING_MAX: Final = 32
"""Maximum number of unauthenticated connections to the replication port."""

HA_EPOCHS_MAX: Final = 10_000
"""Maximum number of epochs of a store's commit log (:mod:`flintmq.core.log.epochs`); the oldest epochs are removed first."""

HA_RECORD_MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a record that a slave buffers until the record is complete: 16 times the default maximum message size."""

HA_SEND_BUFFER_BYTES: Final = 1024 * 1024
"""Maximum size of unsent bytes to a slave, as in RocketMQ."""

HA_HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds within which the first request of a slave must arrive after the slave has connected; slaves send this request at
once."""
