"""``flintmq plugins`` and ``flintmq config check``: what would be loaded, and whether a start could use it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

import attrs
import click

from flintmq.config import BrokerConfig, LoadedConfig, load_config
from flintmq.config.loading.schema import Role
from flintmq.core.kernel.kernel import Kernel
from flintmq.plugins.broker.broker import Broker
from flintmq.plugins.broker.loading import PluginSettings
from flintmq.plugins.broker.processors import ProcessorsPlugin
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.plugins.cli import options
from flintmq.plugins.cli.config import warn_ignored
from flintmq.plugins.cli.output import print_done, print_json, print_rows
from flintmq.plugins.cli.parser import Command
from flintmq.plugins.cli.plugin_command import made_command
from flintmq.plugins.name_server.name_server import NameServer

_SCRATCH_FILE_BYTES: Final = 8 * 1024 * 1024
"""Of the scratch store's log, and of the buffers that a pool is asked for."""


@click.command(cls=Command)
@options.config_file
@options.settings
@options.as_json
def plugins(config: Path | None, settings: tuple[str, ...], as_json: bool) -> None:
    found: list[dict[str, Any]] = [
        {
            "name": info.name,
            "source": info.origin.source.value,
            "place": info.origin.place,
            "enabled": info.enabled,
            "hooks": list(info.hooks),
            "registered": list(info.registered),
        }
        for info in assembled(load_config(config, settings), config).describe()
    ]
    if as_json:
        print_json(found)
        return
    for row in found:
        hooks = "\n".join(hook.removeprefix("flintmq_") for hook in row["hooks"])
        row["hooks"] = hooks if row["enabled"] else "switched off"
        row["registered"] = "\n".join(row["registered"])
        row["place"] = row["place"] or row["source"]
    print_rows(found, {"plugin": "name", "from": "place", "hooks": "hooks", "registered": "registered"})


@click.command(cls=Command)
@click.argument("file", type=options.PATH, help="A configuration: YAML, or RocketMQ's broker.conf.")
@options.settings
@options.role
@options.as_json
def check(file: Path, settings: tuple[str, ...], role: Role, as_json: bool) -> None:
    loaded = load_config(file, settings, role=role)
    plugins = _check_plugins(loaded, file)
    changed = sum(origin.kind != "default" for origin in loaded.origins.values())
    warn_ignored(loaded)
    text = f"{file}: ok, {changed} settings, {plugins} plugins"
    ignored = [{"name": entry.name, "line": entry.origin.line, "why": entry.why} for entry in loaded.ignored]
    print_done(text, as_json, file=str(file), ok=True, settings=changed, plugins=plugins, ignored=ignored)


def _check_plugins(loaded: LoadedConfig, file: Path) -> int:
    """Return the number of plugins that a start would load.

    Raises:
        ConfigError, PluginError, StoreError: something that the configuration names does not exist, a section does not fit
            its model, or a start could not use what a plugin makes.
    """
    kernel = assembled(loaded, file)
    chosen = loaded.config
    kernel.registries.check_dispatchers(chosen.dispatchers)
    kernel.registries.pools.pick(chosen.flush.pool)
    kernel.registries.index_builders.pick(chosen.index.builder)
    PluginSettings(kernel, loaded).check()
    for command in kernel.registries.cli_commands.all():
        made_command(command)
    with tempfile.TemporaryDirectory(prefix="flintmq-check-") as folder:
        scratch = attrs.evolve(loaded, config=_in(Path(folder), chosen))
        asyncio.run(Broker(scratch).check())
        asyncio.run(NameServer(scratch).check())
    return sum(info.enabled for info in kernel.describe())


def assembled(loaded: LoadedConfig, file: Path | None) -> Kernel:
    """Return the kernel a broker of this configuration would have. Raises ``PluginError``."""
    return Kernel.assemble(
        loaded.config.plugins,
        (*BUILTIN_PLUGINS, ProcessorsPlugin()),
        disabled=loaded.config.disabled_plugins,
        config_path=file,
    )


def _in(folder: Path, config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with a store of its own: the configured one is not touched.

    Accounts are those of the configured one, which are only read.
    """
    store = attrs.evolve(
        config.store,
        path=str(folder),
        commit_log_paths=(),
        read_only_commit_log_paths=(),
        commit_log_file_bytes=min(config.store.commit_log_file_bytes, _SCRATCH_FILE_BYTES),
    )
    acl = attrs.evolve(config.acl, file=str(config.account_file)) if config.acl.enable else config.acl
    return attrs.evolve(config, store=store, acl=acl)
