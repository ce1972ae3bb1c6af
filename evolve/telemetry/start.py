"""Turns telemetry on for one run, as `[telemetry]` and the OTEL_ variables say. Off, nothing of it is even imported.

Whatever fails while a run is traced costs spans and never the run; what was lost is counted and said once, at the end.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evolve.config.model import Config
from evolve.episode.instrumentation import watching
from evolve.errors import ConfigError
from evolve.progress import Observers
from evolve.telemetry.described import Traced
from memory.sqlite.telemetry_file import FILE

if TYPE_CHECKING:
    from evolve.telemetry.exporter import Courier, Destination
    from evolve.telemetry.tracing import Workflow

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
    from evolve.telemetry.tracing import Workflow

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
