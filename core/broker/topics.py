"""The broker's topics: the table, what is in it from the start, and topics made by sending.

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
    """Return the topics every broker has from its start, by name.

    Args:
        cluster: the cluster's name, itself a topic (a template when ``cluster_topic``).
        broker_name: the broker's name, itself a topic (a template when ``broker_topic``).
        auto_create: has the template ``TBW102``.
        default_queue_nums: queues of that template.
        trace_topic: the topic of message traces; None without.
        features: the topics that plugins registered.
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
    """The table of topics. Loop thread; a change is noted when the call returns, and survives a power cut once :meth:`durable`
    has returned (:mod:`flintmq.core.io.config_manager`).

    Args:
        file: ``config/topics.json``, or None to keep the table in memory.
        clock: stamps the data version.
        boot: what :func:`boot_topics` made; also the broker's own system topics.
        auto_create: whether ``TBW102`` is a template (a table loaded from disk may hold it although this was switched off).
        journal: notes what sending makes; None has the file written each time.
        features: the topics that plugins registered.
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
        """Names that administration can neither create nor delete."""
        closed = {topic.name for topic in features if not topic.clients_may_write}
        self.forbidden_topics: frozenset[str] = reserved.FORBIDDEN_TOPICS | closed
        """Topics that no client may send to."""
        self.holding_topics = reserved.HOLDING_TOPICS | {topic.name for topic in features if topic.holds_messages}
        """Topics where messages of clients wait under their ``REAL_TOPIC`` and ``REAL_QID``."""
        self.keeping_topics = frozenset(topic.name for topic in features if topic.keeps_queues)
        """Topics of which a feature remembers queue offsets, so that their queues are kept."""
        self.learned: set[str] = set()
        """A slave's: topics it has only seen messages of."""
        self._gone: set[str] = set()
        """Topics that the master's table lacks, although there are messages of them."""
        self.widths = QueueWidths(self.select)
        """The topics that have, or had, more queues than are read now."""
        self._taken_over: DataVersion | None = None
        self._ordered: set[str] = {topic for topic, config in boot.items() if config.order}
        """Topics that are marked as ordered, kept apart because each registration asks for them."""
        self.changed: Event[[]] = Event()
        """The table, or what clients may do with it, has changed: the broker registers again with its name servers."""

    def select(self, topic: str) -> TopicConfig | None:
        """Return the topic's configuration, or None."""
        return self._table.get(topic)

    def queue_inside(self, topic: str, queue_id: int) -> int:
        """Return where the broker puts a message that is meant for a queue, which the topic may have lost meanwhile.

        See :meth:`TopicConfig.queue_inside`, also for errors. A topic that is not in the table, and one where messages only
        wait, take any queue.
        """
        config = self._table.get(topic)
        return queue_id if config is None or topic in self.holding_topics else config.queue_inside(queue_id)

    def allow_auto_create(self, auto_create: bool, queue_nums: int) -> None:
        """Switches the making of topics by sending on or off while running; ``queue_nums`` are the template's.

        Raises:
            StoreError: the disk refused; the table does not have the template.
        """
        self._auto_create = auto_create
        if auto_create and reserved.AUTO_CREATE_TOPIC not in self._table:
            template = perm.READ_WRITE | perm.INHERIT
            self.put(TopicConfig.with_queues(reserved.AUTO_CREATE_TOPIC, queue_nums, template))

    def resize_template(self, queue_nums: int) -> None:
        """Have topics that are made by sending get at most so many queues from now on.

        Raises:
            StoreError: the disk refused; the table has the template, the file has not.
        """
        template = self._table.get(reserved.AUTO_CREATE_TOPIC)
        if template is not None:
            self.put(replace(template, read_queue_nums=queue_nums, write_queue_nums=queue_nums))

    def permission_changed(self) -> None:
        """Take note that the broker's own permission has changed, which it registers its topics with.

        Raises:
            StoreError: the disk refused the new version of the table; name servers learn it all the same.
        """
        self._change({})

    def is_system_topic(self, topic: str) -> bool:
        """Return whether a topic is the broker's own: administration neither creates nor deletes it."""
        return topic in self.system_topics or topic.startswith(names.SYSTEM_TOPIC_PREFIX)

    def check_not_forbidden(self, topic: str) -> None:
        """Refuse sends to topics that only the broker writes to.

        Raises:
            RefusedError: NO_PERMISSION.
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
        """Return the topic a message is sent to, made from a template when it does not exist yet.

        Args:
            topic: a name that :func:`names.check_topic_name` let pass.
            default_topic: the template the client asks for, usually ``TBW102``.
            remote_address: the sender's address, for the log.
            client_default_queue_nums: how many queues the client would like.
            topic_sys_flag: flags of a topic made here.

        Returns:
            None when the topic does not exist and must not be made: TOPIC_NOT_EXIST.
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
        """Return a retry, dead letter or other topic of the broker's own, made when it is missing."""
        existing = self._table.get(topic)
        if existing is None:
            existing = TopicConfig.with_queues(topic, queue_nums, topic_sys_flag=topic_sys_flag)
            try:
                self.put(existing)
            except StoreError as error:  # a full disk shall not keep consumers from joining; the next writing has it
                _log.warning(
                    "topic.not_on_disk", "topic %(topic)s is not on disk yet: %(error)s", topic=topic, error=error
                )
                self._apply(self.data_version.next(self._clock), {topic: existing})
        return existing

    def learn(self, topic: str, queue_nums: int) -> bool:
        """Note on a slave that there are messages of a topic; return whether that is news.

        The master's table says more of it, and comes later or, when the master is lost now, never: what was acknowledged
        must be found all the same. A topic that the master's table did not have the last time was deleted there.

        Args:
            queue_nums: as many queues have been seen at least.
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
                "topic %(topic)s, of which the master sent messages: %(error)s",
                topic=topic,
                error=error,
            )
        except StoreError as error:
            _log.warning("topic.not_on_disk", "topic %(topic)s is not on disk yet: %(error)s", topic=topic, error=error)
            self._apply(self.data_version.next(self._clock), {topic: made})
        return True

    def delete(self, name: str) -> bool:
        """Forget a topic; messages of its name that come later are of a new one."""
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
        """Add or replace a topic, note it and call the listener.

        Raises:
            RefusedError: SYSTEM_ERROR; the number of queues is negative or beyond ``QUEUE_NUMS_MAX``, or there are too
                many topics to make another (the broker's own are always made).
            StoreError: the disk refused; nothing was changed.
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
                f"there are too many topics to make [{topic}]",
                reason="topics.full",
                measured=f"{len(self._table)} topics",
                key="topics.count_max",
            )

    def update_order_topics(self, order_topics: Collection[str]) -> None:
        """Mark exactly these topics as ordered: what the name server's ORDER_TOPIC_CONFIG says.

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
        """Return what the broker registers of each topic, by name; changes that come later are not seen.

        Args:
            broker_permission: a broker that lacks read or write registers every topic with its own permission instead
                (docs/internals/protocol.md, Registration).
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
        """Return the table as a body, as a broker with a permission registers it; see :meth:`registered`."""
        return self._encoded(self.data_version, self.registered(broker_permission))

    def _merge(self, value: Mapping[str, Any]) -> None:
        stored = read_as(value, TopicConfigSerializeWrapper)
        for topic, config in stored.topic_config_table.items():
            self._table[topic] = config if config.topic_name else replace(config, topic_name=topic)
            self._note_order(topic, config)
        self.data_version = stored.data_version
