"""Checks the types of public names with pyright, which many editors run; ``tools/typecheck.sh`` calls it.

First the calls in ``tests/support/typed_client.py`` are checked. Then the share of names with a declared type is measured for
each public module (``pyright --verifytypes``), because type checkers may infer different types for the other names. Without
pyright or Node.js, nothing is checked, and a line says so.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FLOORS: Final = {
    "flintmq.client": 1.0,
    "flintmq.client.sync": 1.0,
    "flintmq.core.kernel.hookspecs": 0.9,
    "flintmq.core.kernel.ports": 0.9,
    "flintmq.protocol": 0.9,
    "flintmq.testing": 0.8,
}
"""Minimum share of a module's public names that have a declared type, keyed by module. No public name may have an unknown
type."""


def missing() -> str:
    """Return the reason why pyright cannot run on this machine; empty if pyright can run."""
    if importlib.util.find_spec("pyright") is None:
        return "pyright is not installed (pip install -e '.[dev]')"
    return "" if shutil.which("node") else "there is no Node.js, which pyright runs on"


def pyright(*arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run pyright on a checkout. The checkout's folder .overlay contains the package as ``flintmq``."""
    return subprocess.run(
        [sys.executable, "-m", "pyright", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / ".overlay"), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def problems_of(module: str, floor: float, root: Path = ROOT) -> tuple[float, list[str]]:
    """Return the share of a module's public names with a declared type, and the faults that pyright finds."""
    done = pyright("--verifytypes", module, "--ignoreexternal", "--outputjson", root=root)
    found = json.loads(done.stdout)["typeCompleteness"]
    counts = found["exportedSymbolCounts"]
    total = sum(counts.values())
    if not total:
        return 0.0, [f"{module}: pyright finds no public name: {done.stderr}"]
    score = counts["withKnownType"] / total
    said = [
        f"{symbol['name']}: {one['message']}"
        for symbol in found["symbols"]
        if not symbol["isTypeKnown"] and (floor == 1 or (symbol["isExported"] and not symbol["isTypeAmbiguous"]))
        for one in symbol["diagnostics"]
    ]
    if score < floor:
        said.append(f"{module}: {score:.1%} of {total} public names have a declared type; at least {floor:.0%} are to")
    return score, said


def main(_arguments: list[str]) -> int:
    """Check all public modules, and print each module's share of names with a declared type."""
    if reason := missing():
        print(f"public types are not checked: {reason}", file=sys.stderr)
        return 0
    used = pyright()
    said = [] if used.returncode == 0 else [used.stdout]
    for module, floor in FLOORS.items():
        score, more = problems_of(module, floor)
        print(f"{module}: {score:.1%}")
        said += more
    print(*said, sep="\n", file=sys.stderr, end="\n" if said else "")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
