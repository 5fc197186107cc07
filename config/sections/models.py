"""The configuration as a value: :class:`BrokerConfig`, a frozen attrs class with all sections and their defaults.

``BrokerConfig()`` is a complete configuration; ``attrs.evolve`` changes it in code,
:func:`flintmq.config.load_config` reads it from files, the environment and the command line. Safe to share between threads.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.fields import option
from flintmq.config.sections.console import ConsoleSection
from flintmq.config.sections.observe import MetricsSection, TracingSection
from flintmq.config.sections.security import AclAccount, AclSection, TlsSection
from flintmq.config.sections.server import BrokerSection, HaSection, ListenSection, NamesrvConfig, NamesrvSection
from flintmq.config.sections.service import (
    AdmissionSection,
    AlarmsSection,
    DelaySection,
    GroupsSection,
    OffsetsSection,
    PullSection,
    TopicsSection,
    TransactionsSection,
)
from flintmq.config.sections.store import (
    CommitRealTimeSection,
    FlushRealTimeSection,
    FlushSection,
    GroupCommitSection,
    IndexSection,
    LandingSection,
    SparkFeedSection,
    StoreSection,
)

__all__ = [
    "AclAccount",
    "AclSection",
    "AdmissionSection",
    "AlarmsSection",
    "BrokerConfig",
    "BrokerSection",
    "CommitRealTimeSection",
    "ConsoleSection",
    "DelaySection",
    "FlushRealTimeSection",
    "FlushSection",
    "GroupCommitSection",
    "GroupsSection",
    "HaSection",
    "IndexSection",
    "LandingSection",
    "ListenSection",
    "MetricsSection",
    "NamesrvConfig",
    "NamesrvSection",
    "OffsetsSection",
    "PluginRef",
    "PullSection",
    "SparkFeedSection",
    "StoreSection",
    "TlsSection",
    "TopicsSection",
    "TracingSection",
    "TransactionsSection",
]


PLUGIN_TARGET: Final = r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?"
"""Regular expression of a plugin's target: ``package.module`` or ``package.module:object``."""


def _check_target(_instance: object, _attribute: attrs.Attribute[str], value: str) -> None:
    if re.fullmatch(PLUGIN_TARGET, value) is None:
        raise ConfigError(
            f"a plugin is named 'package.module' or 'package.module:object', not '{value[:80]}'", key="plugins"
        )


@attrs.frozen
class PluginRef:
    """A plugin that the configuration names."""

    target: str = attrs.field(validator=_check_target)
    """Target of a plugin: ``package.module:object``, or ``package.module`` if the hooks are functions of the module."""
    line: int | None = attrs.field(default=None, eq=False)
    """Line of the configuration file that names the plugin, for errors; None if no file names the plugin."""


PLUGIN_FAILURES_MAX: Final = 5


