"""Writes the spans and metrics of one run into the workspace's `telemetry.db`.

Or sends them to an OTLP/HTTP collector: headers, certificates and the like come from OTEL_ variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import HistogramDataPoint, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import format_span_id, format_trace_id

from evolve.telemetry import semconv
from memory.content import canonical
from memory.redact import redact
from memory.sqlite.sql import sqlite3
from memory.sqlite.telemetry_file import METRIC, SPAN, insert, open_telemetry


class LocalFile:
    """The database as a destination. Used by one thread; after an error the file is opened anew."""

    def __init__(self, path: Path, run_id: str) -> None:
        self.name = str(path)
        self._path, self._run_id = path, run_id
        self._conn: sqlite3.Connection | None = None

    def put_spans(self, spans: Sequence[ReadableSpan]) -> None:
        """Write spans. Raises `sqlite3.Error`, `OSError`, `JournalError`."""
        self._insert("spans", SPAN, [self._span(span) for span in spans])

    def put_metrics(self, metrics: MetricsData) -> None:
        """Write metrics over those that were written before. Raises as `put_spans`; it is the last that is written."""
        self._insert("metrics", METRIC, list(self._metrics(metrics)))

    def close(self) -> None:
        """Close the file."""
        if self._conn is not None:
            self._conn.close()
        self._conn = None

    def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if self._conn is None:
            self._conn = open_telemetry(self._path)
        try:
            insert(self._conn, table, columns, rows)
        except BaseException:
            self.close()
            raise

    def _span(self, span: ReadableSpan) -> tuple[Any, ...]:
        given = dict(span.attributes or {})
        content = {name: given.pop(name) for name in semconv.CONTENT & given.keys()}
        events = [{"name": event.name, "attributes": dict(event.attributes or {})} for event in span.events]
        about = span.get_span_context()
        return (
            format_span_id(about.span_id if about else 0),
            format_trace_id(about.trace_id if about else 0),
            format_span_id(span.parent.span_id) if span.parent else None,
            self._run_id,
            given.get(semconv.TASK),
            span.name,
            span.kind.name,
            span.start_time,
            span.end_time,
            given.get(semconv.ERROR_TYPE),
            canonical(given),
            canonical(events),
            canonical(content) if content else None,
        )

    def _metrics(self, data: MetricsData) -> Iterator[tuple[Any, ...]]:
        scopes = (scope for resource in data.resource_metrics for scope in resource.scope_metrics)
        for metric in (metric for scope in scopes for metric in scope.metrics):
            for point in metric.data.data_points:
                if isinstance(point, HistogramDataPoint):
                    yield (
                        self._run_id,
                        metric.name,
                        canonical(dict(point.attributes or {})),
                        point.start_time_unix_nano,
                        metric.unit or "",
                        point.count,
                        point.sum,
                        point.min,
                        point.max,
                        canonical(list(point.explicit_bounds)),
                        canonical(list(point.bucket_counts)),
                    )


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
