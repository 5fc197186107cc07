"""What the entry point names: the hooks."""

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
    """``topic_quota:`` of the configuration."""

    topics_prefix: str = "Logs"
    """The topics that have a quota: those whose names begin so."""
    max_bytes: int = 100_000_000
    """Bytes of bodies that one of these topics may send within a period."""
    period_s: int = 3_600


_quotas: weakref.WeakKeyDictionary[BrokerApi, Quota] = weakref.WeakKeyDictionary()


def quota_of(api: BrokerApi, settings: QuotaSection) -> Quota:
    """Return the one quota of a broker, which its step fills and its service empties."""
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
