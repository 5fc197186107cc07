"""Each snippet of docs/client.md and docs/client-advanced.md runs, in their order, and prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import flintmq

DOCS = Path(str(flintmq.__file__)).parent / "docs"
PAGES = (DOCS / "client.md", DOCS / "client-advanced.md")
SNIPPET = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def test_every_snippet_of_the_documentation_of_clients_prints_the_shown_output(
    name_server: str, create_topic: Callable[[str, int], None], tmp_path: Path
) -> None:
    """In a process of its own, as a reader would run it: it also has to end by itself."""
    create_topic("Orders", 4)
    create_topic("Prices", 1)
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    snippets = SNIPPET.findall(text)
    assert len(snippets) == text.count("```python")
    for code, printed in snippets:
        script = code.replace("127.0.0.1:9876", name_server)
        command = [sys.executable, "-W", "error", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 0, code + done.stderr
        assert not done.stderr, code + done.stderr
        if printed:
            assert done.stdout == printed, code
