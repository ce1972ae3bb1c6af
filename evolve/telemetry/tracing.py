"""The watcher that makes OpenTelemetry spans and metrics of watched work. Imported only where telemetry is on.

Which span belongs to which kind of watched work (`evolve.episode.instrumentation.watched`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from opentelemetry import context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider, set_span_in_context

from evolve.telemetry import acting, learning, semconv
from evolve.telemetry.described import Attributes, Begun, Noted
from memory.content import canonical, clean
from memory.redact import redact

SCOPE = "evolve"
_OF_METRICS = (
    semconv.OPERATION,
    semconv.PROVIDER,
    semconv.REQUEST_MODEL,
    semconv.AGENT_NAME,
    semconv.TOOL_NAME,
    semconv.WORKFLOW_NAME,
    semconv.ERROR_TYPE,
    semconv.TOKEN_TYPE,
)
"""What the series of a metric differ by: nothing that has as many values as there are tasks."""


class Tracing:
    """An `evolve.episode.instrumentation.Watcher`. With `content` the spans also hold texts."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider, *, content: bool) -> None:
        self._tracer = tracers.get_tracer(SCOPE)
        meter = meters.get_meter(SCOPE)
        self._content = content
        self._histograms = {
            name: meter.create_histogram(name, unit=unit, description=text)
            for name, (unit, text) in semconv.METRICS.items()
        }

    def begin(self, kind: str, args: Sequence[Any], options: Mapping[str, Any]) -> OpenSpan | None:
        """Open the span of work of this kind."""
        begun = KINDS[kind](*args, **options)
        return self.open(begun) if begun else None

    def open(self, begun: Begun) -> OpenSpan:
        """Open a span, below the one that is open here."""
        span = self._tracer.start_span(
            begun.name,
            kind=SpanKind.CLIENT if begun.client else SpanKind.INTERNAL,
            attributes=self.storable(begun.attributes),
            record_exception=False,
            set_status_on_exception=False,
        )
        return OpenSpan(self, span, begun)

    def storable(self, attributes: Attributes) -> dict[str, Any]:
        """Return what a span takes: no content unless captured, no secrets, structures as JSON."""
        found: dict[str, Any] = {}
        for name, value in attributes.items():
            if value is None:
                continue
            if name in semconv.CONTENT:
                if self._content:
                    found[name] = _content(value())
            elif isinstance(value, str):
                found[name] = _known(value)
            else:
                found[name] = value
        return found

    def measure(self, metric: str, value: float, attributes: Mapping[str, Any]) -> None:
        """Add one value to a histogram."""
        histogram: Histogram = self._histograms[metric]
        histogram.record(value, {name: attributes[name] for name in _OF_METRICS if name in attributes})


class OpenSpan:
    """A span under way, and the current one of its context."""

    def __init__(self, tracing: Tracing, span: Span, begun: Begun) -> None:
        self._tracing, self._span, self._begun = tracing, span, begun
        self._started = time.perf_counter()
        self._token = context.attach(set_span_in_context(span))

    def note(self, noted: Noted) -> None:
        """Add to the span."""
        self._span.set_attributes(self._tracing.storable(noted.attributes))
        for name, attributes in noted.events:
            self._span.add_event(name, self._tracing.storable(attributes))

    def done(self, result: Any) -> None:
        """End the span with what came of the work."""
        noted = self._begun.done(result)
        self.note(noted)
        known = self._tracing.storable(self._begun.attributes)
        for kind, count in noted.tokens.items():
            self._tracing.measure(semconv.TOKEN_USAGE, count, {**known, semconv.TOKEN_TYPE: kind})
        self._end(noted.attributes.get(semconv.ERROR_TYPE))

    def failed(self, error: BaseException) -> None:
        """End the span with the type of what ended the work; its message may hold anything and is left out."""
        self._span.set_attribute(semconv.ERROR_TYPE, type(error).__name__)
        self._end(type(error).__name__)

    def _end(self, error: str | None) -> None:
        context.detach(self._token)
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()
        if self._begun.metric:
            about = {**self._begun.attributes, semconv.ERROR_TYPE: error} if error else self._begun.attributes
            self._tracing.measure(self._begun.metric, time.perf_counter() - self._started, about)


@lru_cache(maxsize=8192)
def _known(value: str) -> str:
    """Return a name or id without secrets: the same ones come again and again."""
    return redact(value)


def _content(value: Any) -> str:
    return redact(value) if isinstance(value, str) else canonical(clean(value))


KINDS: Mapping[str, Callable[..., Begun | None]] = {
    "episode": acting.episode,
    "solve": acting.solve,
    "chat": acting.chat,
    "step": acting.step,
    "recall": learning.recall,
    "search": learning.search,
    "commit": learning.commit,
    "gate": learning.gate,
    "reflect": learning.reflect,
    "curate": learning.curate,
    "iteration": learning.iteration,
    "update": learning.update,
    "fitting": learning.fitting,
}
"""Kind of watched work -> its span."""
