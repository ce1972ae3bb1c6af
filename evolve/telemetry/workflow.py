"""The span of a whole run, with the providers behind it. Providers are its own, never the process's global ones."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from evolve.progress import Evaluated, Progress, RunFinished
from evolve.telemetry import semconv
from evolve.telemetry.acting import provider
from evolve.telemetry.described import Begun, Noted, Traced, evaluation
from evolve.telemetry.exporter import Courier
from evolve.telemetry.tracing import Tracing


class Workflow:
    """A traced run. It is an observer as well: evaluations become events of its span."""

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
                    semconv.PROVIDER: run.policy and provider(run.policy),
                    semconv.RUN: run.run_id,
                    semconv.MODE: run.mode,
                    semconv.REQUEST_MODEL: run.policy and run.policy.name,
                    semconv.POLICY_VERSION: run.policy and run.policy.version,
                },
                metric=semconv.WORKFLOW_DURATION,
            )
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
