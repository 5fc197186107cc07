"""Tries a configuration: what a start would make of its plugins is made in a scratch folder, and thrown away."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

import attrs

from flintmq.config import BrokerConfig, LoadedConfig
from flintmq.plugins.broker.broker import Broker
from flintmq.plugins.name_server.name_server import NameServer

_FILE_BYTES: Final = 8 * 1024 * 1024
"""Of the scratch store's log, and of the buffers that a pool is asked for."""


def check_what_is_made(loaded: LoadedConfig) -> None:
    """Calls the factories that a broker and a name server of this configuration would call, and looks at what they make.

    Nothing listens, and the configured store is not touched. Plugins' own files are, as far as their factories do that.

    Raises:
        ConfigError, PluginError, StoreError: as a start would.
    """
    with tempfile.TemporaryDirectory(prefix="flintmq-check-") as folder:
        scratch = attrs.evolve(loaded, config=_in(Path(folder), loaded.config))
        asyncio.run(Broker(scratch).check())
        NameServer(scratch).check()


def _in(folder: Path, config: BrokerConfig) -> BrokerConfig:
    """The configuration with a store of its own. Accounts are those of the configured one, which are only read."""
    store = attrs.evolve(
        config.store,
        path=str(folder),
        commit_log_paths=(),
        read_only_commit_log_paths=(),
        commit_log_file_bytes=min(config.store.commit_log_file_bytes, _FILE_BYTES),
    )
    acl = attrs.evolve(config.acl, file=str(config.account_file)) if config.acl.enable else config.acl
    return attrs.evolve(config, store=store, acl=acl)
