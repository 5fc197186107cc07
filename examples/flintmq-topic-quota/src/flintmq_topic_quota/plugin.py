"""The module that the entry point names: hooks that register the parts of the topic quota.

The parts are an intake step, which checks messages before they are stored, a service, a configuration section and a command.
"""

from __future__ import annotations

import weakref

import attrs

from flintmq.core.broker.api import BrokerApi
from flintmq.core.kernel.hookspecs import (
    ApiContext,
    RegisterCommand,
    RegisterConfigSection,
    RegisterIntakeStep,
    RegisterService,
    hookimpl,
)
from flintmq_topic_quota.command import topic_quota
from flintmq_topic_quota.quota import Quota, QuotaService, QuotaStep


@attrs.frozen(kw_only=True)
class QuotaSection:
    """The section ``topic_quota`` of the configuration."""

    topics_prefix: str = "Logs"
    """Prefix of the names of topics that have a quota."""
    max_bytes: int = 100_000_000
    """Maximum number of body bytes that may be sent within a period to a topic with a quota."""
    period_s: int = 3_600
    """Length of a period in seconds. At the end of a period, the used bytes of all quotas are set to 0."""


_quotas: weakref.WeakKeyDictionary[BrokerApi, Quota] = weakref.WeakKeyDictionary()


def quota_of(api: BrokerApi, settings: QuotaSection) -> Quota:
    """Return the quota of a broker. All calls for a broker return the same object, because a :class:`QuotaStep` counts bytes
    in it and a :class:`QuotaService` resets the counts."""
    return _quotas.setdefault(api, Quota(settings.max_bytes))


def make_step(context: ApiContext[QuotaSection]) -> QuotaStep:
    return QuotaStep(quota_of(context.api, context.settings), context.settings.topics_prefix)


def make_service(context: ApiContext[QuotaSection]) -> QuotaService:
    return QuotaService(quota_of(context.api, context.settings), context.settings.period_s, context.api.work)


@hookimpl
def flintmq_config_sections(register: RegisterConfigSection) -> None:
    register("topic_quota", QuotaSection)


@hookimpl
def flintmq_intake_steps(register: RegisterIntakeStep) -> None:
    register("topic_quota", make_step)


@hookimpl
def flintmq_services(register: RegisterService) -> None:
    register("topic_quota", make_service)


@hookimpl
def flintmq_cli_commands(register: RegisterCommand) -> None:
    register("topic-quota", topic_quota)
