"""The broker's consumer groups (docs/internals/algorithms.md, Topics and groups)."""

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
    """The settings of a consumer group (``SubscriptionGroupConfig``), in the form of the wire and of the file."""

    broker_id: Long = 0
    """The broker suggested for pulls."""
    consume_broadcast_enable: bool = True
    """False refuses pulls of broadcasting consumers."""
    consume_enable: bool = True
    """False refuses the group's pulls."""
    consume_from_min_enable: bool = True
    group_name: str = ""
    notify_consumer_ids_changed_enable: bool = True
    """Notify members at once when another joins or leaves."""
    retry_max_times: Int = 16
    """How often a message is delivered again before it becomes a dead letter."""
    retry_queue_nums: Int = 1
    """Queues of the retry topic; 0 drops refused messages."""
    which_broker_when_consume_slowly: Long = 1
    """The broker suggested to a consumer that is far behind."""


class GroupRetryPolicy(msgspec.Struct, frozen=True):
    """When RocketMQ 5 delivers a message again: by the delay levels."""

    type: str = "CUSTOMIZED"


class SubscriptionGroupConfigOf5(SubscriptionGroupConfig, frozen=True, kw_only=True, rename="camel"):
    """A group as RocketMQ 5 tells it (352): its ``SubscriptionGroupConfig``, with what 4.9 does not know at its defaults."""

    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    consume_message_orderly: bool = False
    consume_timeout_minute: Int = 15
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    group_sys_flag: Int = 0


class SubscriptionGroupWrapper(msgspec.Struct, frozen=True, rename="camel"):
    """All groups of a broker: ``subscriptionGroup.json``, and the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""

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
"""Groups every broker has."""


_BUILT_IN_NAMES: Final = frozenset(config.group_name for config in BUILT_IN_GROUPS)


def is_system_group(group: str) -> bool:
    """Return whether a group is the broker's, or its tools', and no application's."""
    return group in _BUILT_IN_NAMES or group.startswith(SYSTEM_GROUP_PREFIX)


class SubscriptionGroupManager(VersionedTable[SubscriptionGroupConfig]):
    """The table of consumer groups. Loop thread; noted and written as the topics are.

    Args:
        file: ``config/subscriptionGroup.json``, or None to keep the table in memory.
        clock: stamps the data version.
        auto_create: makes a group when it is first used; groups of the system are always made.
        journal: as for topics.
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
        """Whether a group is made when it is first used; may change while running."""

    def select(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's settings, made when they may be; None is SUBSCRIPTION_GROUP_NOT_EXIST.

        Raises:
            RefusedError: SYSTEM_ERROR; there are too many groups to make another.
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
            except StoreError as error:  # a full disk shall not keep anybody from reading; the next writing has it
                _log.warning(
                    "group.not_on_disk",
                    "consumer group %(group)s is not on disk yet: %(error)s",
                    group=group,
                    error=error,
                )
                self._apply(self.data_version.next(self._clock), {group: config})
        return config

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's settings if there are any; makes none."""
        return self._table.get(group)

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Add or replace a group, and note it.

        Raises:
            RefusedError: SYSTEM_ERROR; the name cannot be a group's, or there are too many groups to make another.
            StoreError: the disk refused; nothing was changed.
        """
        check_group_name(config.group_name)
        if config.group_name not in self._table:
            self._check_room()
        self._change({config.group_name: config})

    def _check_room(self) -> None:
        if len(self._table) >= self._count_max:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "there are too many consumer groups to make another",
                reason="groups.full",
                measured=f"{len(self._table)} groups",
                key="groups.count_max",
            )

    def _merge(self, value: Mapping[str, Any]) -> None:
        stored = read_as(value, SubscriptionGroupWrapper)
        for group, config in stored.subscription_group_table.items():
            self._table[group] = config if config.group_name else replace(config, group_name=group)
        self.data_version = stored.data_version
