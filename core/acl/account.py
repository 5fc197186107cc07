"""An account as requests are checked against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount
from flintmq.core.acl.address import AddressPatterns, parse_addresses
from flintmq.core.acl.permission import Need, Permission, parse_permissions


@attrs.frozen
class Account:
    """Who may do what. Immutable."""

    access_key: str
    secret: Secret = attrs.field(repr=False)
    white: AddressPatterns
    """Where it may come from (``compat: safe``); none: from anywhere."""
    admin: bool
    default_topic: Permission
    default_group: Permission
    topics: Mapping[str, Permission]
    groups: Mapping[str, Permission]

    @classmethod
    def of(cls, written: AclAccount) -> Account:
        """Of an account as it is written. Raises ``ConfigError`` that names the account."""
        try:
            return cls(
                access_key=written.access_key,
                secret=written.secret_key,
                white=parse_addresses(written.white_remote_address),
                admin=bool(written.admin),
                default_topic=Permission.parse(written.default_topic_perm),
                default_group=Permission.parse(written.default_group_perm),
                topics=parse_permissions(written.topic_perms),
                groups=parse_permissions(written.group_perms),
            )
        except ConfigError as error:
            raise ConfigError(f"account {written.access_key}: {error.message}", key="acl.accounts") from error

    def first_lacking(self, needs: Iterable[Need]) -> Need | None:
        """The first need that this account does not cover; None when it covers all of them, as an administrator does."""
        if self.admin:
            return None
        for need in needs:
            table, default = (self.groups, self.default_group) if need.is_group else (self.topics, self.default_topic)
            owned = table.get(need.name, Permission.DENY if need.is_internal else default)
            if not owned.covers(need.permission):
                return need
        return None
