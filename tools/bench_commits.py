#!/usr/bin/env python3
"""Compares the hot path's processor time in a commit and the checkout: ``tools/bench_commits.py COMMIT [--rounds 7] [--json]``.

Each round runs ``tests/benchmarks/hot_path.py`` of the commit and of the checkout, one after the other; every second round runs
the checkout first. A ratio is the checkout's time divided by the commit's. A row has the ratio of the least times of all
rounds, the median of the ratios of all rounds, and the geometric mean of these ratios with its 95 % confidence interval.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from flintmq.programs.bench.figures import ratio

ROOT: Final = Path(__file__).resolve().parent.parent
Stages = dict[str, float]
"""Processor time for one message in µs, keyed by the name of the stage that uses the time."""


def main() -> int:
    """Compare the processor time of a commit with that of the checkout, and print a row for each stage of the hot path. Stages
    that only one of the two has are left out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", help="the commit to compare the checkout with")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="runs of the commit and of the checkout")
    parser.add_argument("--json", action="store_true", help="print an object instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flintmq-before-") as folder:
        before_root = Path(folder) / "checkout"
        _git("worktree", "add", "--quiet", "--detach", str(before_root), options.commit)
        try:
            before, after = measure(before_root, ROOT, options.rounds)
        finally:
            _git("worktree", "remove", "--force", str(before_root))
    rows = compared(before, after)
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'stage':14}{'before µs':>10}{'after µs':>10}{'least':>8}{'median':>8}{'mean':>8}  95 % interval")
    for name, row in rows.items():
        interval = f"{row['mean']:8.3f}  {row['low']:.3f} to {row['high']:.3f}" if "mean" in row else ""
        print(f"{name:14}{row['before']:10.3f}{row['after']:10.3f}{row['least']:8.3f}{row['median']:8.3f}{interval}")
    return 0


def measure(before_root: Path, after_root: Path, rounds: int) -> tuple[list[Stages], list[Stages]]:
    """Return, for each round, the processor times of the hot path's stages in the commit and in the checkout."""
    before: list[Stages] = []
    after: list[Stages] = []
    sides = [(before_root, before), (after_root, after)]
    for _ in range(rounds):
        for root, found in sides:
            found.append(hot_path(root))
        sides.reverse()
    return before, after


def hot_path(root: Path) -> Stages:
    """Run the benchmark of the hot path in a checkout once, and return the processor time of each stage."""
    with tempfile.TemporaryDirectory(prefix="flintmq-path-") as folder:
        (Path(folder) / "flintmq").symlink_to(root)
        command = [sys.executable, str(root / "tests" / "benchmarks" / "hot_path.py"), "--json"]
        environment = os.environ | {"PYTHONPATH": folder}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    stages: Stages = json.loads(done.stdout.splitlines()[-1])
    return stages


def compared(before: list[Stages], after: list[Stages]) -> dict[str, Stages]:
    """Return, for each stage of the hot path, the least times of the commit and of the checkout in µs, and the ratios of the
    checkout's times to the commit's."""
    rows = {}
    for name in before[0].keys() & after[0].keys():
        pairs = [(one[name], other[name]) for one, other in zip(before, after, strict=True)]
        least_before, least_after = (min(side) for side in zip(*pairs, strict=True))
        ratios = [other / one for one, other in pairs]
        rows[name] = {
            "before": least_before,
            "after": least_after,
            "least": round(least_after / least_before, 3),
            "median": round(statistics.median(ratios), 3),
        }
        mean = ratio([other for _, other in pairs], [one for one, _ in pairs])
        if mean is not None and len(pairs) > 1:
            rows[name] |= {"mean": round(mean.mean, 3), "low": round(mean.low, 3), "high": round(mean.high, 3)}
    return {name: rows[name] for name in before[0] if name in rows}


def _git(*words: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *words], check=True)


if __name__ == "__main__":
    sys.exit(main())
