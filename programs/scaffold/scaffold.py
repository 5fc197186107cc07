"""Writes the project of a new plugin, from one common template and one for each kind.

A template in ``templates/`` consists of parts. A part begins with a line ``==== NAME``. The name is the path of a file in the
project, or a word that the common template uses as ``$word``.
"""

from __future__ import annotations

import importlib.resources
import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

import attrs

from flintmq import __version__
from flintmq.config import BrokerConfig
from flintmq.core.errors import FlintError
from flintmq.core.kernel.kernel import Kernel
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.programs.broker.processors import ProcessorsPlugin

KINDS: Final = ("dispatcher", "flush", "index", "filter", "processor", "intake", "service", "authenticator")
"""The kinds of plugins that ``flintmq plugin new`` can create. Each kind has a template."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_.][A-Za-z0-9]+)*")
_NAME_MAX_CHARS: Final = 64
_OWN: Final = "flintmq"
_PART: Final = re.compile(r"^==== (.+)\n", re.MULTILINE)


class ScaffoldError(FlintError):
    """The project of a new plugin cannot be written with the given name or to the given folder. The text of the error names the
    necessary change."""


@attrs.frozen
class PluginName:
    """The names of a new plugin; made by :meth:`of`."""

    distribution: str
    """The plugin's name for installation, such as ``flintmq-large-messages``."""
    package: str
    """The plugin's name for imports, such as ``flintmq_large_messages``."""
    section: str
    """The plugin's name in the configuration and in ``flintmq plugins``, such as ``large_messages``."""

    @classmethod
    def of(cls, distribution: str) -> PluginName:
        """Return the names of a plugin from the name of its distribution.

        Raises:
            ScaffoldError: the name is not valid, or a package or a part of FlintMQ already has this name.
        """
        if len(distribution) > _NAME_MAX_CHARS or _NAME.fullmatch(distribution) is None:
            raise ScaffoldError(
                f"'{distribution[:_NAME_MAX_CHARS]}' cannot be the name of a plugin: write at most {_NAME_MAX_CHARS} "
                "letters and digits, a letter first, with single '-', '_' or '.' between them, such as flintmq-large-messages"
            )
        package = re.sub(r"[-_.]", "_", distribution).lower()
        if package == _OWN or keyword.iskeyword(package) or package in sys.stdlib_module_names:
            raise ScaffoldError(
                f"'{distribution}' cannot be the name of a plugin: the package '{package}' exists, or is a word of Python; "
                f"put another word before it, such as my-{distribution}"
            )
        short = package.removeprefix(f"{_OWN}_")
        section = short if short.isidentifier() else package
        if not _taken().isdisjoint((section, section.upper())):
            raise ScaffoldError(
                f"'{distribution}' cannot be the name of a plugin: FlintMQ itself has a plugin, or a section of the "
                f"configuration, that is named '{section}'; put another word before it, such as my-{distribution}"
            )
        return cls(distribution, package, section)


def project_files(name: PluginName, kind: str) -> dict[str, str]:
    """Return the texts of a new project's files, keyed by path relative to the project.

    Args:
        name: the plugin's names.
        kind: one of :data:`KINDS`.
    """
    words = {
        "name": name.distribution,
        "package": name.package,
        "section": name.section,
        "type": name.section.upper(),
        "kind": kind,
        "version": __version__,
    }
    own = _parts(kind, words)
    about = {word: own.pop(word).strip() for word in ("about", "configure", "works")}
    files = _parts("project", words | about) | own
    return dict(sorted(files.items()))


def write_project(name: PluginName, kind: str, folder: Path) -> list[str]:
    """Write a new project, and return the paths of its files relative to the project.

    Args:
        name: the plugin's names.
        kind: one of :data:`KINDS`.
        folder: the project's folder; created if it does not exist. A folder with only ``.git`` counts as empty.

    Raises:
        ScaffoldError: the folder is a file, or is not empty; nothing was written.
        OSError: a file cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(found.name != ".git" for found in folder.iterdir())):
        raise ScaffoldError(f"{folder} exists and is not an empty folder: name another one with --dir, or empty it")
    files = project_files(name, kind)
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return list(files)


def _parts(template: str, words: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of a project template, keyed by the parts' names, with the ``$word`` placeholders replaced."""
    text = importlib.resources.files(__package__).joinpath("templates", f"{template}.txt").read_text(encoding="utf-8")
    _nothing, *parts = _PART.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {Template(name).substitute(words): Template(part).substitute(words) for name, part in pairs}


def _taken() -> frozenset[str]:
    """Return the names of FlintMQ's own sections, plugins and registered objects."""
    built_in = Kernel.assemble((), (*BUILTIN_PLUGINS, ProcessorsPlugin()), use_entry_points=False).describe()
    registered = (what.rpartition(" ")[2] for info in built_in for what in info.registered)
    sections = (field.name for field in attrs.fields(BrokerConfig))
    return frozenset((*sections, *(info.name for info in built_in), *registered))
