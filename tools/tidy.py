#!/usr/bin/env python3
"""Check the package's source against its rules of form, and print the violations. ``--shrink`` updates the lists.

``tests/not_yet_tidy.toml`` lists the violations that are allowed for now. ``--shrink`` removes the entries that no longer
violate their rule, and never adds an entry. ``tests/tested_by.toml`` names the test of each module whose test is not
``tests/FOLDER/test_MODULE.py``. ``--shrink`` replaces missing or stale entries. ``tests/test_tidy.py`` checks the same rules.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib.util
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

import tested_by
from machine import machine_reads
from size import CLASS_METHODS_MAX, FILE_LINES_MAX, FUNCTION_LINES_MAX
from sources import ROOT, Function, Sources, definitions, length, methods, module_name, statements

EXCEPTIONS: Final = ROOT / "tests" / "not_yet_tidy.toml"
PHRASES: Final = re.compile(
    r"(?<!there )\bis no (?!\w+er\b|more\b|less\b|such\b)\w+|\banew\b|\bstrangers?'|\bof our own\b|\bone behind the other\b"
    r"|\bwhoever\b|\bhalf the price\b",
    re.IGNORECASE,
)
"""Pattern of phrases that must not be used, because they are riddles or metaphors."""
LEANING: Final = re.compile(r"(As|Of|The same|Likewise|Those|That|It|They)\b")
"""Pattern of beginnings of docstrings that cannot be understood without the text before them."""
NO_VERB: Final = re.compile(
    r"(The|An?|Whether|What|How|Where|Which|Why|All|Every|Everything|One|Each|These|This|True|False|Nothing|Something)\b"
)
"""Pattern that matches the first word of a docstring if this word is not a verb. The docstring of a function must begin with a
verb for the function's action."""
_REFERENCE: Final = re.compile(r":(?:mod|class|func|meth|attr|data|exc|obj):`(?:[^`<]*<)?[~!]?([\w.]+)>?`")
_MAY_READ_ROLE: Final = re.compile(r"config/|programs/(broker/(assembly|broker|loading)|supervisor/plan)\.py$")
"""Modules that may read the broker's role from the configuration: the configuration's own checks, the assembly of a broker, and
the supervisor's plan."""
_FOLDERS: Final = "docs|tests|tools|examples|client|config|core|dispatchers|flush|remoting|plugins|programs|testing"
_PAGE: Final = re.compile(rf"(?<![\w/.])(?:{_FOLDERS})/[\w/.-]+\.(?:md|py|sh|toml)\b")


def long_files(sources: Sources) -> set[str]:
    """Return the paths of the Python files that have more lines than a file may have."""
    return {path for path in sources.modules if sources.lines(path) > FILE_LINES_MAX}


def long_functions(sources: Sources) -> set[str]:
    """Return the functions that have more lines than a function may have, as ``path:name``."""
    return {
        f"{path}:{name}"
        for path in sources.modules
        for name, node in definitions(sources.tree(path))
        if isinstance(node, Function) and length(node) > FUNCTION_LINES_MAX
    }


def large_classes(sources: Sources) -> set[str]:
    """Return the classes that have more methods than a class may have, as ``path:name``."""
    return {
        f"{path}:{name}"
        for path in sources.modules
        for name, node in definitions(sources.tree(path))
        if isinstance(node, ast.ClassDef) and methods(node) > CLASS_METHODS_MAX
    }


def import_cycles(sources: Sources) -> set[str]:
    """Return the modules that import one another in a circle; imports within functions count."""
    return {path for group in sources.cycles() for path in group}


def banned_phrases(sources: Sources) -> set[str]:
    """Return the paths of the files that contain a phrase of :data:`PHRASES`."""
    return {path for path in sources.modules if PHRASES.search(sources.texts[path])}


def leaning_docstrings(sources: Sources) -> set[str]:
    """Return the functions, classes and modules whose docstring begins with a pronoun or another word of :data:`LEANING`, as
    ``path:name``."""
    found = set()
    for path in sources.modules:
        for name, node in [("", sources.tree(path)), *definitions(sources.tree(path))]:
            if LEANING.match(ast.get_docstring(node) or ""):
                found.add(f"{path}:{name}" if name else path)
    return found


