"""Sends spans and metrics to an OTLP/HTTP collector. Headers, certificates and the like come from OTEL_ variables."""

from __future__ import annotations

import os
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from memory.redact import redact

TIMEOUT = 3.0
"""Seconds a collector may take, unless OTEL_EXPORTER_OTLP_TIMEOUT says another time."""


class Collector:
    """An OTLP/HTTP endpoint: the configured base URL, or what the OTEL_ variables say."""

    def __init__(self, endpoint: str | None) -> None:
        base = endpoint.rstrip("/") if endpoint else None
        timeout = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else TIMEOUT
        self.name = redact(base or "the collector of OTEL_EXPORTER_OTLP_ENDPOINT")
        self._spans = OTLPSpanExporter(base and f"{base}/v1/traces", timeout=timeout)
        self._metrics = OTLPMetricExporter(base and f"{base}/v1/metrics", timeout=timeout)

    def put_spans(self, spans: Sequence[ReadableSpan]) -> None:
        """Send spans. Raises `ConnectionError` where the collector does not take them."""
        if self._spans.export(spans) is not SpanExportResult.SUCCESS:
            raise ConnectionError("it did not take them")

    def put_metrics(self, metrics: MetricsData) -> None:
        """Send metrics. Raises `ConnectionError` where the collector does not take them."""
        if self._metrics.export(metrics) is not MetricExportResult.SUCCESS:
            raise ConnectionError("it did not take the metrics")

    def close(self) -> None:
        """End what is being sent."""
        self._spans.shutdown()
        self._metrics.shutdown()
