"""``flintmq config schema`` prints a schema for editors; ``flintmq config init`` writes a starting configuration."""

from __future__ import annotations

import json
import os
import sys
import urllib.parse
from pathlib import Path

import click

from flintmq.config import load_config
from flintmq.config.loading.json_schema import json_schema
from flintmq.config.loading.schema import Role
from flintmq.config.purposes import PURPOSES, starting_yaml
from flintmq.programs.broker.loading import PluginSettings
from flintmq.programs.cli import options
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import print_line, print_text
from flintmq.programs.cli.parser import Command
from flintmq.programs.cli.plugins import assembled


@click.command(cls=Command)
@options.config_file
@options.role
def schema(config: Path | None, role: Role) -> None:
    print_text(_schema_text(config, role))


@click.command(cls=Command)
@click.option("--for", "purpose", type=click.Choice(list(PURPOSES)), required=True, help="The broker's purpose.")
@click.option(
    "--output",
    "-o",
    type=options.PATH,
    metavar="FILE",
    help="Write the YAML to this file; by default to stdout. An existing file is not changed.",
)
@click.option(
    "--schema",
    "schema_file",
    type=options.PATH,
    metavar="FILE",
    help="Also write the JSON Schema to this file, even if the YAML exists. A new YAML names it in its first line, for "
    "editors.",
)
def init(purpose: str, output: Path | None, schema_file: Path | None) -> None:
    if output is None:
        if schema_file is not None:
            raise CommandError(
                "--schema needs --output: the YAML refers to the schema relative to its own path", ExitCode.USAGE
            )
        print_text(starting_yaml(purpose))
        return
    private = PURPOSES[purpose].has_secret
    if schema_file is None:
        _write_new(output, starting_yaml(purpose), private=private)
    else:
        is_there = output.exists()
        # The schema is made before any file is written, because making the schema can fail.
        text = _schema_text(output if is_there else None, "broker")
        if not is_there:
            _write_new(output, starting_yaml(purpose, _seen_from(output, schema_file)), private=private)
        _write_schema(schema_file, text)
        if is_there:
            raise CommandError(f"{output} exists and was not changed; the schema {schema_file} was written for it")
    print_line(f"{output}: start it with flintmq run -c {output}", file=sys.stderr)


def _schema_text(config: Path | None, role: Role) -> str:
    """Return the schema with the sections of installed plugins and of the plugins in a configuration.

    Raises:
        ConfigError, PluginError: the configuration or one of its plugins is not valid.
    """
    loaded = load_config(config, role=role)
    models = PluginSettings(assembled(loaded, config), loaded).models
    return json.dumps(json_schema(models, role), indent=2, ensure_ascii=False) + "\n"


def _seen_from(output: Path, schema_file: Path) -> str:
    """Return the schema's path relative to the folder of the YAML file, encoded as a URL. A path with a blank must be encoded,
    because editors read the URL only up to the first blank."""
    place = Path(os.path.relpath(schema_file, output.parent)).as_posix()
    return urllib.parse.quote(place if place.startswith("../") else f"./{place}")


def _write_new(file: Path, text: str, *, private: bool) -> None:
    """Write a new file. If ``private`` is set, only the file's owner can read it. Raises CommandError if the file exists."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    except FileExistsError as error:
        raise CommandError(f"{file} exists and was not changed: choose another --output, or remove it") from error
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def _write_schema(file: Path, text: str) -> None:
    """Write a schema, replacing an older schema but no other file. Raises CommandError."""
    try:
        if file.exists() and not _is_schema(file.read_bytes()):
            raise CommandError(f"{file} exists and is not a JSON Schema: choose another --schema, or remove it")
        file.write_text(text, "utf-8")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error


def _is_schema(content: bytes) -> bool:
    try:
        found = json.loads(content or b'{"$schema": ""}')
    except ValueError:
        return False
    return isinstance(found, dict) and "$schema" in found
