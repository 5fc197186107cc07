"""Tries a configuration: what a start would make of its plugins is made in a scratch folder, and thrown away."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from flintmq.core.errors import PluginError
from flintmq.core.kernel.blame import brief
from flintmq.core.kernel.plugin_shapes import COMMAND

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig, LoadedConfig
    from flintmq.core.kernel.registry import CommandSpec, Registered

_FILE_BYTES: Final = 8 * 1024 * 1024
"""Of the scratch store's log, and of the buffers that a pool is asked for."""


def check_what_is_made(loaded: LoadedConfig) -> None:
    """Calls the factories that a broker and a name server of this configuration would call, and looks at what they make.

    Nothing listens, and the configured store is not touched. Plugins' own files are, as far as their factories do that.

    Raises:
        ConfigError, PluginError, StoreError: as a start would.
    """
    from flintmq.plugins.broker.broker import Broker
    from flintmq.plugins.name_server.name_server import NameServer

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


def check_command(registered: Registered[CommandSpec]) -> None:
    """Raises ``PluginError`` for a command whose annotations typer does not understand, or whose name is flintmq's own."""
    from flintmq.plugins.cli.main import COMMANDS, made_command

    where = COMMAND.where(registered.owner, registered.name)
    if registered.name in COMMANDS:
        raise PluginError(f"{where}: expected a name of the plugin's own; found one of flintmq's commands")
    try:
        made_command(registered.name, registered.value.command, registered.value.help)
    except Exception as error:
        raise PluginError(
            f"{where}: expected a function with annotations that typer understands; found {brief(error)}"
        ) from error
