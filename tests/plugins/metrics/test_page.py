"""What docs/metrics.md shows works as it stands, but for what is installed from the network."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from flintmq.tests.support.snippet_runner import PageRunner

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def test_the_commands_on_the_metrics_page_print_the_documented_output(tmp_path: Path) -> None:
    """The first page that an operator copies from."""
    shown = PAGE.read_text().partition("```console\n")[2].partition("```")[0]
    install, _, rest = shown.partition("\n")
    assert install.startswith("$ pip install")
    with PageRunner(tmp_path) as runner:
        runner.run("console", rest)
