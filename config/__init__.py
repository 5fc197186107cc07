"""Every setting: models with defaults, units, YAML, the environment, the command line, RocketMQ's names.

::

    loaded = load_config(Path("broker.yaml"), overrides=["flush.strategy=group_commit"])
    loaded.config.store.commit_log_file_bytes
    loaded.origins["flush.strategy"]            # command line

RocketMQ's names are accepted wherever a key is: ``enablePropertyFilter: true`` is ``pull.property_filter: true``.
Errors are :class:`ConfigError` and name the file, the line and the key that was probably meant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from flintmq.config.errors import ConfigError
from flintmq.config.fields import FieldSpec, option
from flintmq.config.loading.load import LoadedConfig, load_config, load_text
from flintmq.config.loading.raw import Origin, RawSection
from flintmq.config.runtime import (
    NAMESRV_RUNTIME_KEYS,
    RUNTIME_KEYS,
    RuntimeKey,
    as_properties,
    evolve,
    evolve_namesrv,
    namesrv_as_properties,
)
from flintmq.config.sections.models import BrokerConfig, NamesrvConfig, PluginRef
from flintmq.config.units import format_duration, format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from flintmq.config.loading.show import Row, rows, to_yaml
    from flintmq.config.rocketmq.importing import ImportResult, import_broker_conf

__all__ = [
    "NAMESRV_RUNTIME_KEYS",
    "RUNTIME_KEYS",
    "BrokerConfig",
    "ConfigError",
    "FieldSpec",
    "ImportResult",
    "LoadedConfig",
    "NamesrvConfig",
    "Origin",
    "PluginRef",
    "RawSection",
    "Row",
    "RuntimeKey",
    "as_properties",
    "evolve",
    "evolve_namesrv",
    "format_duration",
    "format_size",
    "import_broker_conf",
    "load_config",
    "load_text",
    "namesrv_as_properties",
    "option",
    "parse_duration",
    "parse_size",
    "rows",
    "to_yaml",
]

_LATER: Final = {
    "ImportResult": "flintmq.config.rocketmq.importing",
    "Row": "flintmq.config.loading.show",
    "import_broker_conf": "flintmq.config.rocketmq.importing",
    "rows": "flintmq.config.loading.show",
    "to_yaml": "flintmq.config.loading.show",
}
"""Names that a server does not need, imported at their first use."""


def __getattr__(name: str) -> Any:
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
