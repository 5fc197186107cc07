#!/usr/bin/env python3
"""Counts lines, files, functions and classes of the package, and the modules that a message flows through.

    tools/size.py [BEFORE [AFTER]] [--json]

BEFORE and AFTER are commits. Without a commit, only the counts of the checkout are printed. With one commit, the commit is
compared with the checkout; with two, they are compared with each other.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

import ast

from sources import FOLDERS, ROOT, Function, Sources, definitions, length, methods

FILE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 70
CLASS_METHODS_MAX: Final = 25
_FLOW: Final = re.compile(r"\n## How a message flows\n(.*?)(?=\n## |\Z)", re.S)
_PATH: Final = re.compile(r"[\w/]+\.py")


def counts(sources: Sources, architecture: str) -> dict[str, float]:
    """Return the counts of a source (lines, files, functions, classes and more), keyed by name.

    Args:
        sources: the source that is counted.
        architecture: the text of ARCHITECTURE.md, which names the files that a message flows through.
    """
    found = [node for path in sources.modules for _name, node in definitions(sources.tree(path))]
    lengths = [length(node) for node in found if isinstance(node, Function)]
    lines = {path: sources.lines(path) for path in sources.modules}
    test_lines = sum(sources.lines(path) for path in sources.texts if path.startswith("tests/"))
    flow = flow_files(sources, architecture)
    return {
        "source lines": sum(lines.values()),
        **{
            f"source lines in {top}": sum(lines[path] for path in lines if path.startswith(f"{top}/"))
            for top in FOLDERS
        },
        "source files": len(lines),
        f"files over {FILE_LINES_MAX} lines": sum(count > FILE_LINES_MAX for count in lines.values()),
        "functions": len(lengths),
        "functions of at most 20 lines, per cent": round(
            100 * sum(one <= 20 for one in lengths) / max(1, len(lengths)), 1
        ),
        f"functions over {FUNCTION_LINES_MAX} lines": sum(one > FUNCTION_LINES_MAX for one in lengths),
        f"classes over {CLASS_METHODS_MAX} methods": sum(
            methods(node) > CLASS_METHODS_MAX for node in found if isinstance(node, ast.ClassDef)
        ),
        "modules in import cycles": sum(map(len, sources.cycles())),
        "test lines": test_lines,
        "test lines per source line": round(test_lines / max(1, sum(lines.values())), 2),
        "files in the flow of a message": len(flow),
        "lines in the flow of a message": sum(lines[path] for path in flow),
    }


def flow_files(sources: Sources, architecture: str) -> set[str]:
    """Return the paths of the modules that the section "How a message flows" of ARCHITECTURE.md names."""
    section = _FLOW.search(architecture)
    named = _PATH.findall(section[1]) if section else []
    return {path for path in named if path in sources.names.values()}


def main() -> int:
    """Print the numbers of lines, files, functions and classes of the source code, one column for each version. The versions
    are the commits that the command line names; if it names fewer than two, the last column is the checkout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="the commit before, and the one after")
    parser.add_argument("--json", action="store_true", help="print an object for each")
    options = parser.parse_args()
    if len(options.commits) > 2:
        parser.error("at most two commits are compared")
    columns = []
    for commit in options.commits:
        sources = Sources.of_commit(commit)
        columns.append(counts(sources, sources.texts.get("ARCHITECTURE.md", "")))
    if len(columns) < 2:
        columns.append(counts(Sources.of_checkout(), (ROOT / "ARCHITECTURE.md").read_text("utf-8")))
    if options.json:
        print(json.dumps(columns, indent=1))
        return 0
    for name in columns[-1]:
        print(f"{name:42} {' → '.join(f'{column[name]:>9,}' for column in columns)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
