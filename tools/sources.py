"""Reads the Python modules of the package, from the checkout or from a commit, and finds their imports and definitions."""

from __future__ import annotations

import ast
import functools
import io
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = (
    "client",
    "config",
    "core",
    "dispatchers",
    "flush",
    "remoting",
    "plugins",
    "programs",
    "protocol",
    "testing",
)
"""The folders of the repository whose modules are installed with the package ``flintmq``."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """Texts and syntax trees of the package's Python files, keyed by the file's path relative to the repository's root.

    Args:
        texts: the texts of the files, keyed by path; files in ``tests/`` are included.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.modules = sorted(path for path in texts if path.startswith(tuple(f"{name}/" for name in FOLDERS)))
        """Paths of the modules that are installed with the package ``flintmq``."""
        self.names = {module_name(path): path for path in self.modules}
        """Paths of the modules that are installed with the package ``flintmq``, keyed by the module's dotted name."""
        self._trees: dict[str, ast.Module] = {}
        self._imports: dict[str, set[str]] = {}
        self._reachable: dict[str, frozenset[str]] = {}

    @classmethod
    def of_checkout(cls, root: Path = ROOT) -> Sources:
        """Return the texts and syntax trees of a checkout's Python files."""
        paths = [
            root / "__init__.py",
            *(path for folder in (*FOLDERS, "tests") for path in (root / folder).rglob("*.py")),
        ]
        return cls({path.relative_to(root).as_posix(): path.read_text("utf-8") for path in paths})

    @classmethod
    def of_commit(cls, commit: str, root: Path = ROOT) -> Sources:
        """Return the texts and syntax trees of a commit's Python files; the texts include ARCHITECTURE.md. Raises
        CalledProcessError if the commit does not exist."""
        command = ["git", "-C", str(root), "archive", commit]
        packed = subprocess.run(command, check=True, capture_output=True).stdout
        texts = {}
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None and (member.name.endswith(".py") or member.name == "ARCHITECTURE.md"):
                    texts[member.name] = file.read().decode("utf-8")
        return cls(texts)

    def tree(self, path: str) -> ast.Module:
        """Return the syntax tree of the file at the given path."""
        if path not in self._trees:
            self._trees[path] = ast.parse(self.texts[path])
        return self._trees[path]

    def lines(self, path: str) -> int:
        """Return the number of lines of the file at the given path."""
        return self.texts[path].count("\n")

    def imports(self, path: str) -> set[str]:
        """Return the paths of the package's modules that a file imports. Imports within functions count; imports under
        ``if TYPE_CHECKING`` do not count."""
        if path not in self._imports:
            self._imports[path] = self._find_imports(path)
        return self._imports[path]

    def _find_imports(self, path: str) -> set[str]:
        found = {name for node in _run_statements(self.tree(path)) for name in self._imported(node, path)}
        return {self.names[name] for name in found if name in self.names} - {path}

    def _imported(self, node: ast.AST, path: str) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module_name(path).split(".")
                above = above[: len(above) - node.level + path.endswith("__init__.py")]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in self.names else base

    @functools.cached_property
    def graph(self) -> dict[str, set[str]]:
        """Return the paths of the modules that each module of the package imports, keyed by the importing module's path."""
        return {path: self.imports(path) for path in self.modules}

    def cycles(self) -> list[list[str]]:
        """Return the groups of modules that import one another, directly or through others. Each group is sorted."""
        groups = {frozenset(self._mutual(path)) for path in self.modules}
        return sorted(sorted(group) for group in groups if len(group) > 1)

    def _mutual(self, path: str) -> set[str]:
        return {path} | {other for other in self.reachable([path]) if path in self.reachable([other])}

    def reachable(self, begin: Iterable[str]) -> set[str]:
        """Return the modules that the given modules import, directly or through others."""
        found: set[str] = set()
        for path in begin:
            if path not in self._reachable:
                seen: set[str] = set()
                left = [path]
                while left:
                    new = self.graph[left.pop()] - seen
                    seen |= new
                    left += new
                self._reachable[path] = frozenset(seen)
            found |= self._reachable[path]
        return found


def parsed(
    root: Path, folders: Iterable[str] = FOLDERS, without: tuple[str, ...] = (), holding: Iterable[str] = ("",)
) -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and syntax tree of each module of a checkout whose source contains one of the given texts.

    Args:
        root: the checkout.
        folders: the folders of the checkout that are searched.
        without: modules whose paths begin with one of these strings are left out.
        holding: the texts; a module that contains none of the texts is not parsed, which saves most of the time.
    """
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not name.startswith(without):
                text = path.read_text("utf-8")
                if any(one in text for one in holding):
                    yield name, ast.parse(text)


def module_name(path: str) -> str:
    """Return the dotted name of a module of the package."""
    parts = path.removesuffix(".py").split("/")
    return ".".join(["flintmq", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements directly inside a node of a syntax tree. Expressions, which are most of a tree, are skipped."""
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from part.body
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(node, name, ())
        yield from inner if isinstance(inner, list) else ()


def _run_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements inside a node of a syntax tree, except those under ``if TYPE_CHECKING``."""
    for part in statements(node):
        yield part
        if isinstance(part, ast.If) and "TYPE_CHECKING" in ast.unparse(part.test):
            for other in part.orelse:
                yield other
                yield from _run_statements(other)
        else:
            yield from _run_statements(part)


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield all functions and classes of a module with their qualified names, including nested ones."""
    for node in statements(tree):
        if isinstance(node, Function | ast.ClassDef):
            yield prefix + node.name, node
            yield from definitions(node, f"{prefix}{node.name}.")
        else:
            yield from definitions(node, prefix)


def length(node: Function | ast.ClassDef) -> int:
    """Return the number of lines of a function's or class's definition."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def methods(node: ast.ClassDef) -> int:
    """Return the number of methods that a class defines itself."""
    return sum(isinstance(part, Function) for part in node.body)
