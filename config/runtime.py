"""Changes settings of a running broker or name server, and returns its configuration under RocketMQ's names.

An explicit list has the keys that may be changed. Keys of paths, classes, addresses or plugins must never be in this list.
RocketMQ's CVE-2023-33246 allowed the execution of foreign code because such keys could be changed by requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from flintmq.config.errors import ConfigError, hint, nearest
from flintmq.config.loading.binding import bind_field
from flintmq.config.loading.raw import RawScalar
from flintmq.config.loading.schema import COMPOSITES, KEYS, NAMESERVER, Key, Role, aliases, aliases_in
from flintmq.config.loading.show import property_value
from flintmq.config.rocketmq.flush_type import FlushType
from flintmq.config.sections.models import BrokerConfig, NamesrvConfig


def _allow(names: tuple[str, ...], role: Role) -> Mapping[str, Key]:
    table = aliases_in(NAMESERVER if role == "namesrv" else "", role)
    return MappingProxyType({name: KEYS[table[name][0]] for name in names})


RUNTIME_KEYS: Final = _allow(
    (
        "accessMessageInMemoryMaxRatio",
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerFastFailureEnable",
        "brokerPermission",
        "cleanFileForciblyEnable",
        "defaultTopicQueueNums",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "enablePropertyFilter",
        "fileReservedTime",
        "flushConsumerOffsetInterval",
        "longPollingEnable",
        "maxMessageSize",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferCountOnMessageInMemory",
        "notifyConsumerIdsChangedEnable",
        "rejectTransactionMessage",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "storeReplyMessageEnable",
        "traceOn",
        "transactionCheckInterval",
        "transactionCheckMax",
        "transactionTimeOut",
        "waitTimeMillsInSendQueue",
    ),
    "broker",
)
"""Broker settings that request 25 (UPDATE_BROKER_CONFIG) may change, keyed by RocketMQ's name."""

NAMESRV_RUNTIME_KEYS: Final = _allow(
    ("orderMessageEnable", "scanNotActiveBrokerInterval", "serverChannelMaxIdleTimeSeconds"), "namesrv"
)
"""Name server settings that request 318 (UPDATE_NAMESRV_CONFIG) may change, keyed by RocketMQ's name."""