@attrs.frozen(kw_only=True)
class BrokerConfig:
    """Every setting of a broker, and of the name server that ``flintmq run`` starts beside it."""

    broker: BrokerSection = attrs.field(factory=BrokerSection)
    """Settings of the broker's name, cluster and role."""
    listen: ListenSection = attrs.field(factory=ListenSection)
    """Settings of the broker's ports and addresses, and the limits of its connections."""
    namesrv: NamesrvSection = attrs.field(factory=NamesrvSection)
    """Settings of the name servers with which the broker registers."""
    nameserver: NamesrvConfig = attrs.field(factory=NamesrvConfig)
    """Settings of the name server that ``flintmq run`` or ``flintmq namesrv`` starts."""
    ha: HaSection = attrs.field(factory=HaSection)
    """Settings of the replication between master and slaves."""
    store: StoreSection = attrs.field(factory=StoreSection)
    """Settings of the commit log, the consume queues and their retention."""
    index: IndexSection = attrs.field(factory=IndexSection)
    """Settings of the index by which messages are found by key."""
    dispatchers: tuple[str, ...] = option(("consume_queue", "index"), pattern=r"\S+", expects="a list of names")
    """Names of the dispatchers to use, in the order in which the broker calls them."""
    spark_feed: SparkFeedSection = attrs.field(factory=SparkFeedSection)
    """Settings of the dispatcher ``spark_feed``."""
    flush: FlushSection = attrs.field(factory=FlushSection)
    """Settings of the strategy that makes messages durable."""
    topics: TopicsSection = attrs.field(factory=TopicsSection)
    """Settings of topics: their number and their creation."""
    groups: GroupsSection = attrs.field(factory=GroupsSection)
    """Settings of consumer groups: their number and their creation."""
    offsets: OffsetsSection = attrs.field(factory=OffsetsSection)
    """Settings of consumer offsets: their number and their writing to disk."""
    delay: DelaySection = attrs.field(factory=DelaySection)
    """Settings of messages that are delivered later."""
    pull: PullSection = attrs.field(factory=PullSection)
    """Settings of pulls, held pulls and filters."""
    transactions: TransactionsSection = attrs.field(factory=TransactionsSection)
    """Settings of transactional messages, and of the checks of their transactions' states."""
    admission: AdmissionSection = attrs.field(factory=AdmissionSection)
    """Limits above which requests are refused with SYSTEM_BUSY."""
    metrics: MetricsSection = attrs.field(factory=MetricsSection)
    """Settings of the metrics for monitoring systems."""
    tracing: TracingSection = attrs.field(factory=TracingSection)
    """Settings of the OpenTelemetry spans of messages."""
    alarms: AlarmsSection = attrs.field(factory=AlarmsSection)
    """Limits above which alarms are raised."""
    console: ConsoleSection = attrs.field(factory=ConsoleSection)
    """Settings of the console, whose web pages show and change the cluster."""
    acl: AclSection = attrs.field(factory=AclSection)
    """Settings of access control with accounts and signed requests."""
    authenticators: tuple[str, ...] = option((), pattern=r"\S+", expects="a list of names")
    """Names of the authenticators to use, in the order in which the broker calls them. If empty, every request is accepted."""
    plugins: tuple[PluginRef, ...] = option(())
    """Plugins that are loaded in addition to the built-in and the installed plugins."""
    disabled_plugins: tuple[str, ...] = option((), pattern=r"\S+", expects="a list of names")
    """Names of built-in or installed plugins that are not loaded."""
    plugin_failures_max: int = option(PLUGIN_FAILURES_MAX, minimum=0, maximum=1_000_000)
    """Number of failures after which an object that a third party's plugin registered is switched off until the broker
    restarts. Objects that the broker needs stay on. With 0, all objects stay on."""

    @property
    def replicates(self) -> bool:
        """Return whether the broker is a slave, or allows slaves to follow it."""
        return self.ha.enable or self.broker.role != "async_master"

    @property
    def account_file(self) -> Path:
        """Return the file that accounts are written to: ``acl.file``, or ``flint/acl/plain_acl.yml`` in the store's folder."""
        return Path(self.acl.file) if self.acl.file else Path(self.store.path) / "flint" / "acl" / "plain_acl.yml"

    @property
    def authenticators_in_force(self) -> tuple[str, ...]:
        """Return the broker's ``authenticators``, with ``acl`` added if ``acl.enable`` is set."""
        return _with_acl(self.authenticators, self.acl.enable)

    @property
    def namesrv_authenticators_in_force(self) -> tuple[str, ...]:
        """Return ``nameserver.authenticators``, with ``acl`` added if ``nameserver.acl_enable`` is set."""
        return _with_acl(self.nameserver.authenticators, self.nameserver.acl_enable)


def _with_acl(authenticators: tuple[str, ...], enable: bool) -> tuple[str, ...]:
    if enable and not any(name.rpartition("/")[2] == "acl" for name in authenticators):
        return (*authenticators, "acl")
    return authenticators
