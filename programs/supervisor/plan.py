"""Decides the names, stores and ports of the brokers that ``flintmq run --brokers`` starts, before any of them is started."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from flintmq.config import ConfigError
from flintmq.core.errors import StoreError

if TYPE_CHECKING:
    from flintmq.config import LoadedConfig
    from flintmq.config.sections.models import BrokerConfig

PORTS_APART: Final = 10
"""Difference between the ports of two brokers. A broker uses ``port`` - 2 (VIP), ``port`` and ``port`` + 1 (replication)."""
LOG: Final = "commitlog"
"""Name of the commit log's folder. A folder that contains this folder is a store."""
_PORT_MAX: Final = 65_535


@attrs.frozen
class BrokerPlan:
    """The plan of one broker's process: its name, its store and its settings."""

    name: str
    """The broker's name, such as ``broker-a``. The broker's store is a folder of the same name."""
    store: Path
    settings: tuple[str, ...]
    """Settings ``key=value`` of this broker, in addition to the settings that all brokers share."""
    has_free_port: bool
    """Whether the broker takes any free port at its first start, and the same port after each restart."""
    free_ports: Mapping[str, str] = attrs.field(factory=dict)
    """Names of services, as in the line ``READY …`` that a started broker prints, keyed by the setting of the service's port.
    Each of these services takes any free port at the broker's first start, and the same port after each restart."""


def plan_brokers(loaded: LoadedConfig, count: int, folder: Path, name_server: str) -> list[BrokerPlan]:
    """Return a plan for each broker that a supervisor starts. The brokers' names end with -a, -b and so on; their ports differ
    by ten.

    Args:
        loaded: the common configuration; its names, ports and folder are those of the first broker.
        count: the number of brokers, from 1 to 26.
        folder: the parent of the brokers' store folders, which have the brokers' names.
        name_server: ``host:port`` of the name server with which all brokers register, besides those of the configuration.

    Raises:
        ConfigError: the configuration is a slave's, or a port would be too high.
        StoreError: the folder is the store of a single broker.
    """
    config = loaded.config
    if config.broker.is_slave:
        raise ConfigError(
            "'broker.role' must be a master's if several brokers are started; start slaves one by one", "broker.role"
        )
    if (folder / LOG).is_dir():
        raise StoreError(f"{folder}: holds the store of a single broker; {_remedy(folder, config.broker.name)}")
    addresses = ";".join((name_server, *(one for one in config.namesrv.addresses if one != name_server)))
    ports = {
        "listen.port": config.listen.port,
        "listen.advertised_port": config.listen.advertised_port,
        "listen.ha_port": config.listen.ha_port,
        "metrics.port": config.metrics.port,
    }
    free_ports = {"metrics.port": "metrics"} if config.metrics.enable and not config.metrics.port else {}
    has_free_port = not config.listen.port and config.listen.advertised_port is None
    plans = []
    for number, name in enumerate(broker_names(config.broker.name, count)):
        settings = [f"broker.name={name}", f"store.path={folder / name}", f"namesrv.addresses={addresses}"]
        if config.console.enable:
            # The supervisor runs a single console for all brokers.
            settings.append("console.enable=false")
        for key, first_port in ports.items():
            # The ports 0 (any free port) and null (the default port) stay the same for all brokers. Other ports differ.
            if first_port:
                settings.append(f"{key}={_port(key, first_port + number * PORTS_APART, name)}")
        for key, folders in _shared_folders(config).items():
            settings.append(f"{key}={','.join(str(Path(folder) / name) for folder in folders)}")
        if config.listen.advertised:
            moved = [_moved(entry, number * PORTS_APART, name) for entry in config.listen.advertised]
            settings.append(f"listen.advertised={','.join(moved)}")
        if has_free_port and config.listen.ha_port is None:
            # The HA port is a free port, because the default, the broker's port plus 1, may be the port of another broker.
            settings.append("listen.ha_port=0")
        plans.append(BrokerPlan(name, folder / name, tuple(settings), has_free_port, free_ports))
    return plans


