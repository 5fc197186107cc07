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
    role = config.broker.role
    asked = {
        "replication": "" if not config.replicates else "ha.enable" if role == "async_master" else "broker.role",
        "registration": "namesrv.addresses" if config.namesrv.addresses else "",
    }
    known = {entry.name for entry in kernel.services()}
    for service, key in asked.items():
        if key and service not in known:
            raise ConfigError(
                f"'{key}' needs the plugin '{service}', which is not loaded: see 'disabled_plugins'", key=key
            )
