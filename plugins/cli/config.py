"""``flintmq config``: show, check and import configurations."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import typer

from flintmq.plugins.cli import options
from flintmq.plugins.cli.exits import CommandError, ExitCode, warn

if TYPE_CHECKING:
    from flintmq.config import LoadedConfig

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show, check and import configurations.")


class RoleName(enum.StrEnum):
    """Whose meaning an ambiguous RocketMQ name has."""

    BROKER = "broker"
    NAMESRV = "namesrv"


Role = Annotated[RoleName, typer.Option("--role", help="Whose listenPort and the like are meant.")]


@app.command()
def show(
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not at its default.")] = False,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print YAML that loads as the same configuration.")] = False,
    role: Role = RoleName.BROKER,
    as_json: options.AsJson = False,
) -> None:
    """Show every setting with where its value comes from, and RocketMQ's name for it."""
    from flintmq.config import load_config, rows, to_yaml
    from flintmq.plugins.cli.output import print_json, print_table

    loaded = load_config(config, settings or (), role=role.value)
    _warn_ignored(loaded)
    if as_yaml:
        print(to_yaml(loaded.config, only_changed=changed), end="")
        return
    found = [row for row in rows(loaded) if not changed or row.origin != "default"]
    if as_json:
        print_json([attrs.asdict(row) for row in found])
        return
    print_table(("key", "value", "from", "RocketMQ"), ((row.key, row.value, row.origin, row.rocketmq) for row in found))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="RocketMQ's broker.conf or namesrv.conf.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the YAML here; else to stdout.")
    ] = None,
    role: Role = RoleName.BROKER,
) -> None:
    """Translate RocketMQ's broker.conf to YAML; what cannot be taken over is listed on stderr with the reason."""
    from flintmq.config.rocketmq.properties import decode_properties, import_broker_conf

    try:
        text = decode_properties(file.read_bytes())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}", ExitCode.USAGE) from error
    imported = import_broker_conf(text, role=role.value, file=str(file))
    for name, value, why in imported.dropped:
        print(f"dropped {name}={value}: {why}", file=sys.stderr)
    if output is None:
        print(imported.yaml, end="")
        return
    try:
        output.write_text(imported.yaml, "utf-8")
    except OSError as error:
        raise CommandError(f"{output}: {error.strerror or error}") from error
    print(f"{output}: {len(imported.kept)} settings, {len(imported.dropped)} dropped", file=sys.stderr)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A configuration: YAML, or RocketMQ's broker.conf.")],
    settings: options.Settings = None,
    role: Role = RoleName.BROKER,
    as_json: options.AsJson = False,
) -> None:
    """Check a configuration, its plugins included, without starting anything. Exit code 2 says what is wrong and where."""
    from flintmq.config import load_config
    from flintmq.plugins.cli.output import print_json

    loaded = load_config(file, settings or (), role=role.value)
    plugins = _check_plugins(loaded, file)
    changed = sum(origin.kind != "default" for origin in loaded.origins.values())
    _warn_ignored(loaded)
    if as_json:
        ignored = [{"name": entry.name, "line": entry.origin.line, "why": entry.why} for entry in loaded.ignored]
        print_json({"file": str(file), "ok": True, "settings": changed, "plugins": plugins, "ignored": ignored})
    else:
        print(f"{file}: ok, {changed} settings, {plugins} plugins")


def _warn_ignored(loaded: LoadedConfig) -> None:
    for entry in loaded.ignored:
        warn(str(entry))


def _check_plugins(loaded: LoadedConfig, file: Path) -> int:
    """Everything the configuration names must be there, plugins' sections must fit their models, and what plugins make must
    be what a start can use."""
    from flintmq.plugins.broker.plugin_settings import PluginSettings
    from flintmq.plugins.cli.plugins import assembled
    from flintmq.plugins.config_check import check_command, check_what_is_made

    kernel = assembled(loaded, file)
    chosen = loaded.config
    kernel.check_dispatchers(chosen.dispatchers)
    kernel.pool(chosen.flush.pool)
    kernel.index_builder(chosen.index.builder)
    PluginSettings(kernel, loaded).check()
    for command in kernel.cli_commands():
        check_command(command)
    check_what_is_made(loaded)
    return sum(info.enabled for info in kernel.describe())
