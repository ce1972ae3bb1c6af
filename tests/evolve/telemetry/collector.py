"""A real OTLP/HTTP collector on loopback, for tests: it keeps the protobuf messages that are posted to it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What arrived, and how it answers."""

    status: int = 200
    url: str = ""
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        scopes = (s for request in self.traces for r in request.resource_spans for s in r.scope_spans)
        return [span for scope in scopes for span in scope.spans]

    @property
    def measured(self) -> set[str]:
        scopes = (s for request in self.metrics for r in request.resource_metrics for s in r.scope_metrics)
        return {metric.name for scope in scopes for metric in scope.metrics}


@contextmanager
def collecting(collector: Collector) -> Generator[Collector]:
    """Listen on a free port until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.headers["content-type"] == "application/x-protobuf"
            if self.path.endswith("/v1/traces"):
                collector.traces.append(ExportTraceServiceRequest.FromString(body))
            else:
                assert self.path.endswith("/v1/metrics")
                collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join(10)
