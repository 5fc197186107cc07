"""Keeps the broker's topics: the table of topics, the topics that exist from the start, and topics created by sends.

See docs/internals/algorithms.md, Topics and groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from flintmq.config.rocketmq import system_topics as reserved
from flintmq.core.broker import perm
from flintmq.core.broker import topic_name as names
from flintmq.core.broker.queue_widths import QueueWidths
from flintmq.core.broker.topic_config import TopicConfig, TopicConfigSerializeWrapper
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.event import Event
from flintmq.core.io.clock import Clock
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import DataVersion, JsonFile, VersionedTable
from flintmq.core.io.typed_json import read_as
from flintmq.core.kernel.ports import SystemTopic
from flintmq.core.limits import QUEUE_NUMS_MAX
from flintmq.core.log_events import client_log
from flintmq.core.response_code import ResponseCode

_log = client_log(__name__)


def boot_topics(
    *,
    cluster: str,
    broker_name: str,
    auto_create: bool = True,
    default_queue_nums: int = 8,
    cluster_topic: bool = True,
    broker_topic: bool = True,
    trace_topic: str | None = None,
    features: Iterable[SystemTopic] = (),
) -> dict[str, TopicConfig]:
    """Return the topics that every broker has from its start, keyed by name.

    Some of these topics are templates. If a send creates a topic, the new topic gets its permission and its number of queues
    from a template.

    Args:
        cluster: name of the cluster, which is also the name of a topic.
        broker_name: name of the broker, which is also the name of a topic.
        auto_create: whether the template ``TBW102`` exists.
        default_queue_nums: number of queues of ``TBW102``.
        cluster_topic: whether the cluster's topic is a template.
        broker_topic: whether the broker's topic is a template.
        trace_topic: name of the topic of message traces; None for no such topic.
        features: topics that plugins registered.
    """
    template = perm.READ_WRITE | perm.INHERIT
    made = TopicConfig.with_queues
    table = [
        made(reserved.SELF_TEST_TOPIC, 1),
        made(reserved.BENCHMARK_TOPIC, 1024),
        made(cluster, 16, template if cluster_topic else perm.INHERIT),
        made(broker_name, 1, template if broker_topic else perm.INHERIT),
        made(reserved.OFFSET_MOVED_EVENT, 1),
        made(names.reply_topic(cluster), 1),
    ]
    if auto_create:
        table.append(made(reserved.AUTO_CREATE_TOPIC, default_queue_nums, template))
    if trace_topic:
        table.append(made(trace_topic, 1))
    table += [made(topic.name, topic.queue_nums) for topic in features if topic.queue_nums]
    return {config.topic_name: config for config in table}


class TopicConfigManager(VersionedTable[TopicConfig]):
    """The table of topics, which the whole broker uses. Used only on the event loop's thread.

    A change is written when the call returns, and survives a power failure once :meth:`durable` has returned, see
    :mod:`flintmq.core.io.config_manager`.

    Args:
        file: ``config/topics.json``, or None to keep the table in memory.
        clock: stamps the data version.
        boot: topics of :func:`boot_topics`, which are also system topics.
        auto_create: whether ``TBW102`` is a template. Even if the value is False, a table loaded from disk may contain the
            topic ``TBW102``.
        count_max: limit of topics, beyond which only system topics are created.
        journal: records topics that sends create; None to write the whole file each time.
        features: topics that plugins registered.
    """

    _member = "topicConfigTable"

    def __init__(
        self,
        file: JsonFile | None,
        clock: Clock,
        boot: Mapping[str, TopicConfig],
        *,
        auto_create: bool = True,
        count_max: int = 100_000,
        journal: ConfigJournal | None = None,
        features: Collection[SystemTopic] = (),
    ) -> None:
        super().__init__(file, dict(boot), clock, journal)
        self._count_max = count_max
        self._auto_create = auto_create
        listed = {topic.name for topic in features if topic.is_listed}
        self.system_topics: frozenset[str] = reserved.SYSTEM_TOPICS | boot.keys() | listed
        """Names of topics that administrators can neither create nor delete."""
        closed = {topic.name for topic in features if not topic.clients_may_write}
        self.forbidden_topics: frozenset[str] = reserved.FORBIDDEN_TOPICS | closed
        """Names of topics that clients may not send to."""
        self.holding_topics = reserved.HOLDING_TOPICS | {topic.name for topic in features if topic.holds_messages}
        """Names of topics in which clients' messages wait until they are delivered to their real topics. The properties
        ``REAL_TOPIC`` and ``REAL_QID`` of a waiting message name its real topic and queue."""
        self.keeping_topics = frozenset(topic.name for topic in features if topic.keeps_queues)
        """Names of topics whose queues are never deleted, because a feature stores queue offsets of them."""
        self.learned: set[str] = set()
        """Names of topics that a slave knows only from replicated messages, because the master's table lacks these topics or
        was not copied yet."""
        self._gone: set[str] = set()
        """Names of topics that were deleted on the master: the slave knew them only from replicated messages, and the copy of
        the master's table did not contain them."""
        self.widths = QueueWidths(self.select)
        """Topics that have, or once had, more queues than consumers read now."""
        self._taken_over: DataVersion | None = None
        self._ordered: set[str] = {topic for topic, config in boot.items() if config.order}
        """Names of ordered topics. The names are collected because each registration with a name server needs them."""
        self.changed: Event[[]] = Event()
        """Event published after the table of topics or the broker's permission changed. The broker then registers again with
        its name servers."""

    def select(self, topic: str) -> TopicConfig | None:
        """Return the configuration of a topic; None if the topic does not exist."""
        return self._table.get(topic)

    def queue_inside(self, topic: str, queue_id: int) -> int:
        """Return the id of the queue of a topic that gets a message for the queue ``queue_id``.

        :meth:`TopicConfig.queue_inside` chooses the queue, and documents the errors. If the topic is not in the table, or if
        messages in it wait for delivery to other topics, the result is ``queue_id``.
        """
        config = self._table.get(topic)
        return queue_id if config is None or topic in self.holding_topics else config.queue_inside(queue_id)

    def allow_auto_create(self, auto_create: bool, queue_nums: int) -> None:
        """Set whether sends create topics, while the broker runs or before its start.

        Args:
            auto_create: whether sends create topics.
            queue_nums: number of queues of the template ``TBW102``, if it has to be created.

        Raises:
            StoreError: the template could not be written to disk. The table then lacks the template.
        """
        self._auto_create = auto_create
        if auto_create and reserved.AUTO_CREATE_TOPIC not in self._table:
            template = perm.READ_WRITE | perm.INHERIT
            self.put(TopicConfig.with_queues(reserved.AUTO_CREATE_TOPIC, queue_nums, template))

    def resize_template(self, queue_nums: int) -> None:
        """Set the largest number of queues that a topic gets if a send creates the topic from ``TBW102``.

        Raises:
            StoreError: the template could not be written to disk. Only the table in memory has the new number.
        """
        template = self._table.get(reserved.AUTO_CREATE_TOPIC)
        if template is not None:
            self.put(replace(template, read_queue_nums=queue_nums, write_queue_nums=queue_nums))

    def permission_changed(self) -> None:
        """Publish that the broker's own permission has changed. The broker registers its topics with this permission.

        Raises:
            StoreError: the new version of the table could not be written to disk. Name servers get the new version
                nevertheless.
        """
        self._change({})

    def is_system_topic(self, topic: str) -> bool:
        """Return whether a topic is a system topic, which administrators can neither create nor delete."""
        return topic in self.system_topics or topic.startswith(names.SYSTEM_TOPIC_PREFIX)

    def check_not_forbidden(self, topic: str) -> None:
        """Raise an error if only the broker itself may write to a topic.

        Raises:
            RefusedError: NO_PERMISSION; the topic is in :attr:`forbidden_topics`.
        """
        if topic in self.forbidden_topics:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.", reason="topic.forbidden"
            )

    def create_in_send(
        self,
        topic: str,
        default_topic: str,
        remote_address: str,
        client_default_queue_nums: int,
        topic_sys_flag: int = 0,
    ) -> TopicConfig | None:
        """Return the configuration of the topic of a send. A topic that does not exist is created from a template.

        Args:
            topic: a name that :func:`~flintmq.core.broker.topic_name.check_topic_name` has accepted.
            default_topic: name of the template that the client asks for, usually ``TBW102``.
            remote_address: the sender's address, for the log.
            client_default_queue_nums: number of queues that the client asks for.
            topic_sys_flag: flags of the topic if it is created.

        Returns:
            The configuration. None if the topic does not exist and may not be created; the client then gets TOPIC_NOT_EXIST.
        """
        existing = self._table.get(topic)
        if existing is not None:
            return existing
        template = self._table.get(default_topic)
        if template is not None and self._is_template(template):
            queue_nums = max(1, min(client_default_queue_nums, template.write_queue_nums))
            made = replace(
                template,
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=template.perm & ~perm.INHERIT,
                order=False,
                topic_sys_flag=topic_sys_flag,
            )
        elif topic.startswith(names.RETRY_PREFIX):
            made = TopicConfig.with_queues(topic, 1, topic_sys_flag=topic_sys_flag)
        else:
            return None
        _log.info(
            "topic.created",
            "topic %(topic)s created with %(queues)d queues for %(client)s",
            topic=topic,
            queues=made.write_queue_nums,
            client=remote_address,
        )
        self.put(made)
        return made

    def _is_template(self, config: TopicConfig) -> bool:
        if config.topic_name == reserved.AUTO_CREATE_TOPIC and not self._auto_create:
            return False
        return perm.is_inherited(config.perm)

    def create_in_send_back(self, topic: str, queue_nums: int, topic_sys_flag: int = 0) -> TopicConfig:
        """Return the configuration of a retry, dead letter or other topic to which the broker sends.

        A missing topic is created.
        """
        existing = self._table.get(topic)
        if existing is None:
            existing = TopicConfig.with_queues(topic, queue_nums, topic_sys_flag=topic_sys_flag)
            try:
                self.put(existing)
            except StoreError as error:
                # If the topic cannot be saved, it is still created, so that consumers can join. A later write saves the topic.
                _log.warning(
                    "topic.not_on_disk", "topic %(topic)s is not on disk yet: %(error)s", topic=topic, error=error
                )
                self._apply(self.data_version.next(self._clock), {topic: existing})
        return existing

    def learn(self, topic: str, queue_nums: int) -> bool:
        """Add a topic on a slave because the master sent messages of the topic; return whether the table was changed.

        The slave gets the master's table of topics later than the messages, or not at all if the master fails. Messages that
        the master acknowledged must be readable nevertheless. A topic that was missing in the master's last table was deleted
        on the master, and is not added.

        Args:
            topic: name of the topic.
            queue_nums: number of queues known from the messages; the topic may have more.
        """
        existing = self._table.get(topic)
        if topic in self._gone or (
            existing is not None and (topic not in self.learned or existing.write_queue_nums >= queue_nums)
        ):
            return False
        self.learned.add(topic)
        made = TopicConfig.with_queues(topic, queue_nums)
        try:
            self.put(made)
        except RefusedError as error:
            _log.warning(
                "topic.not_made",
                "topic %(topic)s cannot be added, although the master sent messages of it: %(error)s",
                topic=topic,
                error=error,
            )
        except StoreError as error:
            _log.warning("topic.not_on_disk", "topic %(topic)s is not on disk yet: %(error)s", topic=topic, error=error)
            self._apply(self.data_version.next(self._clock), {topic: made})
        return True

    def delete(self, name: str) -> bool:
        """Remove a topic and return whether it existed. Later messages with the same name belong to a new topic."""
        self.learned.discard(name)
        self._gone.discard(name)
        return super().delete(name)

    def replace(self, value: Mapping[str, Any]) -> None:
        before = dict(self._table)
        super().replace(value)
        self._ordered &= self._table.keys()
        for topic, config in self._table.items():
            if before.get(topic) != config:
                self.widths.note(topic, config, before.get(topic))
        if self.data_version != self._taken_over:
            self._taken_over = self.data_version
            self._gone.clear()
        self._gone |= self.learned - self._table.keys()
        self.learned.clear()

    def put(self, config: TopicConfig) -> None:
        """Add or replace a topic, write the change and publish :attr:`changed`.

        Raises:
            RefusedError: SYSTEM_ERROR; the number of queues is negative or above ``QUEUE_NUMS_MAX``, or the table is full.
                System topics are added to a full table, too.
            StoreError: the change could not be written to disk; nothing was changed.
        """
        self._check(config)
        self._change({config.topic_name: config})

    def _check(self, config: TopicConfig) -> None:
        for queue_nums in (config.read_queue_nums, config.write_queue_nums):
            if not 0 <= queue_nums <= QUEUE_NUMS_MAX:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"a topic has 0 to {QUEUE_NUMS_MAX} queues",
                    reason="topic.queues",
                    measured=str(queue_nums),
                )
        if len(self._table) >= self._count_max:
            self._check_room(config.topic_name)

    def _check_room(self, topic: str) -> None:
        if topic not in self._table and not self.is_system_topic(topic):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"topic[{topic}] cannot be created: there are too many topics",
                reason="topics.full",
                measured=f"{len(self._table)} topics",
                key="topics.count_max",
            )

    def update_order_topics(self, order_topics: Collection[str]) -> None:
        """Mark the given topics as ordered, and all other topics as not ordered.

        The given topics are those in the name server's ORDER_TOPIC_CONFIG.

        See docs/internals/algorithms.md, Topics and groups.
        """
        wrong = [
            config for topic in self._ordered.symmetric_difference(order_topics) if (config := self._table.get(topic))
        ]
        if wrong:
            self._change({config.topic_name: replace(config, order=not config.order) for config in wrong})

    def _apply(self, version: DataVersion, rows: Mapping[str, TopicConfig | None]) -> None:
        before = {topic: self._table.get(topic) for topic in rows}
        try:
            super()._apply(version, rows)
        finally:
            for topic, config in rows.items():
                self._note_order(topic, config)
                self.widths.note(topic, config, before[topic])
            self.changed.publish()

    def _note_order(self, topic: str, config: TopicConfig | None) -> None:
        if config is not None and config.order:
            self._ordered.add(topic)
        else:
            self._ordered.discard(topic)

    def registered(self, broker_permission: int = perm.READ_WRITE) -> Iterator[tuple[str, TopicConfig]]:
        """Return pairs of a topic's name and the configuration that the broker registers. Later changes of the table do not
        affect the result.

        Args:
            broker_permission: the broker's permission. If it lacks read or write, every topic is registered with the broker's
                permission instead of the topic's (docs/internals/protocol.md, Registration).
        """
        every = zip(list(self._table), list(self._table.values()), strict=True)
        if broker_permission & perm.READ_WRITE == perm.READ_WRITE:
            return every
        return (
            (
                topic,
                TopicConfig(
                    topic_name=config.topic_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=broker_permission,
                ),
            )
            for topic, config in every
        )

    def encoded(self, broker_permission: int = perm.READ_WRITE) -> Iterator[bytes]:
        """Return the parts of a JSON text with the configurations of all topics and the data version of the table of topics. If
        ``broker_permission`` lacks read or write, every configuration has this permission instead of the topic's, as in the
        broker's registration at a name server."""
        return self._encoded(self.data_version, self.registered(broker_permission))

    def _merge(self, value: Mapping[str, Any]) -> None:
        stored = read_as(value, TopicConfigSerializeWrapper)
        for topic, config in stored.topic_config_table.items():
            self._table[topic] = config if config.topic_name else replace(config, topic_name=topic)
            self._note_order(topic, config)
        self.data_version = stored.data_version
