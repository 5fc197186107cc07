"""Check the message of a commit: ``area: imperative subject`` of at most 72 characters, then a blank line, then the reason.

Usage: ``python tools/commit_message.py FILE``, as the hook ``commit-msg`` of ``.pre-commit-config.yaml`` calls it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SUBJECT = re.compile(r"[a-z0-9][a-z0-9_./-]*: [a-z]")
SUBJECT_MAX_CHARACTERS = 72


def faults(message: str) -> list[str]:
    """Return the faults of a commit message, each as a sentence."""
    subject, *rest = [line for line in message.splitlines() if not line.startswith("#")] or [""]
    if subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return []
    found = []
    if not SUBJECT.match(subject):
        found.append(f"the subject {subject!r} does not read 'area: imperative subject', in lower case")
    if len(subject) > SUBJECT_MAX_CHARACTERS:
        found.append(f"the subject has {len(subject)} characters; at most {SUBJECT_MAX_CHARACTERS} are allowed")
    if subject.endswith("."):
        found.append("the subject ends with a period")
    if rest and rest[0]:
        found.append("the second line is not blank")
    return found


def main() -> int:
    """Print the faults of the commit message in the file that the command line names, and return the exit code."""
    found = faults(Path(sys.argv[1]).read_text("utf-8"))
    for fault in found:
        print(f"commit message: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
