"""Carries finished spans from a run to one destination, in batches, on a thread of its own.

The run never waits: what cannot be taken is dropped and counted. A destination that failed is left alone for a while;
at the end each gets one last try, within `CLOSING` seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

WAITING = 4096
"""Most spans that wait; older ones are dropped first."""
BATCH = 256
PAUSE = 10.0
"""Seconds a destination is left alone after it failed."""
EVERY = 1.0
"""Seconds between two batches that are not full."""
METRICS_EVERY = 60.0
CLOSING = 10.0
NOISY = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.common.http",
)
"""Loggers that would repeat what is said once, at the end."""


class Destination(Protocol):
    """Takes spans and metrics. Raises whatever goes wrong; what it was given is then lost."""

    @property
    def name(self) -> str:
        """What people know it by."""
        ...

    def put_spans(self, spans: Sequence[ReadableSpan]) -> None:
        """Take finished spans."""
        ...

    def put_metrics(self, metrics: MetricsData) -> None:
        """Take the metrics as they stand now."""
        ...

    def close(self) -> None:
        """Release what is held, and end a call under way if that can be done."""
        ...


class _Quiet(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not threading.current_thread().name.startswith(Courier.THREAD)


_QUIET = _Quiet()


class Courier(SpanProcessor):
    """A span processor for one destination. `taken` and `delivered` count spans; `error` is the last one met."""

    THREAD = "evolve-telemetry"

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.reader = InMemoryMetricReader()
        self.taken = self.delivered = 0
        self.error = ""
        self._waiting: deque[ReadableSpan] = deque(maxlen=WAITING)
        self._wake, self._closing = threading.Event(), threading.Event()
        self._not_before = 0.0
        self._metrics_at = time.monotonic() + METRICS_EVERY
        for name in NOISY:
            logging.getLogger(name).addFilter(_QUIET)
        self._thread = threading.Thread(target=self._work, name=f"{self.THREAD} {destination.name}", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Return how many spans did not arrive."""
        return self.taken - self.delivered

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is known of a span that has just begun."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a finished span."""
        self.taken += 1
        self._waiting.append(span)
        if len(self._waiting) >= BATCH:
            self._wake.set()

    def shutdown(self) -> None:
        """Deliver what waits, as far as the time allows, and let go of the destination."""
        if not self._closing.is_set():
            self._closing.set()
            self._wake.set()
            self._thread.join(CLOSING)
            self.destination.close()
            self._thread.join(1.0)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Let the thread know that somebody waits."""
        self._wake.set()
        return True

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(EVERY)
            self._wake.clear()
            if time.monotonic() >= self._not_before:
                self._deliver()
        self._deliver(last=True)

    def _deliver(self, *, last: bool = False) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                self.destination.put_spans(batch)
                self.delivered += len(batch)
            if last or time.monotonic() >= self._metrics_at:
                self._metrics_at = time.monotonic() + METRICS_EVERY
                if (metrics := self.reader.get_metrics_data()) is not None:
                    self.destination.put_metrics(metrics)
        except (
            Exception
        ) as error:  # a full disk, a dead collector, a broken exporter: a run is worth more than its trace
            self.error = f"{type(error).__name__}: {error}"
            self._not_before = time.monotonic() + PAUSE
