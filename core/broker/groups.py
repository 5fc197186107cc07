"""Keeps the settings of the broker's consumer groups (docs/internals/algorithms.md, Topics and groups)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from flintmq.core.broker.topic_name import SYSTEM_GROUP_PREFIX, check_group_name, is_name
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.io.clock import Clock
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import DataVersion, JsonFile, VersionedTable
from flintmq.core.io.typed_json import Int, Long, read_as
from flintmq.core.limits import GROUP_MAX_BYTES
from flintmq.core.log_events import client_log
from flintmq.core.response_code import ResponseCode

_log = client_log(__name__)


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings of a consumer group (``SubscriptionGroupConfig``), with the fields that requests and
    ``subscriptionGroup.json`` have.
    """

    broker_id: Long = 0
    """Id of the broker from which the group shall pull."""
    consume_broadcast_enable: bool = True
    """Whether broadcasting consumers may pull."""
    consume_enable: bool = True
    """Whether members of the group may pull."""
    consume_from_min_enable: bool = True
    group_name: str = ""
    notify_consumer_ids_changed_enable: bool = True
    """Whether members of the group are notified at once when another member joins or leaves."""
    retry_max_times: Int = 16
    """Number of times that a message is delivered again to the group before the message becomes a dead letter."""
    retry_queue_nums: Int = 1
    """Number of queues of the group's retry topic. With 0, messages that consumers send back are dropped."""
    which_broker_when_consume_slowly: Long = 1
    """Id of the broker from which a consumer that is far behind shall pull."""


class GroupRetryPolicy(msgspec.Struct, frozen=True):
    """The retry policy of a group in RocketMQ 5. The default policy takes the delays from the delay levels."""

    type: str = "CUSTOMIZED"


class SubscriptionGroupConfigOf5(SubscriptionGroupConfig, frozen=True, kw_only=True, rename="camel"):
    """RocketMQ 5's ``SubscriptionGroupConfig``, for the answer to GET_SUBSCRIPTIONGROUP_CONFIG (request 352).

    Fields that RocketMQ 4.9 does not have get the default values of RocketMQ 5.
    """

    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    consume_message_orderly: bool = False
    consume_timeout_minute: Int = 15
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    group_sys_flag: Int = 0


class SubscriptionGroupWrapper(msgspec.Struct, frozen=True, rename="camel"):
    """A broker's consumer groups, as ``subscriptionGroup.json`` and the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)
    contain them.
    """

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(default_factory=dict)


TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"

BUILT_IN_GROUPS: Final = (
    SubscriptionGroupConfig(group_name=TOOLS_CONSUMER_GROUP),
    SubscriptionGroupConfig(group_name="FILTERSRV_CONSUMER"),
    SubscriptionGroupConfig(group_name="SELF_TEST_C_GROUP"),
    SubscriptionGroupConfig(group_name="CID_ONS-HTTP-PROXY"),
    SubscriptionGroupConfig(group_name="CID_ONSAPI_PULL"),
    SubscriptionGroupConfig(group_name="CID_ONSAPI_PERMISSION"),
    SubscriptionGroupConfig(group_name="CID_ONSAPI_OWNER"),
)
"""Consumer groups that every broker has from its start."""


_BUILT_IN_NAMES: Final = frozenset(config.group_name for config in BUILT_IN_GROUPS)


def is_system_group(group: str) -> bool:
    """Return whether a consumer group belongs to the broker or to tools, not to an application."""
    return group in _BUILT_IN_NAMES or group.startswith(SYSTEM_GROUP_PREFIX)


class SubscriptionGroupManager(VersionedTable[SubscriptionGroupConfig]):
    """The table of consumer groups; RocketMQ's SubscriptionGroupManager. Used only on the event loop's thread.

    Changes are written in the same way as by :class:`~flintmq.core.broker.topics.TopicConfigManager`.

    Args:
        file: ``config/subscriptionGroup.json``, or None to keep the table in memory.
        clock: stamps the data version.
        auto_create: whether a group is created when it is first used. System groups are always created.
        count_max: limit of groups.
        journal: records new and changed groups; None to write the whole file each time.
    """

    _member = "subscriptionGroupTable"

    def __init__(
        self,
        file: JsonFile | None,
        clock: Clock,
        *,
        auto_create: bool = True,
        count_max: int = 50_000,
        journal: ConfigJournal | None = None,
    ) -> None:
        super().__init__(file, {config.group_name: config for config in BUILT_IN_GROUPS}, clock, journal)
        self._count_max = count_max
        self.auto_create = auto_create
        """Whether a group is created when it is first used. The value may be set while the broker runs."""

    def select(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a consumer group. A missing group is created if the broker allows this.

        Returns:
            The settings; None if the group does not exist and may not be created. In the latter case the client gets the answer
            SUBSCRIPTION_GROUP_NOT_EXIST.

        Raises:
            RefusedError: SYSTEM_ERROR; the table is full.
        """
        config = self._table.get(group)
        if config is None and (self.auto_create or group.startswith(SYSTEM_GROUP_PREFIX)):
            if not is_name(group, GROUP_MAX_BYTES):
                return None
            self._check_room()
            config = SubscriptionGroupConfig(group_name=group)
            _log.info("group.created", "consumer group %(group)s created", group=group)
            try:
                self._change({group: config})
            except StoreError as error:
                # A group that cannot be saved is still created, so that consumers can pull. A later write saves the group.
                _log.warning(
                    "group.not_on_disk",
                    "consumer group %(group)s is not on disk yet: %(error)s",
                    group=group,
                    error=error,
                )
                self._apply(self.data_version.next(self._clock), {group: config})
        return config

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a consumer group; None if the group does not exist."""
        return self._table.get(group)

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Add or replace the settings of a consumer group, and write the change to disk.

        Raises:
            RefusedError: SYSTEM_ERROR; the name is not allowed, or the table is full.
            StoreError: the change could not be written to disk; nothing was changed.
        """
        check_group_name(config.group_name)
        if config.group_name not in self._table:
            self._check_room()
        self._change({config.group_name: config})

    def _check_room(self) -> None:
        if len(self._table) >= self._count_max:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "the consumer group cannot be created: there are too many groups",
                reason="groups.full",
                measured=f"{len(self._table)} groups",
                key="groups.count_max",
            )

    def _merge(self, value: Mapping[str, Any]) -> None:
        stored = read_as(value, SubscriptionGroupWrapper)
        for group, config in stored.subscription_group_table.items():
            self._table[group] = config if config.group_name else replace(config, group_name=group)
        self.data_version = stored.data_version
