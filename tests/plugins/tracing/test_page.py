"""What docs/tracing.md shows works as it stands, but for what is installed from the network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter", reason="the extra otel is not installed")

import flintmq
from flintmq.plugins.tracing.service import TracingService
from flintmq.plugins.tracing.spans import STAGES
from flintmq.tests.support.otlp_collector import running_collector
from flintmq.tests.support.snippet_runner import PageRunner

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "tracing.md").read_text()


def block(language: str) -> str:
    return PAGE.partition(f"```{language}\n")[2].partition("```")[0]


def test_the_spans_of_the_broker_have_the_span_of_the_sending_program_as_their_parent(tmp_path: Path) -> None:
    """The spans of the broker that it starts are beneath those of the program that it shows."""
    install, _, rest = block("console").partition("\n")
    assert install.startswith("$ pip install")
    with running_collector() as collector, PageRunner(tmp_path) as runner:
        runner.run("console", rest.replace("127.0.0.1:4318", f"127.0.0.1:{collector.server_address[1]}"))
        runner.run("python", block("python").replace('print(f"', 'open("told", "w").write(f"'))
        trace, parent = re.findall(r"[0-9a-f]{16,32}", (tmp_path / "told").read_text())
        spans = collector.wait_for(lambda came: {"store", "deliver"} <= {one.operation for one in came})
    assert {one.trace_id for one in spans} == {trace}
    assert {one.parent_id for one in spans if one.operation in ("store", "deliver")} == {parent}


def test_the_tracing_page_names_every_span_and_every_metric_of_tracing(tmp_path: Path) -> None:
    """A reader looks up what a trace shows."""
    shown = block("text")
    assert [operation for operation in STAGES if f" {operation} Orders " not in shown] == []
    settings = [f"store.path={tmp_path}", "listen.port=0", "tracing.otlp_endpoint=http://127.0.0.1:9/v1/traces"]
    with flintmq.Broker(flintmq.load_config(None, settings, {})) as broker:
        figures = broker.state.service(TracingService).runtime_info()
        names = {one.name for one in broker.api.figures.measurements()} & {
            "flintmq_spans_total",
            "flintmq_traced_messages_total",
        }
    assert [name for name in (*figures, *names) if name not in PAGE] == []
    assert len(names) == 2
