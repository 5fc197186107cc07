"""The settings: classes with defaults, and functions that read them from YAML, the environment and the command line.

::

    loaded = load_config(Path("broker.yaml"), overrides=["flush.strategy=group_commit"])
    loaded.config.store.commit_log_file_bytes
    loaded.origins["flush.strategy"]            # command line

RocketMQ's names are accepted instead of keys: ``enablePropertyFilter: true`` is the same as ``pull.property_filter: true``.
Errors are :class:`ConfigError`. They name the file, the line and the known key that is nearest to an unknown one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flintmq.config.errors import ConfigError
    from flintmq.config.fields import option
    from flintmq.config.loading.load import LoadedConfig, load_config, load_text
    from flintmq.config.loading.show import rows, to_yaml
    from flintmq.config.rocketmq.importing import import_broker_conf
    from flintmq.config.sections.models import BrokerConfig, NamesrvConfig, PluginRef

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "LoadedConfig",
    "NamesrvConfig",
    "PluginRef",
    "import_broker_conf",
    "load_config",
    "load_text",
    "option",
    "rows",
    "to_yaml",
]

_HOMES: Final = {
    "BrokerConfig": "sections.models",
    "ConfigError": "errors",
    "LoadedConfig": "loading.load",
    "NamesrvConfig": "sections.models",
    "PluginRef": "sections.models",
    "import_broker_conf": "rocketmq.importing",
    "load_config": "loading.load",
    "load_text": "loading.load",
    "option": "fields",
    "rows": "loading.show",
    "to_yaml": "loading.show",
}
"""Modules that define the public names of ``flintmq.config``, keyed by name. A module is imported when its name is first
used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