def evolve(config: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration with changed values of keys in :data:`RUNTIME_KEYS`.

    Args:
        config: the current configuration, which is not changed.
        changes: new values as text, keyed by RocketMQ's name or by dotted key. A plain integer under RocketMQ's name is in
            RocketMQ's unit.

    Raises:
        ConfigError: a key may not be changed or is given twice, or a value is invalid.
    """
    return _changed(config, changes, RUNTIME_KEYS, "broker")


def evolve_namesrv(config: NamesrvConfig, changes: Mapping[str, str]) -> NamesrvConfig:
    """Return a name server's configuration with changed values of keys in :data:`NAMESRV_RUNTIME_KEYS`; see :func:`evolve`.

    Raises:
        ConfigError: a key may not be changed or is given twice, or a value is invalid.
    """
    return _changed(BrokerConfig(nameserver=config), changes, NAMESRV_RUNTIME_KEYS, "namesrv").nameserver


def as_properties(config: BrokerConfig) -> dict[str, str]:
    """Return a broker's configuration under RocketMQ's names, without secrets, to answer request 26 (GET_BROKER_CONFIG).

    Unset keys have the value that the broker uses: ``brokerIP1``, ``haListenPort``, ``storePathCommitLog`` and ``useTLS``.
    RocketMQ's keys that FlintMQ does not have are included with the value that describes its behavior
    (:data:`flintmq.config.rocketmq.names.FIXED`). So tools find every name that RocketMQ 4.9 reports.
    """
    # FIXED is imported late, because a broker needs RocketMQ's fixed keys only if a client asks for its configuration.
    from flintmq.config.rocketmq.names import FIXED

    flush_side = "flush.commit_real_time." if config.flush.strategy == "commit_real_time" else "flush.flush_real_time."
    found = {name: fixed.value for name, fixed in FIXED.items() if fixed.value is not None}
    for alias, names in aliases("broker").items():
        name = next((name for name in names if name.startswith(flush_side)), names[0])
        if not name.startswith(f"{NAMESERVER}."):
            _tell(found, alias, name, config)
    listen = config.listen
    if found.get("brokerIP1", "client") == "client":
        found["brokerIP1"] = listen.host
    found["brokerRole"] = config.broker.role.upper()
    found.setdefault("brokerIP2", config.ha.advertised_host or found["brokerIP1"])
    found.setdefault("useTLS", str(listen.tls.mode_in_force == "required").lower())
    found.setdefault("haListenPort", str(listen.port + 1 if listen.port else 0))
    found["storePathCommitLog"] = found["storePathCommitLog"] or f"{config.store.path.rstrip('/')}/commitlog"
    return dict(sorted((found | FlushType.of_strategy(config.flush.strategy).as_properties()).items()))


def namesrv_as_properties(config: NamesrvConfig) -> dict[str, str]:
    """Return a name server's configuration under RocketMQ's names, for the answer to request 319 (GET_NAMESRV_CONFIG)."""
    found: dict[str, str] = {}
    for alias, names in aliases_in(NAMESERVER, "namesrv").items():
        _tell(found, alias, names[0], BrokerConfig(nameserver=config))
    return dict(sorted(found.items()))


def _tell(found: dict[str, str], alias: str, name: str, config: BrokerConfig) -> None:
    key = KEYS[name]
    value = key.value_of(config)
    if value is not None and not key.spec.secret:
        found[alias] = property_value(value, key.spec)


def _changed(config: BrokerConfig, changes: Mapping[str, str], allowed: Mapping[str, Key], role: Role) -> BrokerConfig:
    by_key = {key.name: name for name, key in allowed.items()}
    sections: dict[str, dict[str, Any]] = {}
    for spelling, text in changes.items():
        name = allowed[spelling].name if spelling in allowed else spelling
        if name not in by_key:
            raise _refused(spelling, by_key, allowed, role)
        section, _, attribute = name.rpartition(".")
        if attribute in sections.setdefault(section, {}):
            raise ConfigError(f"'{name}' and '{by_key[name]}' are the same key, given twice", key=name)
        key = KEYS[name]
        node = RawScalar(text, plain=key.spec.rocketmq_unit if spelling in allowed else None)
        sections[section][attribute] = bind_field(node, key.hint, key.field, name)
    parts = {section: attrs.evolve(getattr(config, section), **values) for section, values in sections.items()}
    return attrs.evolve(config, **parts)


def meant(spelling: str, changeable: Iterable[str]) -> str:
    """Return the ending of the error text for a key that cannot be changed at run time. For an unknown key, the ending is ``;
    did you mean 'x'?``, with a similar key from ``changeable``. For a key that exists but must not be changed at run time, the
    ending is empty, because the key is not misspelled.

    Args:
        spelling: the key of the request.
        changeable: the keys that may be changed.
    """
    from flintmq.config.rocketmq.names import FIXED

    known = spelling in KEYS or spelling in COMPOSITES or spelling in FIXED
    if known or spelling in aliases("broker") or spelling in aliases_in(NAMESERVER, "namesrv"):
        return ""
    return hint(spelling, changeable)


def _refused(spelling: str, by_key: Mapping[str, str], allowed: Mapping[str, Key], role: Role) -> ConfigError:
    from flintmq.config.rocketmq.names import FIXED

    if spelling in KEYS or spelling in aliases(role) or spelling in COMPOSITES or spelling in FIXED:
        return ConfigError(f"'{spelling}' cannot be changed while running", key=spelling)
    near = nearest(spelling, (*allowed, *by_key))
    return ConfigError(f"unknown key '{spelling[:80]}'", key=spelling, suggestion=near)
