"""The module that the entry point names: hooks that register the dispatcher ``audit`` and its configuration section."""

from __future__ import annotations

from pathlib import Path

import attrs

from flintmq.core.kernel.hookspecs import DispatcherContext, RegisterConfigSection, RegisterDispatcher, hookimpl
from flintmq_audit.dispatcher import AuditDispatcher


@attrs.frozen(kw_only=True)
class AuditSection:
    """The section ``audit`` of the configuration."""

    path: str = "flintmq-audit.jsonl"
    """Path of the audit file. The dispatcher appends a line to the file for each topic in each batch."""
    max_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=attrs.validators.ge(4096))
    """Size in bytes above which the audit file is renamed to ``<path>.1``."""


@hookimpl
def flintmq_config_sections(register: RegisterConfigSection) -> None:
    register("audit", AuditSection)


@hookimpl
def flintmq_dispatchers(register: RegisterDispatcher) -> None:
    register("audit", make_dispatcher)


def make_dispatcher(context: DispatcherContext[AuditSection | None]) -> AuditDispatcher:
    settings = context.settings or AuditSection()
    return AuditDispatcher(Path(settings.path), settings.max_bytes)
