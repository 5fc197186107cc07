"""``flintmq plugins`` lists the plugins of a configuration; ``flintmq config check`` checks whether a start could use it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import click
import msgspec

from flintmq.config import BrokerConfig, LoadedConfig, load_config
from flintmq.config.loading.schema import Role
from flintmq.core.broker.address import host_port
from flintmq.core.kernel.failures import Row
from flintmq.core.kernel.kernel import Kernel
from flintmq.plugins.builtin import BROKER_ONLY, BUILTIN_PLUGINS, name_server_plugins
from flintmq.programs.broker.broker import Broker
from flintmq.programs.broker.loading import new_failures
from flintmq.programs.broker.plugin_figures import rows_of
from flintmq.programs.broker.processors import ProcessorsPlugin
from flintmq.programs.cli import options
from flintmq.programs.cli.config import warn_ignored
from flintmq.programs.cli.connect import checked_name_servers, with_admin
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import print_done, print_json, print_line, print_rows
from flintmq.programs.cli.parser import Command
from flintmq.programs.cli.plugin_command import made_command
from flintmq.programs.cli.serving import with_environment, with_name_server
from flintmq.programs.name_server.name_server import NameServer

_SCRATCH_FILE_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of a commit log file in the temporary store of ``flintmq plugins --trace``, and of each buffer in its transient
store pool."""


@click.command(cls=Command)
@options.config_file
@options.settings
@click.option("--trace", is_flag=True, help="Show each call of a plugin, and what it made or raised.")
@click.option(
    "--broker", "-b", metavar="HOST:PORT", help="With --trace: ask this running broker; by default a start is tried."
)
@options.access
@options.as_json
def plugins(config: Path | None, settings: tuple[str, ...], trace: bool, broker: str | None, as_json: bool) -> None:
    """List the plugins that a broker with this configuration would load.

    With --trace, the command tries a start with a store in a temporary folder. It creates the same objects as a broker, but no
    port is opened. For a running broker (-b), it shows all calls and failures of plugins since the broker's start. It also
    shows the objects of plugins that the broker has switched off after failures.
    """
    if broker is not None and not trace:
        raise CommandError("-b is only for --trace, which asks a running broker: add --trace", ExitCode.USAGE)
    if trace:
        _trace(load_config(config, settings), broker, as_json)
        return
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
        hooks = [hook.removeprefix("flintmq_") for hook in row["hooks"]]
        row["hooks"] = hooks if row["enabled"] else "switched off"
        row["place"] = row["place"] or row["source"]
    print_rows(found, {"plugin": "name", "from": "place", "hooks": "hooks", "registered": "registered"})


def _trace(loaded: LoadedConfig, broker: str | None, as_json: bool) -> None:
    """Print the calls and failures of plugins in a running broker, or in a trial start."""
    if broker is not None:
        checked_name_servers(broker)
        _show_trace(rows_of(with_admin(lambda admin: admin.runtime_info(broker))), as_json)
        return
    failures = new_failures(loaded)
    try:
        with _scratch(loaded) as scratch:
            asyncio.run(Broker(scratch).check(failures))
    finally:
        # The trace of plugin calls is also shown after an error, because the calls before the error show the cause.
        _show_trace([part.row() for part in failures.all()], as_json)


def _show_trace(rows: list[Row], as_json: bool) -> None:
    found = [msgspec.to_builtins(row) for row in rows]
    if as_json:
        print_json(found)
        return
    shown = [row for row in found if (row["calls"] and not row["built_in"]) or row["errors"]]
    for row in shown:
        row["outcome"] = (row["switched_off"] and f"switched off: it {row['switched_off']}") or row["outcome"]
    columns = {
        "plugin": "plugin",
        "hook": "hook",
        "what": "what",
        "calls#": "{calls:,}",
        "errors#": "errors",
        "": "outcome",
    }
    print_rows(shown, columns)
    own = [row for row in found if row["built_in"]]
    if own:
        print_line(f"built-in plugins: {sum(row['calls'] for row in own)} calls")


@click.command(cls=Command)
@click.argument("file", type=options.PATH, help="The configuration: YAML, or RocketMQ's broker.conf.")
@options.settings
@click.option(
    "--for",
    "command",
    type=click.Choice(["run", "broker", "namesrv"]),
    help="The command to check it for: broker or namesrv alone, or run, which is both in one process. "
    "By default run, or namesrv with --role namesrv.",
)
@options.role
@options.as_json
def check(file: Path, settings: tuple[str, ...], command: str | None, role: Role, as_json: bool) -> None:
    command = command or ("namesrv" if role == "namesrv" else "run")
    loaded = load_config(file, settings, role="namesrv" if command == "namesrv" else role)
    plugins = _check_plugins(loaded, file, command)
    changed = sum(origin.kind != "default" for origin in loaded.origins.values())
    warn_ignored(loaded)
    text = f"{file}: ok, {changed} settings, {plugins} plugins"
    ignored = [{"name": entry.name, "line": entry.origin.line, "why": entry.why} for entry in loaded.ignored]
    print_done(text, as_json, file=str(file), ok=True, settings=changed, plugins=plugins, ignored=ignored)


def _check_plugins(loaded: LoadedConfig, file: Path, command: str) -> int:
    """Check the plugins of a configuration, and return the number of plugins that a start would load.

    Raises:
        ConfigError, PluginError, StoreError: the configuration contains an unknown name, a section does not match its model, or
            a plugin's object is not usable.
    """
    kernel = assembled(loaded, file, name_server_plugins() if command == "namesrv" else BROKER_PLUGINS)
    for one in kernel.registries.cli_commands.all():
        made_command(one)
    asyncio.run(check_start(loaded, command))
    return sum(info.enabled for info in kernel.describe())


async def check_start(loaded: LoadedConfig, command: str) -> None:
    """Create and release all objects that a server command creates before the server is ready, with a store in a temporary
    folder.

    Raises:
        ConfigError, PluginError, StoreError: the command's own start would raise the same error.
    """
    if command != "broker":
        await NameServer(loaded).check()
    if command == "run":
        section = loaded.config.nameserver
        loaded = with_name_server(loaded, host_port(section.host, section.port))
    elif command == "broker":
        loaded = with_environment(loaded)
    if command != "namesrv":
        with _scratch(loaded) as scratch:
            await Broker(scratch).check()


BROKER_PLUGINS: Final = (*BUILTIN_PLUGINS, ProcessorsPlugin())


def assembled(loaded: LoadedConfig, file: Path | None, builtins: Iterable[object] = BROKER_PLUGINS) -> Kernel:
    """Return the registry of the plugins that a server loads with this configuration. The server is a broker by default. Raises
    ConfigError, PluginError."""
    return Kernel.assemble(
        loaded.config.plugins,
        builtins,
        disabled=loaded.config.disabled_plugins,
        disabled_at=loaded.written("disabled_plugins"),
        elsewhere=BROKER_ONLY,
        config_path=file,
    )


@contextmanager
def _scratch(loaded: LoadedConfig) -> Iterator[LoadedConfig]:
    """Yield the configuration with its store in a temporary folder. The folder is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="flintmq-check-") as folder:
        yield attrs.evolve(loaded, config=_in(Path(folder), loaded.config))


def _in(folder: Path, config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with its store in another folder, so that the configured store is not changed.

    The accounts stay in the configured store; they are only read.
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
