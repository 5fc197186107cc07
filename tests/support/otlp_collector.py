"""A collector of OpenTelemetry that keeps the spans it is sent. Needs the extra ``otel``."""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_S = 20.0


@attrs.frozen
class Taken:
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    begin_ns: int
    end_ns: int
    state: str
    flags: int
    status: int
    attributes: dict[str, Any]
    resource: dict[str, Any]

    @property
    def operation(self) -> str:
        return str(self.attributes["messaging.operation.name"])


class Collector(ThreadingHTTPServer):
    """Answers with :attr:`status`, after :attr:`gate` lets it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.status = 200
        self.spans: list[Taken] = []
        self.requests = 0
        self.came = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def wait_for(self, is_there: Callable[[list[Taken]], Any], what: str = "") -> list[Taken]:
        """Return the spans that came so far, once there is among them what is waited for."""
        with self.came:
            assert self.came.wait_for(lambda: is_there(self.spans), PATIENCE_S), (
                what,
                [one.name for one in self.spans],
            )
            return list(self.spans)

    def wait_for_requests(self, count: int) -> None:
        """Wait until so many requests came, answered or not."""
        with self.came:
            assert self.came.wait_for(lambda: self.requests >= count, PATIENCE_S)


class _Take(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = zlib.decompress(body, 31)
        assert self.path == "/v1/traces"
        collector = self.server
        with collector.came:
            collector.requests += 1
            collector.came.notify_all()
        collector.gate.wait(PATIENCE_S)
        if collector.status == 200:
            with collector.came:
                collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
                collector.came.notify_all()
        with contextlib.suppress(ConnectionError):  # the broker that waited has stopped
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, *_arguments: object) -> None: ...


@contextlib.contextmanager
def running_collector() -> Iterator[Collector]:
    """A collector at a free port."""
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield collector
        finally:
            collector.gate.set()
            collector.shutdown()
            thread.join()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Taken]:
    for resource in request.resource_spans:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            assert scope.scope.name == "flintmq"
            for span in scope.spans:
                yield Taken(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.trace_state,
                    span.flags,
                    span.status.code,
                    _attributes(span.attributes),
                    about,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
