"""Access control as a plugin: the authenticator ``acl``, for brokers and name servers (see :mod:`flintmq.core.acl`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.topic_name import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from flintmq.core.io.clock import SYSTEM_CLOCK
from flintmq.core.kernel.hookspecs import RegisterAuthenticator, hookimpl
from flintmq.core.kernel.ports import Authenticator
from flintmq.core.record.properties import REAL_TOPIC

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig
    from flintmq.core.acl.account_store import AccountStore
    from flintmq.core.acl.authenticator import AclAuthenticator
    from flintmq.core.store.message_store import MessageStore
    from flintmq.plugins.broker.broker import Broker

NAME: Final = "acl"
_WAITING: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC})
"""Where messages of other topics lie until they are due or decided."""


class AclPlugin:
    """Accounts, signatures and permissions. Switched on by ``acl.enable``."""

    plugin_name = NAME

    @hookimpl
    def flintmq_authenticators(self, register: RegisterAuthenticator) -> None:
        register(NAME, make_authenticator)

    @hookimpl
    def flintmq_broker_starting(self, broker: Broker) -> None:
        found = _acl_among(broker.authenticators)
        if found is not None:
            store = broker.state.store
            found.topic_at = lambda commit_log_offset_bytes: topic_of_record(store, commit_log_offset_bytes)
            broker.timers.every(broker.config.acl.reload_interval_ms / 1000, found.store.reload, "account files")


def make_authenticator(config: BrokerConfig) -> AclAuthenticator:
    """Of the whole configuration.

    Raises:
        ConfigError: an account or a file is wrong, or there is no account.
    """
    from flintmq.core.acl.account_store import AccountStore
    from flintmq.core.acl.authenticator import AclAuthenticator
    from flintmq.remoting.server.access_rules import access_rules

    section = config.acl
    return AclAuthenticator(
        AccountStore(section, account_file(config), SYSTEM_CLOCK),
        access_rules(config.topics.trace_topic_name, section.extra_codes),
        SYSTEM_CLOCK,
        strict=section.compat == "strict",
        replay_window_ms=section.replay_window_ms,
    )


def account_file(config: BrokerConfig) -> Path:
    """The file that accounts are written to."""
    return Path(config.acl.file) if config.acl.file else Path(config.store.path) / "flint" / "acl" / "plain_acl.yml"


def account_store(authenticators: Iterable[Authenticator]) -> AccountStore | None:
    """The accounts in force; None while access control is off."""
    found = _acl_among(authenticators)
    return found.store if found is not None else None


def _acl_among(authenticators: Iterable[Authenticator]) -> AclAuthenticator | None:
    several = tuple(authenticators)
    if not several:  # a broker without access control has none of it in memory
        return None
    from flintmq.core.acl.authenticator import AclAuthenticator

    return next((found for found in several if isinstance(found, AclAuthenticator)), None)


def topic_of_record(store: MessageStore, commit_log_offset_bytes: int) -> str | None:
    """The topic that clients know a record by: of one that waits, the topic that it is for."""
    record = store.message_at(commit_log_offset_bytes)
    if record is None:
        return None
    return record.properties.get(REAL_TOPIC, record.topic) if record.topic in _WAITING else record.topic
