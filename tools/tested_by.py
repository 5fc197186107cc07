"""Finds the test of each module. The test of ``FOLDER/MODULE.py`` is ``tests/FOLDER/test_MODULE.py``. If this file does not
exist, ``tests/tested_by.toml`` names the module's test."""

from __future__ import annotations

import functools
import re
import tomllib
from collections import defaultdict
from pathlib import PurePosixPath
from typing import Final

from sources import ROOT, Sources

TABLE: Final = ROOT / "tests" / "tested_by.toml"
_DOTTED: Final = re.compile(r"flintmq(?:\.\w+)+")


def untested_modules(sources: Sources) -> set[str]:
    """Return the modules without a test. A module has a test if the file ``tests/FOLDER/test_MODULE.py`` exists, or if
    ``tests/tested_by.toml`` names a test that uses the module."""
    table = read_table()
    return {path for path in without_mirror(sources) if not is_tested(sources, path, table.get(path))}


def read_table() -> dict[str, str]:
    """Return the contents of ``tests/tested_by.toml``: the path of a module's test, keyed by the module's path. The file lists
    only modules whose test is not at the path ``tests/FOLDER/test_MODULE.py``."""
    found = tomllib.loads(TABLE.read_text("utf-8"))
    return {f"{folder}/{name}.py": test for folder, names in found.items() for name, test in names.items()}


def write_table(sources: Sources) -> None:
    """Update ``tests/tested_by.toml``. Correct entries stay. Missing and wrong entries get the test that :func:`find_test`
    chooses for the module."""
    table = read_table()
    folders: dict[str, dict[str, str]] = defaultdict(dict)
    for path in without_mirror(sources):
        kept = table.get(path)
        test = kept if is_tested(sources, path, kept) else find_test(sources, path)
        if test is not None:
            folders[str(PurePosixPath(path).parent)][PurePosixPath(path).stem] = test
    lines = ["# The test of each module that has none at the mirrored path. Updated by tools/tidy.py --shrink."]
    for folder, names in sorted(folders.items()):
        lines += ["", f'["{folder}"]', *(f'{name} = "{test}"' for name, test in sorted(names.items()))]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def mirror(path: str) -> str:
    """Return the mirrored path of a module's test: ``tests/FOLDER/test_MODULE.py`` for ``FOLDER/MODULE.py``."""
    return f"tests/{PurePosixPath(path).parent}/test_{PurePosixPath(path).stem}.py"


def without_mirror(sources: Sources) -> list[str]:
    """Return the modules without a file ``tests/FOLDER/test_MODULE.py``. Files with the name ``__init__.py`` are left out."""
    return [path for path in sources.modules if not path.endswith("__init__.py") and mirror(path) not in sources.texts]


def is_tested(sources: Sources, path: str, test: str | None) -> bool:
    """Return whether a test uses a module, directly or through other modules. A test in the module's folder ``tests/FOLDER``
    also counts if its text contains the module's name, because tests of commands do not import the commands."""
    if test is None or test not in sources.texts:
        return False
    beside = PurePosixPath(test).parent == PurePosixPath(mirror(path)).parent
    return path in _reached(sources, test) or (beside and _names(sources, test, path))


def _names(sources: Sources, test: str, path: str) -> bool:
    return re.search(rf"\b{PurePosixPath(path).stem}\b", sources.texts[test]) is not None


@functools.cache
def _used(sources: Sources, test: str) -> frozenset[str]:
    """Return the modules that a test and the ``conftest.py`` files of its folders import. A test with ``import flintmq`` uses
    all modules that the package itself exports."""
    found = set(sources.imports(test))
    for folder in PurePosixPath(test).parents:
        if f"{folder}/conftest.py" in sources.texts:
            found |= sources.imports(f"{folder}/conftest.py")
    if re.search(r"^import flintmq$", sources.texts[test], re.MULTILINE):
        found |= _named(sources, "__init__.py")
    return frozenset(found)


@functools.cache
def _reached(sources: Sources, test: str) -> frozenset[str]:
    """Return the modules that a test uses, directly or through other modules. A module that is named in a string counts as
    imported."""
    found = set(_used(sources, test))
    left = list(found)
    while left:
        path = left.pop()
        new = (sources.graph[path] | _named(sources, path)) - found
        found |= new
        left += new
    return frozenset(found)


@functools.cache
def _named(sources: Sources, path: str) -> frozenset[str]:
    """Return the paths of the modules whose dotted names occur in the text of a file."""
    return frozenset(sources.names[name] for name in _DOTTED.findall(sources.texts[path]) if name in sources.names)


def find_test(sources: Sources, path: str) -> str | None:
    """Return the test of a module that is nearest to the module by its folder, then by its imports, then by its name. The
    result is None if no test uses the module."""
    importers = {other for other in sources.modules if path in sources.graph[other]}
    words = set(PurePosixPath(path).stem.split("_"))

    def rank(test: str) -> tuple[int, int, int, str]:
        used = _used(sources, test)
        steps = 0 if path in sources.imports(test) else 1 if path in used else 2 if importers & used else 3
        return _distance(test, path), steps, -len(words & set(PurePosixPath(test).stem.split("_"))), test

    tests = [
        name for name in sources.texts if name.startswith("tests/") and PurePosixPath(name).name.startswith("test_")
    ]
    return min((test for test in tests if is_tested(sources, path, test)), key=rank, default=None)


def _distance(test: str, path: str) -> int:
    """Return the number of folders between a test and the path ``tests/FOLDER/test_MODULE.py`` of a module's test."""
    folders, own = test.split("/")[1:-1], path.split("/")[:-1]
    common = 0
    while common < min(len(folders), len(own)) and folders[common] == own[common]:
        common += 1
    return len(folders) + len(own) - 2 * common
