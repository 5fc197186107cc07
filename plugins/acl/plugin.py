"""Registers access control: the authenticator ``acl`` of brokers and name servers, and the processor of request codes 50 to 54.

A server with access control switched off imports nothing of it but this module and the processor.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from flintmq.core.io.clock import SYSTEM_CLOCK
from flintmq.core.kernel.hookspecs import RegisterAuthenticator, RegisterProcessor, hookimpl
from flintmq.core.kernel.ports import Authenticator
from flintmq.core.kernel.ports.access import Access, AccessRule
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.core.record.properties import REAL_TOPIC
from flintmq.plugins.acl.processor import AclProcessor

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig
    from flintmq.core.broker.api import BrokerApi, BrokerHandle
    from flintmq.plugins.acl.authenticator import AclAuthenticator

NAME: Final = "acl"


class AclPlugin:
    """Registers accounts, signatures and permissions, which ``acl.enable`` switches on."""

    plugin_name = NAME

    @hookimpl
    def flintmq_authenticators(self, register: RegisterAuthenticator) -> None:
        register(NAME, make_authenticator)

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register(NAME, declared_by(AclProcessor), _make_processor)

    @hookimpl
    def flintmq_broker_starting(self, broker: BrokerHandle) -> None:
        found = _acl_among(broker.authenticators)
        if found is not None:
            found.topic_at = partial(topic_of_record, broker.state)


def make_authenticator(config: BrokerConfig) -> AclAuthenticator:
    """Make the authenticator of a whole configuration.

    Raises:
        ConfigError: an account or a file is wrong, or no account is given.
    """
    from flintmq.plugins.acl.account_store import AccountStore
    from flintmq.plugins.acl.authenticator import AclAuthenticator

    section = config.acl
    return AclAuthenticator(
        AccountStore(section, config.account_file, SYSTEM_CLOCK),
        SYSTEM_CLOCK,
        trace_topic=config.topics.trace_topic_name,
        extra=_extra_rules(section.extra_codes),
        strict=section.compat == "strict",
        replay_window_ms=section.replay_window_ms,
        reload_interval_s=section.reload_interval_ms / 1000,
    )


def _extra_rules(entries: Iterable[str]) -> dict[int, AccessRule]:
    """Return the rules of ``acl.extra_codes``, whose entries are ``CODE=public|client|admin``."""
    pairs = (entry.partition("=") for entry in entries)
    return {int(code): AccessRule(Access(word)) for code, _, word in pairs}


def _make_processor(broker: BrokerHandle) -> AclProcessor:
    found = _acl_among(broker.authenticators)
    return AclProcessor(broker.state, found.store if found is not None else None)


def _acl_among(authenticators: Iterable[Authenticator]) -> AclAuthenticator | None:
    several = tuple(authenticators)
    if not several:  # a broker without access control has none of it in memory
        return None
    from flintmq.plugins.acl.authenticator import AclAuthenticator

    return next((found for found in several if isinstance(found, AclAuthenticator)), None)


def topic_of_record(api: BrokerApi, commit_log_offset_bytes: int) -> str | None:
    """Return the topic that clients know a record by: for a record that waits, the topic it will be delivered to."""
    record = api.store.reader.message_at(commit_log_offset_bytes)
    if record is None:
        return None
    return (
        record.properties.get(REAL_TOPIC, record.topic) if record.topic in api.topics.holding_topics else record.topic
    )
