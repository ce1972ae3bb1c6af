"""The watcher that makes OpenTelemetry spans and metrics of watched work. Imported only where telemetry is on.

Which span belongs to which kind of watched work (`evolve.episode.instrumentation.watched`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from opentelemetry import context
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from evolve.progress import Evaluated, Progress, RunFinished
from evolve.telemetry import acting, learning, semconv
from evolve.telemetry.described import Attributes, Begun, Noted, Traced, evaluation
from evolve.telemetry.exporter import Courier
from memory.content import canonical, clean
from memory.redact import redact

SCOPE = "evolve"
_OURS = context.create_key("evolve")
"""Whose span is the current one of a context."""
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
        self._top: Span | None = None
        self._histograms = {
            name: meter.create_histogram(name, unit=unit, description=text)
            for name, (unit, text) in semconv.METRICS.items()
        }

    def begin(self, kind: str, args: Sequence[Any], options: Mapping[str, Any]) -> OpenSpan | None:
        """Open the span of work of this kind."""
        begun = KINDS[kind](*args, **options)
        return self.open(begun) if begun else None

    def open(self, begun: Begun, *, top: bool = False) -> OpenSpan:
        """Open a span, below the one that is open here; the one at the `top` is above all that begin elsewhere."""
        here = context.get_current()
        if self._top is not None and context.get_value(_OURS, here) is not self:
            here = set_span_in_context(self._top, here)
        span = self._tracer.start_span(
            begun.name,
            context=here,
            kind=SpanKind.CLIENT if begun.client else SpanKind.INTERNAL,
            attributes=self.storable(begun.attributes),
            record_exception=False,
            set_status_on_exception=False,
        )
        if top:
            self._top = span
        return OpenSpan(self, span, begun, current=not top)

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
        """Add one value to a histogram, by those of the attributes that its series differ by."""
        histogram: Histogram = self._histograms[metric]
        histogram.record(value, self.storable({name: attributes.get(name) for name in _OF_METRICS}))


class OpenSpan:
    """A span under way, and the current one of its context. That of a run is not: another task may end it."""

    def __init__(self, tracing: Tracing, span: Span, begun: Begun, *, current: bool) -> None:
        self._tracing, self._span, self._begun = tracing, span, begun
        self._started = time.perf_counter()
        held = context.set_value(_OURS, tracing, set_span_in_context(span))
        self._token = context.attach(held) if current else None

    def note(self, noted: Noted) -> None:
        """Add to the span."""
        self._span.set_attributes(self._tracing.storable(noted.attributes))
        for name, attributes in noted.events:
            self._span.add_event(name, self._tracing.storable(attributes))

    def done(self, result: Any) -> None:
        """End the span with what came of the work."""
        noted = self._begun.done(result)
        self.note(noted)
        for kind, count in noted.tokens.items():
            self._tracing.measure(semconv.TOKEN_USAGE, count, {**self._begun.attributes, semconv.TOKEN_TYPE: kind})
        self._end(noted.attributes.get(semconv.ERROR_TYPE))

    def failed(self, error: BaseException) -> None:
        """End the span with the type of what ended the work; its message may hold anything and is left out."""
        self._span.set_attribute(semconv.ERROR_TYPE, type(error).__name__)
        self._end(type(error).__name__)

    def _end(self, error: str | None) -> None:
        if self._token is not None:
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


class Workflow:
    """A traced run, with providers of its own, never the process's global ones.

    It is an observer as well: evaluations become events of its span.
    """

    def __init__(self, run: Traced, couriers: Sequence[Courier], *, content: bool) -> None:
        resource = Resource.create({"service.name": "evolve", "service.version": version("evolve-agents")})
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._meters = MeterProvider(
            [courier.reader for courier in couriers],
            resource=resource,
            exemplar_filter=AlwaysOffExemplarFilter(),  # exemplars double the price of a measurement
            shutdown_on_exit=False,
        )
        for courier in couriers:
            self._tracers.add_span_processor(courier)
        self.tracing = Tracing(self._tracers, self._meters, content=content)
        self._span = self.tracing.open(
            Begun(
                f"invoke_workflow {run.environment}",
                {
                    semconv.OPERATION: "invoke_workflow",
                    semconv.WORKFLOW_NAME: run.environment,
                    semconv.PROVIDER: run.policy and acting.provider(run.policy),
                    semconv.RUN: run.run_id,
                    semconv.MODE: run.mode,
                    semconv.REQUEST_MODEL: run.policy and run.policy.name,
                    semconv.POLICY_VERSION: run.policy and run.policy.version,
                },
                metric=semconv.WORKFLOW_DURATION,
            ),
            top=True,
        )

    def notify(self, event: Progress) -> None:
        """Take note of an evaluation, and of how the run ended."""
        if isinstance(event, Evaluated):
            what = {semconv.ARM: event.arm, semconv.SNAPSHOT: event.snapshot_id}
            for name, score in (("tgc", event.tgc), ("sgc", event.sgc)):
                kind, attributes = evaluation(f"{name} {event.split}", score, event.arm)
                self._span.note(Noted(events=[(kind, {**attributes, **what})]))
        if isinstance(event, RunFinished):
            self._span.note(Noted({semconv.STATUS: event.status}))

    def done(self) -> None:
        """End the span."""
        self._span.done(None)

    def failed(self, error: BaseException) -> None:
        """End the span with an error."""
        self._span.failed(error)

    def close(self) -> None:
        """Deliver what waits, and stop the threads."""
        self._tracers.shutdown()
        self._meters.shutdown()
