"""``flintmq plugin new`` writes the project of a new plugin."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from flintmq.programs.cli import options
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import print_done, print_line
from flintmq.programs.cli.parser import Command
from flintmq.programs.scaffold.scaffold import KINDS, PluginName, ScaffoldError, write_project


@click.command(cls=Command)
@click.argument("name", help="The name of the plugin's distribution, such as flintmq-large-messages.")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="The kind of plugin.")
@click.option(
    "--dir",
    "folder",
    type=options.PATH,
    metavar="DIR",
    help="The project's folder, which must be empty or new; by default NAME.",
)
@options.as_json
def new(name: str, kind: str, folder: Path | None, as_json: bool) -> None:
    folder = folder or Path(name)
    try:
        names = PluginName.of(name)
        files = write_project(names, kind, folder)
    except ScaffoldError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    except OSError as error:
        raise CommandError(f"{error.filename or folder}: {error.strerror or error}") from error
    place = shlex.quote(str(folder))
    text = f"{folder}: a plugin of the kind {kind}, in {len(files)} files"
    print_done(
        text, as_json, name=name, kind=kind, package=names.package, section=names.section, dir=str(folder), files=files
    )
    if not as_json:
        print_line(f"next: cd {place} && pip install -e '.[test]' && python -m pytest")
