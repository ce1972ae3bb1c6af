"""Turns telemetry on for one run, as `[telemetry]` and the OTEL_ variables say. Off, nothing of it is even imported.

Whatever fails while a run is traced costs spans and never the run; what was lost is counted and said once, at the end.

Providers are the run's own, never the process's global ones.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from evolve.config.model import Config
from evolve.episode.instrumentation import watching
from evolve.errors import ConfigError
from evolve.progress import Evaluated, Observers, Progress, RunFinished
from evolve.telemetry import names
from evolve.telemetry.acting import provider
from evolve.telemetry.database import FILE
from evolve.telemetry.described import Begun, Noted, Traced, evaluation
from evolve.telemetry.exporter import Courier
from evolve.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from evolve.telemetry.exporter import Courier, Destination


ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
EXTRA = "pip install 'evolve-agents[telemetry]'"
_log = logging.getLogger(__name__)


@contextmanager
def traced(config: Config, run: Traced, observers: Observers) -> Generator[None]:
    """Trace what is done inside. Raises `ConfigError` where telemetry is asked for and its packages are missing."""
    couriers = _couriers(config, run.run_id)
    if not couriers:
        yield
        return
    workflow = _open(config, run, couriers)
    observers.add(workflow)
    try:
        with watching(workflow.tracing):
            yield
    except BaseException as error:
        workflow.failed(error)
        raise
    else:
        workflow.done()
    finally:
        workflow.close()
        for courier in couriers:
            _say(courier)


def _couriers(config: Config, run_id: str) -> list[Courier]:
    """Return one for each destination that is asked for; a variable of the shell asks politely."""
    section, told = config.telemetry, any(os.environ.get(name) for name in ENDPOINTS)
    if not (section.enabled or section.otlp_endpoint or told):
        return []
    try:
        return _started(config, run_id, told=told)
    except ModuleNotFoundError as missing:
        asked = "enabled = true" if section.enabled else f"otlp_endpoint = {section.otlp_endpoint!r}"
        if section.enabled or section.otlp_endpoint:
            raise ConfigError(f"[telemetry] {asked} needs the package {missing.name!r}: {EXTRA}") from missing
        _log.warning("%s is set and nothing is sent there: %r is missing; %s", ENDPOINTS[0], missing.name, EXTRA)
        return []


def _started(config: Config, run_id: str, *, told: bool) -> list[Courier]:
    from evolve.telemetry.exporter import Courier

    found: list[Destination] = []
    if config.telemetry.enabled:
        from evolve.telemetry.local import LocalFile

        found.append(LocalFile(config.workspace / FILE, run_id))
    if config.telemetry.otlp_endpoint or told:
        from evolve.telemetry.local import Collector

        found.append(Collector(config.telemetry.otlp_endpoint))
    return [Courier(destination) for destination in found]


def _open(config: Config, run: Traced, couriers: Sequence[Courier]) -> Workflow:

    asked = os.environ.get(CAPTURE, "").strip().lower() in ("true", "1", "span_only", "span_and_event")
    return Workflow(run, couriers, content=config.telemetry.capture_content or asked)


def _say(courier: Courier) -> None:
    if courier.lost:
        _log.warning(
            "telemetry: %d of %d spans did not reach %s: %s; the run itself is not affected",
            courier.lost,
            courier.taken,
            courier.destination.name,
            courier.error or "there were more than could wait",
        )


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
                    names.OPERATION: "invoke_workflow",
                    names.WORKFLOW_NAME: run.environment,
                    names.PROVIDER: run.policy and provider(run.policy),
                    names.RUN: run.run_id,
                    names.MODE: run.mode,
                    names.REQUEST_MODEL: run.policy and run.policy.name,
                    names.POLICY_VERSION: run.policy and run.policy.version,
                },
                metric=names.WORKFLOW_DURATION,
            )
        )

    def notify(self, event: Progress) -> None:
        """Take note of an evaluation, and of how the run ended."""
        if isinstance(event, Evaluated):
            what = {names.ARM: event.arm, names.SNAPSHOT: event.snapshot_id}
            for name, score in (("tgc", event.tgc), ("sgc", event.sgc)):
                kind, attributes = evaluation(f"{name} {event.split}", score, event.arm)
                self._span.note(Noted(events=[(kind, {**attributes, **what})]))
        if isinstance(event, RunFinished):
            self._span.note(Noted({names.STATUS: event.status}))

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
