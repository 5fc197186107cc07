"""Converts sent messages into messages that can be appended to the store.

The conversion checks the message, creates its topic if necessary and completes its properties. Plugins can redirect the
message, for example to delay it or to make it a dead letter. Messages that a client sends over a socket and messages that the
broker's own process puts are converted in the same way.

See docs/internals/protocol.md, Send.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from flintmq.config.rocketmq.system_topics import AUTO_CREATE_TOPIC
from flintmq.core.broker.intake_steps import IntakeSteps
from flintmq.core.broker.perm import check_broker_writeable
from flintmq.core.broker.property_tails import PropertyTails
from flintmq.core.broker.redirected_message import illegal_message
from flintmq.core.broker.topic_config import UNIT_FLAG, UNIT_SUB_FLAG, TopicConfig
from flintmq.core.broker.topic_name import RETRY_PREFIX, check_topic_name
from flintmq.core.errors import RefusedError
from flintmq.core.io import chance
from flintmq.core.kernel.ports import Sent
from flintmq.core.limits import PROPERTIES_MAX_BYTES, TOPIC_MAX_BYTES
from flintmq.core.record import properties as props
from flintmq.core.record.batch import BatchError, MessageBatch, decode_columns
from flintmq.core.record.properties import (
    AlikeProperties,
    may_wait,
    properties_to_string,
    stored_properties,
    stored_values,
    string_to_properties,
    with_shared,
)
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.record.sys_flag import TRANSACTION_MASK
from flintmq.core.response_code import ResponseCode

if TYPE_CHECKING:
    from flintmq.core.broker.state import BrokerState

_SHARED_MAX_CHARACTERS: Final = 512
"""Maximum length of a batch's property string that is cached. Clients choose the length, so a longer string is parsed for each
batch."""
_WAIT_TRUE: Final = "WAIT\x01true"
_TRANSACTION_MARK: Final = b"TRAN_MSG\x01"
_BODY_KEY: Final = "store.max_message_bytes (maxMessageSize)"


class _Shared(msgspec.Struct, frozen=True, gc=False):
    """The properties that all messages of a batch share."""

    stored: bytes
    properties: dict[str, str]
    wait: bool
    """Whether the sender waits until its messages are durable."""


@lru_cache(maxsize=1_024)
def _shared(text: str, cluster: str) -> _Shared:
    """Parse the property string that all messages of a batch share, and return its properties.

    Results are cached by property string, because the batches of one sender usually have the same property string.
    """
    shared = string_to_properties(text)
    wait = shared.get(props.WAIT) != "false"
    shared["CLUSTER"] = cluster
    return _Shared(properties_to_string(shared).encode("utf-8", "surrogatepass"), shared, wait)


class SendHeader(Protocol):
    """The header of a send: the typed header of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320)."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def properties(self) -> str: ...
    @property
    def default_topic(self) -> str: ...
    @property
    def default_topic_queue_nums(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp_ms(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def max_reconsume_times(self) -> int | None: ...
    @property
    def unit_mode(self) -> bool: ...


class NewMessage(msgspec.Struct, frozen=True):
    """A :class:`SendHeader` for a message that a feature or the embedding process makes, with defaults for a plain send."""

    topic: str
    queue_id: int = -1
    """Id of the queue that gets the message; a negative id lets the broker choose a queue."""
    properties: str = ""
    """Properties of the message in the format of records: for each property its name, ``\\x01``, its value, ``\\x02``."""
    born_timestamp_ms: int = 0
    """Time at which the message was made, in ms since 1970."""
    flag: int = 0
    """Number that the sender chooses; consumers get the number with the message."""
    sys_flag: int = 0
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    default_topic: str = AUTO_CREATE_TOPIC
    """Template from which the topic is created if it does not exist."""
    default_topic_queue_nums: int = 4
    unit_mode: bool = False


class Sender(Protocol):
    """The sender of a message: a client's connection to the server, or the process in which the broker runs."""

    @property
    def packed_host(self) -> bytes:
        """Return the sender's address in the binary form that records contain."""
        ...

    @property
    def remote_address(self) -> str: ...


class MessageIntake:
    """Turns sends into messages that can be appended. Used only on the event loop's thread.

    Args:
        state: the broker's tables and settings.
        steps: steps of plugins that may redirect or refuse a message before it is stored.
        choose: returns a random queue id below a number of queues.
    """

    def __init__(self, state: BrokerState, steps: IntakeSteps, choose: Callable[[int], int] = chance.below) -> None:
        self._state = state
        self._steps = self.steps = steps
        self._followers = state.followers
        self._choose = choose
        cluster = state.config.broker.cluster
        self._cluster = cluster
        self._cluster_entry = f"CLUSTER\x01{cluster}"
        self._after_entry = f"\x02{self._cluster_entry}"
        self._tails = PropertyTails(self._stored, steps)

    def answered(self) -> None:
        """Notify the services that follow messages (``FollowsMessages``) that the senders have received their answers."""
        if self._followers.all:
            self._followers.answered()

    def single(
        self, header: SendHeader, body: bytes, sender: Sender, version: int = sys.maxsize
    ) -> MessageExtBrokerInner:
        """Return the message of a send, ready to be appended. If the header's queue id is negative, a queue is chosen.

        Args:
            header: the header of the send.
            body: the message's body.
            sender: the sender, whose address the record contains.
            version: the sender's version, as the ordinal of RocketMQ's ``MQVersion``; by default, the sender counts as newer
                than all versions.

        Raises:
            RefusedError: the message, its topic or its queue is not acceptable; the reason id of the error names the rule. If
                the broker's permission lacks write, only sends to ordered topics are refused here. For other topics, producers
                see the permission in the route.
        """
        state = self._state
        topic, queue_id, properties_text = header.topic, header.queue_id, header.properties
        topics = state.topics
        config = topics.select(topic)
        if config is None or topic in topics.forbidden_topics or len(topic) > TOPIC_MAX_BYTES:
            config = self._new_topic(header, sender)
        if config.order:
            check_broker_writeable(state.config.broker)
        if not 0 <= queue_id < config.write_queue_nums:
            queue_id = self._queue_id(config, queue_id, sender)
        steps = self._steps
        concerned = steps.concerns_all or topic[0] in steps.first_characters
        known = None if concerned else self._tails.look_up(properties_text)
        if known is not None:
            stored, about, wait = known
            properties = stored_properties(stored)
            taken_apart: dict[str, str] = {}
        else:
            taken_apart = string_to_properties(properties_text)
            stored = self._stored(properties_text, taken_apart).encode("utf-8", "surrogatepass")
            taken_apart["CLUSTER"] = self._cluster
            about, wait, properties = None, taken_apart.get("WAIT") != "false", taken_apart
        body_max_bytes = state.config.store.max_message_bytes
        if len(body) > body_max_bytes:
            raise illegal_message("message.body_too_long", f"{len(body)} bytes", body_max_bytes, _BODY_KEY)
        if len(stored) > PROPERTIES_MAX_BYTES:
            raise illegal_message("message.properties_too_long", f"{len(stored)} bytes", body_max_bytes)
        message = MessageExtBrokerInner(
            topic,
            queue_id,
            body,
            properties,
            stored,
            header.born_timestamp_ms,
            sender.packed_host,
            state.store_host,
            header.flag,
            header.sys_flag,
            header.reconsume_times,
            0,
            wait,
            about,
        )
        if about is not None:
            # Tags code and keys (``about``) are cached only if plugins handle no property, so no plugin checks the message.
            return message
        if "TRAN_MSG" in taken_apart and "TRAN_MSG" not in steps.property_names:
            self._check_no_transaction(message)
        if not steps.property_names.isdisjoint(taken_apart) or topic.startswith(steps.topic_prefixes):
            steps.take(message, Sent(version, header.max_reconsume_times))
            if message.topic != topic or message.queue_id != queue_id:
                message.queue_id = topics.queue_inside(message.topic, message.queue_id)
        return message

    def batch(self, header: SendHeader, body: bytes, sender: Sender) -> MessageBatch:
        """Return the messages of a batch send, ready to be appended together.

        Raises:
            RefusedError: for the reasons in :meth:`single`; MESSAGE_ILLEGAL if the body is malformed or empty, or a message has
                a delay or begins a transaction.
        """
        topic, queue_id, properties_text = header.topic, header.queue_id, header.properties
        sys_flag = header.sys_flag
        topics = self._state.topics
        config = topics.select(topic)
        if config is None or topic in topics.forbidden_topics or len(topic) > TOPIC_MAX_BYTES:
            config = self._new_topic(header, sender)
        if config.order:
            check_broker_writeable(self._state.config.broker)
        queue_id = self._queue_id(config, queue_id, sender)
        body_max_bytes = self._state.config.store.max_message_bytes
        if len(body) > body_max_bytes:
            raise illegal_message("batch.too_long", f"{len(body)} bytes", body_max_bytes, _BODY_KEY)
        known = len(properties_text) <= _SHARED_MAX_CHARACTERS
        shared = (_shared if known else _shared.__wrapped__)(properties_text, self._cluster)
        if sys_flag & TRANSACTION_MASK:
            raise illegal_message("batch.transaction", f"sysFlag {sys_flag}", body_max_bytes)
        try:
            flags, bodies, own_properties = decode_columns(body)
        except BatchError as error:
            raise illegal_message("batch.malformed", str(error), body_max_bytes) from error
        if not bodies:
            raise illegal_message("batch.empty", "0 messages", body_max_bytes)
        stored = with_shared(own_properties, shared.stored)
        longest = stored.length if isinstance(stored, AlikeProperties) else max(map(len, stored))
        if longest > PROPERTIES_MAX_BYTES:
            raise illegal_message("message.properties_too_long", f"{longest} bytes", body_max_bytes)
        batch = MessageBatch(
            topic,
            queue_id,
            flags,
            bodies,
            stored,
            header.born_timestamp_ms,
            sender.packed_host,
            self._state.store_host,
            sys_flag,
            header.reconsume_times,
            shared.wait,
            may_wait(stored),
        )
        if batch.may_wait:
            # TRAN_MSG may be part of another property's value, so the properties of each message with this text are parsed.
            marked = [one for one in stored if _TRANSACTION_MARK in one]
            (asked,) = stored_values(marked, [props.TRANSACTION_PREPARED.encode()])
            if "true" in map(str.lower, asked) and header.reconsume_times <= 0:
                raise illegal_message(
                    "batch.transaction", "the batch contains a message that begins a transaction", body_max_bytes
                )
        self._steps.check_batch(shared.properties, batch)
        return batch

    # --- helpers ---

    def _new_topic(self, header: SendHeader, sender: Sender) -> TopicConfig:
        """Return the topic of a send, created if it is not in the table.

        Raises RefusedError if the topic's name is not allowed, or no template allows the creation of the topic.
        """
        topic, topics = header.topic, self._state.topics
        check_topic_name(topic)
        topics.check_not_forbidden(topic)
        flag = 0
        # A new topic gets its unit flag as in RocketMQ's AbstractSendMessageProcessor.msgCheck.
        # The requests with codes 311 to 313, such as GET_UNIT_TOPIC_LIST, list topics by their unit flags.
        if header.unit_mode:
            flag = UNIT_SUB_FLAG if topic.startswith(RETRY_PREFIX) else UNIT_FLAG
        config = topics.create_in_send(
            topic, header.default_topic, sender.remote_address, header.default_topic_queue_nums, flag
        )
        if config is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please!",
                reason="topic.missing",
                key="topics.auto_create (autoCreateTopicEnable)",
            )
        return config

    def _queue_id(self, config: TopicConfig, queue_id: int, sender: Sender) -> int:
        queues = config.write_queue_nums if config.write_queue_nums > config.read_queue_nums else config.read_queue_nums
        if queue_id >= queues:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, {config.describe()} Producer: {sender.remote_address}",
                reason="queue.illegal",
                measured=f"queue {queue_id}",
            )
        if queue_id >= 0:
            return queue_id
        return self._choose(config.open_queue_nums) if config.open_queue_nums > 0 else config.queue_inside(0)

    def _stored(self, text: str, properties: dict[str, str]) -> str:
        """Return the property string for a record: the sender's string without WAIT and with CLUSTER.

        See docs/internals/store-format.md, Properties.
        """
        if "CLUSTER" in properties or (
            "WAIT" in properties and (properties["WAIT"] != "true" or text.count("WAIT\x01") != 1)
        ):
            kept = {name: value for name, value in properties.items() if name not in ("WAIT", "CLUSTER")}
            text = properties_to_string(kept)
        elif "WAIT" in properties:
            start = text.index(_WAIT_TRUE)
            end = start + len(_WAIT_TRUE)
            text = text[: start - 1] + text[end:] if start else text[end + 1 :]
        if not text:
            return self._cluster_entry
        return text + (self._cluster_entry if text[-1] == "\x02" else self._after_entry)

    def _check_no_transaction(self, message: MessageExtBrokerInner) -> None:
        """Raise RefusedError if a message begins a transaction, because the plugin for transactions is not in use.

        Without that plugin, the message would be neither delivered nor dropped.
        """
        if message.properties[props.TRANSACTION_PREPARED].lower() == "true" and message.reconsume_times <= 0:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._state.advertised_address}] does not support transactions",
                reason="transaction.unsupported",
                key="disabled_plugins",
            )
