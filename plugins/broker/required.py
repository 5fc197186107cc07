"""Refuses a configuration that asks for a feature whose plugin is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.config.errors import ConfigError

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig
    from flintmq.core.kernel.kernel import Kernel


def check_required(config: BrokerConfig, kernel: Kernel) -> None:
    """Check that the services that the configuration asks for are there.

    Raises:
        ConfigError: a setting asks for a service that no plugin has; names the setting and the plugin.
    """
    asked = (
        ("broker.role", config.broker.role != "async_master", "replication"),
        ("ha.enable", config.ha.enable, "replication"),
        ("namesrv.addresses", bool(config.namesrv.addresses), "registration"),
        ("pull.property_filter", config.pull.property_filter, "filters"),
        ("pull.calc_filter_bitmap", config.pull.calc_filter_bitmap, "filters"),
    )
    known = {entry.name for entry in kernel.registries.services.all()}
    for key, is_asked, service in asked:
        if is_asked and service not in known:
            raise ConfigError(
                f"'{key}' needs the plugin '{service}', which is not loaded: see 'disabled_plugins'", key=key
            )