def verbless_docstrings(sources: Sources) -> set[str]:
    """Return functions whose docstring does not begin with a verb, as ``path:name``; the docstring of a property may begin with
    a noun."""
    return {
        f"{path}:{name}"
        for path in sources.modules
        for name, node in definitions(sources.tree(path))
        if isinstance(node, Function)
        and NO_VERB.match(ast.get_docstring(node) or "")
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def dangling_references(sources: Sources) -> set[str]:
    """Return the cross-references in docstrings that lead to no definition, as ``path:target``."""
    symbols = Symbols(sources)
    return {
        f"{path}:{target}"
        for path in sources.modules
        for scope, text in _texts(sources.tree(path))
        for target in _REFERENCE.findall(text)
        if not symbols.resolves(target, path, scope)
    }


def missing_pages(sources: Sources) -> set[str]:
    """Return the missing pages and files that comments or strings of the source name, as ``path:page``."""
    found = set()
    for path in sources.modules:
        if all((ROOT / page).exists() for page in _PAGE.findall(sources.texts[path])):
            # Splitting a file into comments, strings and code is slow, so a file is skipped if all pages that it names exist.
            continue
        for token in tokenize.generate_tokens(StringIO(sources.texts[path]).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                found |= {f"{path}:{page}" for page in _PAGE.findall(token.string) if not (ROOT / page).exists()}
    return found


def roles_from_configuration(sources: Sources) -> set[str]:
    """Return the modules that read a broker's role from the configuration although they may not. The role can change while the
    broker runs."""
    return {path for path in sources.modules if not _MAY_READ_ROLE.match(path) and any(_reads_role(sources.tree(path)))}


def _reads_role(tree: ast.AST) -> Iterator[bool]:
    sections = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target, value in _pairs(node)
        if isinstance(target, ast.Name) and ast.unparse(value).endswith(("config.broker", "settings.broker"))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            of_section = owner in sections or owner.endswith(".broker")
            yield node.attr in ("is_slave", "replicates") or (of_section and node.attr in ("role", "id"))


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value; an assignment of a tuple has several targets."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


RULES: Final[Mapping[str, Callable[[Sources], set[str]]]] = {
    "long_files": long_files,
    "long_functions": long_functions,
    "large_classes": large_classes,
    "import_cycles": import_cycles,
    "banned_phrases": banned_phrases,
    "leaning_docstrings": leaning_docstrings,
    "verbless_docstrings": verbless_docstrings,
    "dangling_references": dangling_references,
    "missing_pages": missing_pages,
    "roles_from_configuration": roles_from_configuration,
    "machine_reads": machine_reads,
    "untested_modules": tested_by.untested_modules,
}
"""Functions that each check one rule, keyed by the name of the list of exceptions from the rule."""


class Symbols:
    """The names in all modules and classes of the package: the names that they define, import or inherit."""

    def __init__(self, sources: Sources) -> None:
        self._members: dict[str, set[str]] = defaultdict(set)
        self._bases: dict[str, list[str]] = {}
        self._imported: dict[str, dict[str, str]] = {}
        for path in sources.modules:
            name, tree = module_name(path), sources.tree(path)
            self._members[name] |= set(_bound(tree.body))
            self._imported[name] = dict(_aliases(tree, name, path.endswith("__init__.py")))
            package, _, last = name.rpartition(".")
            self._members[package].add(last)
            for inner, node in definitions(tree):
                if isinstance(node, ast.ClassDef):
                    self._add_class(f"{name}.{inner}", node)

    def _add_class(self, name: str, node: ast.ClassDef) -> None:
        self._members[name] |= set(_bound(node.body))
        self._bases[name] = [ast.unparse(base).partition("[")[0] for base in node.bases]
        for part in ast.walk(node):
            if (
                isinstance(part, ast.Attribute)
                and isinstance(part.ctx, ast.Store)
                and ast.unparse(part.value) == "self"
            ):
                self._members[name].add(part.attr)

    def resolves(self, target: str, path: str, scope: str) -> bool:
        """Return whether a cross-reference in a file leads to a definition.

        Args:
            target: the reference as it is written, without its role.
            path: the file.
            scope: the name of the class or function whose docstring contains the reference; empty for the module's docstring.
        """
        module = module_name(path)
        if target.startswith("flintmq.") or target == "flintmq":
            return self._exists(target)
        if target.startswith("."):
            package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
            return self._exists(package + target) or self._exists(module + target)
        parts = scope.split(".") if scope else []
        around = [".".join([module, *parts[:count]]) for count in range(len(parts), -1, -1)]
        return any(self._exists(f"{outer}.{target}") for outer in around) or _is_foreign(target)

    def _exists(self, dotted: str) -> bool:
        known = dotted
        rest: list[str] = []
        while known not in self._members:
            known, _, last = known.rpartition(".")
            if not known:
                return False
            rest.insert(0, last)
        return self._has(known, rest, frozenset())

    def _has(self, owner: str, rest: list[str], seen: frozenset[str]) -> bool:
        if not rest:
            return True
        name = f"{owner}.{rest[0]}"
        if rest[0] in self._members[owner]:
            return len(rest) == 1 or name not in self._members or self._has(name, rest[1:], seen)
        imported = self._imported.get(owner, {}).get(rest[0])
        if imported is not None:
            return not imported.startswith("flintmq") or self._exists(".".join([imported, *rest[1:]]))
        return any(self._inherits(owner, base, rest, seen) for base in self._bases.get(owner, ()) if owner not in seen)

    def _inherits(self, owner: str, base: str, rest: list[str], seen: frozenset[str]) -> bool:
        module = owner
        while module not in self._imported:
            module = module.rpartition(".")[0]
        origin = self._imported[module].get(base.partition(".")[0], f"{module}.{base}")
        if not origin.startswith("flintmq"):
            # The members of a class from another package are not known, so every name counts as defined.
            return True
        return origin in self._members and self._has(origin, rest, seen | {owner})


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that the statements of a module or class define, also under conditions."""
    for node in body:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
        elif isinstance(node, ast.TypeAlias if sys.version_info >= (3, 12) else ()):
            yield node.name.id
        elif isinstance(node, ast.If | ast.Try):
            yield from _bound(node.body)
            yield from _bound(node.orelse)


def _aliases(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """Yield each name that a module imports, with the dotted name of the imported object. Imports within functions count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")
                base = ".".join([*above[: len(above) - node.level + is_package], *([base] if base else [])])
            for alias in node.names:
                yield alias.asname or alias.name, f"{base}.{alias.name}"


def _is_foreign(target: str) -> bool:
    """Return whether the target of a cross-reference belongs to Python's standard library."""
    top, _, _rest = target.partition(".")
    return hasattr(builtins, top) or (top in sys.stdlib_module_names and importlib.util.find_spec(top) is not None)


def _texts(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each docstring of a module, and each string under an attribute, with the name of the class or function that
    contains it."""
    for scope, node in [("", tree), *definitions(tree)]:
        for part in _own(node):
            if (
                isinstance(part, ast.Expr)
                and isinstance(part.value, ast.Constant)
                and isinstance(part.value.value, str)
            ):
                yield scope, part.value.value


def _own(node: ast.AST) -> Iterator[ast.stmt]:
    for part in statements(node):
        if not isinstance(part, Function | ast.ClassDef):
            yield part
            yield from _own(part)


# --- the lists of exceptions to the rules ---


def read_exceptions() -> dict[str, set[str]]:
    """Return the violations that ``tests/not_yet_tidy.toml`` allows for now, keyed by rule."""
    return {rule: set(names) for rule, names in tomllib.loads(EXCEPTIONS.read_text("utf-8")).items()}


def shrink(sources: Sources) -> None:
    """Remove the entries that no longer violate their rule from ``tests/not_yet_tidy.toml``. New violations are not added."""
    allowed = read_exceptions()
    lines = [
        "# What breaks a rule of tools/tidy.py and is allowed to for now. tools/tidy.py --shrink removes what holds."
    ]
    for rule, check in RULES.items():
        names = sorted(check(sources) & allowed.get(rule, set()))
        lines += ["", f"{rule} = [", *(f'    "{name}",' for name in names), "]"]
    EXCEPTIONS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Print the violations that the lists of known violations do not contain, and the entries of these lists that do not occur
    any more. With ``--shrink``, update the lists. Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shrink", action="store_true", help="update the lists")
    sources = Sources.of_checkout()
    if parser.parse_args().shrink:
        tested_by.write_table(sources)
        shrink(sources)
    allowed = read_exceptions()
    wrong = 0
    for rule, check in RULES.items():
        found, listed = check(sources), allowed.get(rule, set())
        for name in sorted(found ^ listed):
            wrong += 1
            print(f"{rule}: {name}{' holds by now' if name in listed else ''}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
