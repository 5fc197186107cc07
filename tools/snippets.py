"""Finds the snippets of the documentation's pages, and which test runs each snippet. A snippet is a code block in ``sh``,
``console``, ``python``, ``yaml`` or ``sql``.

``tests/snippets.toml`` lists pages whose snippets ``tests/test_docs.py`` runs unchanged, pages whose snippets another test
runs, and single snippets that no test runs, each with the reason. The build of the site fails if a snippet is in none of the
three lists.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent
LIST: Final = ROOT / "tests" / "snippets.toml"
LANGUAGES: Final = frozenset({"sh", "console", "python", "yaml", "sql"})


@attrs.frozen
class Snippet:
    """A snippet: a code block of a page of the documentation."""

    page: str
    """Path in the repository of the page that contains the snippet."""
    line: int
    """Number of the line of the page on which the snippet begins, counted from 1."""
    language: str
    text: str

    @property
    def first_line(self) -> str:
        """The first line of the code block, by which ``tests/snippets.toml`` names the block."""
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@attrs.frozen
class SnippetList:
    """The contents of ``tests/snippets.toml``, which says which test runs each snippet of the documentation."""

    run: tuple[str, ...]
    """Pages whose snippets ``tests/test_docs.py`` runs unchanged."""
    elsewhere: Mapping[str, str]
    """Files with the tests that run the snippets of a page, keyed by page."""
    not_run: Mapping[str, Mapping[str, str]]
    """Reasons why no test runs a snippet, keyed by page and by the snippet's first line."""

    @classmethod
    def read(cls, path: Path = LIST) -> SnippetList:
        """Read a file in the format of ``tests/snippets.toml``, and return its contents."""
        read = tomllib.loads(path.read_text("utf-8"))
        return cls(tuple(read["run"]), read["elsewhere"], read["not_run"])

    def is_run(self, snippet: Snippet) -> bool:
        """Return whether ``tests/test_docs.py`` runs a snippet of the documentation unchanged."""
        return snippet.page in self.run and snippet.first_line not in self.not_run.get(snippet.page, {})

    def problems(self, root: Path = ROOT) -> Iterator[str]:
        """Yield a message for each snippet of the pages without an entry in ``tests/snippets.toml``, and for each entry that
        fits no snippet or names a missing file."""
        for page in pages(root):
            found = list(snippets(root, page))
            reasons = self.not_run.get(page, {})
            for snippet in found:
                if page not in self.run and page not in self.elsewhere and snippet.first_line not in reasons:
                    yield (
                        f"{snippet}: no test runs this {snippet.language} block: add the page to `run` of tests/snippets.toml, "
                        "or the block to its `not_run` with a reason"
                    )
            for first_line in reasons.keys() - {snippet.first_line for snippet in found}:
                yield f"tests/snippets.toml: {page} has no snippet that begins with {first_line!r}: remove the entry"
        named = {*self.run, *self.elsewhere, *self.not_run, *self.elsewhere.values()}
        for name in sorted(name for name in named if not (root / name).exists()):
            yield f"tests/snippets.toml: there is no {name}"


def pages(root: Path = ROOT) -> list[str]:
    """Return the paths of the Markdown pages in the repository's root and in docs/, relative to the repository's root."""
    return sorted(path.relative_to(root).as_posix() for path in [*root.glob("*.md"), *(root / "docs").rglob("*.md")])


def snippets(root: Path, page: str) -> Iterator[Snippet]:
    """Yield the code blocks of a page that are in one of the languages :data:`LANGUAGES`.

    Args:
        root: the repository's folder.
        page: the page's path in the repository.
    """
    fence, language, begin, block = "", "", 0, list[str]()
    for number, line in enumerate((root / page).read_text("utf-8").splitlines(), 1):
        if not fence and line.startswith("```"):
            fence, language = line[: len(line) - len(line.lstrip("`"))], line.lstrip("`").strip()
            begin, block = number + 1, []
        elif fence and line.rstrip() == fence:
            if language in LANGUAGES:
                yield Snippet(page, begin, language, "\n".join(block))
            fence = ""
        elif fence:
            block.append(line)
