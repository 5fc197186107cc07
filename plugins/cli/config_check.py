"""``flintmq config check``: a configuration is tried without starting anything."""

from __future__ import annotations

from pathlib import Path

import click

from flintmq.config import LoadedConfig, load_config
from flintmq.plugins.broker.plugin_settings import PluginSettings
from flintmq.plugins.cli import options
from flintmq.plugins.cli.config import warn_ignored
from flintmq.plugins.cli.output import print_json
from flintmq.plugins.cli.parser import Command
from flintmq.plugins.cli.plugin_command import made_command
from flintmq.plugins.cli.plugins import assembled
from flintmq.plugins.config_check import check_what_is_made


@click.command(cls=Command)
@click.argument("file", type=options.PATH, help="A configuration: YAML, or RocketMQ's broker.conf.")
@options.settings
@options.role
@options.as_json
def check(file: Path, settings: tuple[str, ...], role: options.RoleName, as_json: bool) -> None:
    """Check a configuration, its plugins included, without starting anything. Exit code 2 says what is wrong and where."""
    loaded = load_config(file, settings, role=role.value)
    plugins = _check_plugins(loaded, file)
    changed = sum(origin.kind != "default" for origin in loaded.origins.values())
    warn_ignored(loaded)
    if as_json:
        ignored = [{"name": entry.name, "line": entry.origin.line, "why": entry.why} for entry in loaded.ignored]
        print_json({"file": str(file), "ok": True, "settings": changed, "plugins": plugins, "ignored": ignored})
    else:
        print(f"{file}: ok, {changed} settings, {plugins} plugins")


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
    check_what_is_made(loaded)
    return sum(info.enabled for info in kernel.describe())
