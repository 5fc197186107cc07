"""Defines an account in the form that requests are checked against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.rocketmq.system_topics import FORBIDDEN_TOPICS, TRACE_TOPIC
from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount
from flintmq.core.kernel.ports.access import Need, Permission
from flintmq.plugins.acl.address import AddressPatterns, parse_addresses
from flintmq.plugins.acl.permissions import parse_permission, parse_permissions

INTERNAL_TOPICS: Final = FORBIDDEN_TOPICS | {TRACE_TOPIC}
"""Topics that an account's default permission does not cover: messages of every topic lie there for a while (delayed,
half), or are described there (traces)."""


@attrs.frozen
class Account:
    """The secret, the addresses and the permissions of one access key. Immutable."""

    access_key: str
    secret: Secret = attrs.field(repr=False)
    white: AddressPatterns
    """The addresses it may come from (``compat: safe``); without any, it may come from everywhere."""
    admin: bool
    default_topic: Permission
    default_group: Permission
    topics: Mapping[str, Permission]
    groups: Mapping[str, Permission]

    @classmethod
    def of(cls, written: AclAccount) -> Account:
        """Make an account from its written form. Raises ``ConfigError`` that names the account."""
        try:
            return cls(
                access_key=written.access_key,
                secret=written.secret_key,
                white=parse_addresses(written.white_remote_address),
                admin=bool(written.admin),
                default_topic=parse_permission(written.default_topic_perm),
                default_group=parse_permission(written.default_group_perm),
                topics=parse_permissions(written.topic_perms),
                groups=parse_permissions(written.group_perms),
            )
        except ConfigError as error:
            raise ConfigError(f"account {written.access_key}: {error.message}", key="acl.accounts") from error

    def first_lacking(self, needs: Iterable[Need]) -> Need | None:
        """Return the first need that this account does not cover, or None. An administrator covers every need."""
        if self.admin:
            return None
        for need in needs:
            table, default = (self.groups, self.default_group) if need.is_group else (self.topics, self.default_topic)
            is_internal = not need.is_group and need.name in INTERNAL_TOPICS
            owned = table.get(need.name, Permission.DENY if is_internal else default)
            if not owned.covers(need.permission):
                return need
        return None
