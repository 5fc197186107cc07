"""``flintmq config show`` prints a configuration; ``flintmq config import`` translates a configuration of RocketMQ."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import click

from flintmq.config import LoadedConfig, load_config, rows, to_yaml
from flintmq.config.loading.schema import Role
from flintmq.config.loading.show import secret_names
from flintmq.config.rocketmq.importing import import_broker_conf
from flintmq.config.rocketmq.properties import decode_properties
from flintmq.programs.cli import options
from flintmq.programs.cli.exits import CommandError, ExitCode, warn
from flintmq.programs.cli.output import print_json, print_line, print_rows, print_text
from flintmq.programs.cli.parser import Command


@click.command(cls=Command)
@options.config_file
@options.settings
@click.option("--changed", is_flag=True, help="Show only settings that differ from their default.")
@click.option(
    "--yaml",
    "as_yaml",
    is_flag=True,
    help="Print YAML of the same configuration, without secrets; a warning names them.",
)
@options.role
@options.as_json
def show(
    config: Path | None, settings: tuple[str, ...], changed: bool, as_yaml: bool, role: Role, as_json: bool
) -> None:
    loaded = load_config(config, settings, role=role)
    warn_ignored(loaded)
    if as_yaml:
        print_text(to_yaml(loaded.config, only_changed=changed, sections=loaded.sections))
        if secrets := secret_names(loaded.config, loaded.sections):
            warn(f"left out, because they are secret: {', '.join(secrets)}; add them where the YAML is to be used")
        return
    found = [attrs.asdict(row) for row in rows(loaded) if not changed or row.origin != "default"]
    if as_json:
        print_json(found)
    else:
        print_rows(found, {"key": "key", "value": "value", "from": "origin", "RocketMQ": "rocketmq"})


@click.command("import", cls=Command)
@click.argument("file", type=options.PATH, help="RocketMQ's broker.conf or namesrv.conf.")
@click.option(
    "--output", "-o", type=options.PATH, metavar="FILE", help="Write the YAML to this file; by default to stdout."
)
@options.role
def import_(file: Path, output: Path | None, role: Role) -> None:
    try:
        text = decode_properties(file.read_bytes())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}", ExitCode.USAGE) from error
    imported = import_broker_conf(text, role=role, file=str(file))
    for name, value, why in imported.dropped:
        print_line(f"dropped {name}={value}: {why}", file=sys.stderr)
    if output is None:
        print_text(imported.yaml)
        return
    try:
        output.write_text(imported.yaml, "utf-8")
    except OSError as error:
        raise CommandError(f"{output}: {error.strerror or error}") from error
    print_line(f"{output}: {len(imported.kept)} settings, {len(imported.dropped)} dropped", file=sys.stderr)


def warn_ignored(loaded: LoadedConfig) -> None:
    """Warn about each line of a RocketMQ file that has no effect."""
    for entry in loaded.ignored:
        warn(str(entry))
