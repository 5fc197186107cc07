"""The configuration as a value: :class:`BrokerConfig`, frozen, every section with its defaults.

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
"""What names a plugin."""


def _check_target(_instance: object, _attribute: attrs.Attribute[str], value: str) -> None:
    if re.fullmatch(PLUGIN_TARGET, value) is None:
        raise ConfigError(
            f"a plugin is named 'package.module' or 'package.module:object', not '{value[:80]}'", key="plugins"
        )


@attrs.frozen
class PluginRef:
    """A plugin named in the configuration."""

    target: str = attrs.field(validator=_check_target)
    """``package.module:object``, or ``package.module`` where the hooks are functions of the module."""
    line: int | None = attrs.field(default=None, eq=False)
    """Where it was written, for errors; None outside a file."""


PLUGIN_FAILURES_MAX: Final = 5


@attrs.frozen(kw_only=True)
class BrokerConfig:
    """Every setting of a broker, and of the name server that ``flintmq run`` starts beside it."""

    broker: BrokerSection = attrs.field(factory=BrokerSection)
    """The broker's identity."""
    listen: ListenSection = attrs.field(factory=ListenSection)
    """Sockets."""
    namesrv: NamesrvSection = attrs.field(factory=NamesrvSection)
    """The name servers to register with."""
    nameserver: NamesrvConfig = attrs.field(factory=NamesrvConfig)
    """The name server itself."""
    ha: HaSection = attrs.field(factory=HaSection)
    """Replication."""
    store: StoreSection = attrs.field(factory=StoreSection)
    """The commit log and the consume queues."""
    index: IndexSection = attrs.field(factory=IndexSection)
    """Finding messages by key."""
    dispatchers: tuple[str, ...] = option(("consume_queue", "index"), pattern=r"\S+", expects="a list of names")
    """The dispatchers in force, by name, in order."""
    spark_feed: SparkFeedSection = attrs.field(factory=SparkFeedSection)
    """What the dispatcher ``spark_feed`` does."""
    flush: FlushSection = attrs.field(factory=FlushSection)
    """When messages become durable."""
    topics: TopicsSection = attrs.field(factory=TopicsSection)
    """Topics."""
    groups: GroupsSection = attrs.field(factory=GroupsSection)
    """Consumer groups."""
    offsets: OffsetsSection = attrs.field(factory=OffsetsSection)
    """Consumer offsets."""
    delay: DelaySection = attrs.field(factory=DelaySection)
    """Delayed messages."""
    pull: PullSection = attrs.field(factory=PullSection)
    """Pulls."""
    transactions: TransactionsSection = attrs.field(factory=TransactionsSection)
    """Transactional messages."""
    admission: AdmissionSection = attrs.field(factory=AdmissionSection)
    """When the broker is busy."""
    metrics: MetricsSection = attrs.field(factory=MetricsSection)
    """What monitoring systems read."""
    tracing: TracingSection = attrs.field(factory=TracingSection)
    """What tracing systems are told of messages."""
    alarms: AlarmsSection = attrs.field(factory=AlarmsSection)
    """What is told as wrong."""
    console: ConsoleSection = attrs.field(factory=ConsoleSection)
    """Web pages that show the cluster."""
    acl: AclSection = attrs.field(factory=AclSection)
    """Access control."""
    authenticators: tuple[str, ...] = option((), pattern=r"\S+", expects="a list of names")
    """The authenticators in force, by name, in order; empty lets everyone in."""
    plugins: tuple[PluginRef, ...] = option(())
    """Plugins to load beyond the built-in and the installed ones."""
    disabled_plugins: tuple[str, ...] = option((), pattern=r"\S+", expects="a list of names")
    """Plugins not to load, by name."""
    plugin_failures_max: int = option(PLUGIN_FAILURES_MAX, minimum=0, maximum=1_000_000)
    """So many failures switch off an optional part of a third party's plugin until the restart; 0 never does."""

    @property
    def replicates(self) -> bool:
        """Return whether it is a slave, or lets slaves follow it."""
        return self.ha.enable or self.broker.role != "async_master"

    @property
    def account_file(self) -> Path:
        """Return the file that accounts are written to: ``acl.file``, or one in the folder of the store."""
        return Path(self.acl.file) if self.acl.file else Path(self.store.path) / "flint" / "acl" / "plain_acl.yml"

    @property
    def authenticators_in_force(self) -> tuple[str, ...]:
        """Return ``authenticators``, and ``acl`` where ``acl.enable`` says so."""
        return _with_acl(self.authenticators, self.acl.enable)

    @property
    def namesrv_authenticators_in_force(self) -> tuple[str, ...]:
        """Return ``nameserver.authenticators``, and ``acl`` where ``nameserver.acl_enable`` says so."""
        return _with_acl(self.nameserver.authenticators, self.nameserver.acl_enable)


def _with_acl(authenticators: tuple[str, ...], enable: bool) -> tuple[str, ...]:
    if enable and not any(name.rpartition("/")[2] == "acl" for name in authenticators):
        return (*authenticators, "acl")
    return authenticators