def _shared_folders(config: BrokerConfig) -> dict[str, tuple[str, ...]]:
    """Return the configured folders besides ``store.path``, keyed by setting. Each broker has a subfolder in each of these
    folders."""
    landing = config.spark_feed.landing.path
    found = {
        "store.commit_log_paths": config.store.commit_log_paths,
        "store.read_only_commit_log_paths": config.store.read_only_commit_log_paths,
        "spark_feed.landing.path": () if landing is None else (landing,),
    }
    return {key: folders for key, folders in found.items() if folders}


def _moved(advertised: str, apart: int, name: str) -> str:
    """Return an address of ``listen.advertised`` with ``apart`` added to its port. The supervisor runs several brokers with one
    configuration, and each broker needs different ports. ``name`` is the broker's name, for errors."""
    place, _, port = advertised.rpartition(":")
    return f"{place}:{_port('listen.advertised', int(port) + apart, name)}"


def _port(key: str, port: int, name: str) -> int:
    if port > _PORT_MAX:
        raise ConfigError(
            f"'{key}' gives port {port} to {name}, because brokers' ports differ by {PORTS_APART}; choose a lower port",
            key,
        )
    return port


def broker_names(first: str, count: int) -> list[str]:
    """Return names of brokers that differ in their last letter: ``broker-a``, ``broker-b``, … for ``broker-a`` or
    ``broker``."""
    stem = first.removesuffix("-a")
    return [f"{stem}-{letter}" for letter in string.ascii_lowercase[:count]]


def stores_in(folder: Path) -> list[str]:
    """Return the names of a folder's subfolders that contain a broker's store, sorted."""
    return sorted(log.parent.name for log in folder.glob(f"*/{LOG}") if log.is_dir())


def check_single(folder: Path, name: str) -> None:
    """Check that a folder is the store of a single broker, not of several.

    Args:
        folder: the store's folder.
        name: the broker's name.

    Raises:
        StoreError: several brokers have their stores in the folder; the error says how to start these brokers.
    """
    found = stores_in(folder)
    # In a folder that is itself a store, a subfolder counts as a broker's store only if it has the name of a broker.
    if (folder / LOG).is_dir():
        found = [one for one in found if one in broker_names(name, len(string.ascii_lowercase))]
        if found:
            raise StoreError(
                f"{folder}: holds both a single broker's store and the stores of {', '.join(found)}, but one start "
                f"cannot use all of them; {_remedy(folder, name)}"
            )
    if found:
        raise StoreError(
            f"{folder}: holds the stores of {', '.join(found)}, but not the store of a single broker; start "
            f"with --brokers {_count_for(found, name)}, or one of them with --store {folder / found[0]}"
        )


def _count_for(found: Sequence[str], name: str) -> int:
    """Return the value of ``--brokers`` with which all stores in a folder are used. If no store has a name that ``--brokers``
    would give to a broker, return the number of stores."""
    known = broker_names(name, len(string.ascii_lowercase))
    return max((known.index(one) + 1 for one in found if one in known), default=len(found))


def _remedy(folder: Path, name: str) -> str:
    """Return an instruction for the user who wants to keep a single broker's store beside other stores: move its files to a
    subfolder without a store."""
    there = set(stores_in(folder))
    free = next((one for one in broker_names(name, len(string.ascii_lowercase)) if one not in there), None)
    if free is None:
        return "move its files to a folder elsewhere"
    count = broker_names(name, len(string.ascii_lowercase)).index(free) + 1
    which = "the first" if count == 1 else f"number {count}"
    then = f", and start with --brokers {max(count, len(there) + 1)}" if there else ""
    return f"to have it as {which} of several, move its files (not the brokers' folders) into {free}/{then}"


def left_out(folder: Path, plans: list[BrokerPlan]) -> list[str]:
    """Return the names of brokers that have a store in the folder but are not in a plan, sorted."""
    known = {plan.name for plan in plans}
    return [name for name in stores_in(folder) if name not in known]
