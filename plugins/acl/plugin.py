"""Registers access control: the authenticator ``acl`` of brokers and name servers, and the processor of request codes 50 to 54.

Nothing of it is imported by a server with access control switched off, except this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from flintmq.core.io.clock import SYSTEM_CLOCK
from flintmq.core.kernel.hookspecs import RegisterAuthenticator, RegisterProcessor, hookimpl
from flintmq.core.kernel.ports import Authenticator
from flintmq.core.record.properties import REAL_TOPIC
from flintmq.remoting.wire.codes import RequestCode

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig
    from flintmq.core.store.message_store import MessageStore
    from flintmq.plugins.acl.authenticator import AclAuthenticator
    from flintmq.plugins.acl.processor import AclProcessor
    from flintmq.plugins.broker.broker import Broker
    from flintmq.plugins.broker.processors import LateProcessor

NAME: Final = "acl"
CODES: Final = (
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
)
_WAITING: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC})
"""Topics where messages of other topics lie until they are due or decided."""


class AclPlugin:
    """Registers accounts, signatures and permissions, which ``acl.enable`` switches on."""

    plugin_name = NAME

    @hookimpl
    def flintmq_authenticators(self, register: RegisterAuthenticator) -> None:
        register(NAME, make_authenticator)

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register(NAME, tuple(int(code) for code in CODES), _make_processor)

    @hookimpl
    def flintmq_broker_starting(self, broker: Broker) -> None:
        found = _acl_among(broker.authenticators)
        if found is not None:
            store = broker.state.store
            found.topic_at = lambda commit_log_offset_bytes: topic_of_record(store, commit_log_offset_bytes)


def make_authenticator(config: BrokerConfig) -> AclAuthenticator:
    """Make the authenticator of a whole configuration.

    Raises:
        ConfigError: an account or a file is wrong, or there is no account.
    """
    from flintmq.plugins.acl.account_store import AccountStore
    from flintmq.plugins.acl.authenticator import AclAuthenticator
    from flintmq.remoting.server.access_rules import access_rules

    section = config.acl
    return AclAuthenticator(
        AccountStore(section, config.account_file, SYSTEM_CLOCK),
        access_rules(config.topics.trace_topic_name, section.extra_codes),
        SYSTEM_CLOCK,
        strict=section.compat == "strict",
        replay_window_ms=section.replay_window_ms,
        reload_interval_s=section.reload_interval_ms / 1000,
    )


def _make_processor(broker: Broker) -> LateProcessor:
    from flintmq.plugins.broker.processors import LateProcessor

    def make() -> AclProcessor:
        from flintmq.plugins.acl.processor import AclProcessor

        found = _acl_among(broker.authenticators)
        return AclProcessor(broker.state, found.store if found is not None else None)

    return LateProcessor(CODES, make)


def _acl_among(authenticators: Iterable[Authenticator]) -> AclAuthenticator | None:
    several = tuple(authenticators)
    if not several:  # a broker without access control has none of it in memory
        return None
    from flintmq.plugins.acl.authenticator import AclAuthenticator

    return next((found for found in several if isinstance(found, AclAuthenticator)), None)


def topic_of_record(store: MessageStore, commit_log_offset_bytes: int) -> str | None:
    """Return the topic that clients know a record by: for a record that waits, the topic it will be delivered to."""
    record = store.message_at(commit_log_offset_bytes)
    if record is None:
        return None
    return record.properties.get(REAL_TOPIC, record.topic) if record.topic in _WAITING else record.topic
