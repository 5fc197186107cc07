"""The extras of pyproject.toml: what an installation with some of them has, and processes that see no more than that."""

from __future__ import annotations

import os
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[2]
FOR_WORK: Final = frozenset({"browser", "dev", "examples", "site", "test"})
"""The extras for those who work on FlintMQ; every other one adds something to a broker, a command or a user's program."""

_HIDING: Final = '''\
"""Have Python find none of these modules, as where the distributions that hold them are not installed."""
import sys

HIDDEN = {hidden!r}


class Hiding:
    """Finds what the finder of folders finds, but for the hidden modules and what is in them."""

    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if any(".".join(parts[:end]) in HIDDEN for end in range(1, len(parts) + 1)):
            return None
        return self._finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self._finder, name)


sys.meta_path[:] = [Hiding(one) if getattr(one, "__name__", "") == "PathFinder" else one for one in sys.meta_path]
'''


@cache
def extras() -> dict[str, tuple[Requirement, ...]]:
    """Return what each extra requires; under the empty name what every installation has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = {"": project["dependencies"], **project["optional-dependencies"]}
    return {name: tuple(map(Requirement, lines)) for name, lines in listed.items()}


def of_users() -> tuple[str, ...]:
    """Return the extras that users install, in the order of pyproject.toml."""
    return tuple(name for name in extras() if name and name not in FOR_WORK)


def distributions(chosen: Iterable[str]) -> frozenset[str]:
    """Return the distributions that an installation with some extras has, as far as they are installed here."""
    found: set[str] = set()
    waiting = [requirement for name in ("", *chosen) for requirement in extras()[name]]
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        name = canonicalize_name(requirement.name)
        if name == "flintmq":
            waiting += [inner for extra in requirement.extras for inner in extras()[extra]]
            continue
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        for line in lines:
            inner = Requirement(line)
            if inner.marker is None or any(
                inner.marker.evaluate({"extra": extra}) for extra in (*requirement.extras, "")
            ):
                waiting.append(inner)
    return frozenset(found)


def hidden_modules(chosen: Iterable[str]) -> frozenset[str]:
    """Return the modules that are installed here and are not where only some extras are.

    A package that several distributions share, as ``google``, is hidden in parts.
    """
    kept = distributions(chosen)
    missing = distributions(extras()) - kept
    owners: dict[str, set[str]] = defaultdict(set)
    for name in missing | kept:
        for module in _modules(name):
            owners[module].add(name)
    absent = {module for module, holders in owners.items() if holders <= missing}
    return frozenset(module for module in absent if module.rpartition(".")[0] not in absent)


@cache
def _modules(distribution: str) -> frozenset[str]:
    """Return the modules of a distribution, three levels deep."""
    found: set[str] = set()
    for file in metadata.files(distribution) or ():
        parts = file.parts
        is_module = file.suffix in (".py", ".so") and parts[0] not in ("..", "__pycache__")
        if is_module and not parts[0].endswith((".dist-info", ".data")):
            modules = [*parts[:-1], file.name.partition(".")[0]]
            ends = range(1, min(len(modules), 3) + 1)
            found |= {".".join(modules[:end]) for end in ends if modules[end - 1] != "__init__"}
    return frozenset(found)


def environment_of(chosen: Iterable[str], folder: Path) -> dict[str, str]:
    """Return the environment of processes that see an installation with some extras, and of what they start.

    Args:
        chosen: the extras that are installed.
        folder: takes the file by which Python hides the others' modules.
    """
    (folder / "sitecustomize.py").write_text(_HIDING.format(hidden=set(hidden_modules(chosen))))
    before = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *([before] if before else [])])}
