"""Writes the spans and metrics of one run into the workspace's `telemetry.db`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics.export import HistogramDataPoint, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import format_span_id, format_trace_id

from evolve.telemetry import names
from evolve.telemetry.database import METRIC, SPAN, insert, open_telemetry
from memory.content import canonical
from memory.sql import sqlite3


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
        content = {name: given.pop(name) for name in names.CONTENT & given.keys()}
        events = [{"name": event.name, "attributes": dict(event.attributes or {})} for event in span.events]
        about = span.get_span_context()
        return (
            format_span_id(about.span_id if about else 0),
            format_trace_id(about.trace_id if about else 0),
            format_span_id(span.parent.span_id) if span.parent else None,
            self._run_id,
            given.get(names.TASK),
            span.name,
            span.kind.name,
            span.start_time,
            span.end_time,
            given.get(names.ERROR_TYPE),
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
