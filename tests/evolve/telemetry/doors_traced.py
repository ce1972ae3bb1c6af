"""Traced runs of the doors, and their spans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evolve.config.model import Config
from evolve.loop.session import Parts, RunResult, arun
from evolve.telemetry.reading import find
from policies.protocols import Policy
from tests.evolve.toy_doors import Doors, doors_config, doors_policy

Row = dict[str, Any]


def traced(folder: Path, *, run: dict[str, object] | None = None, **telemetry: object) -> Config:
    """Return a configuration whose runs are traced into the workspace."""
    folder.mkdir(exist_ok=True)
    return doors_config(folder, run=run or {"batch_size": 3}, telemetry={"enabled": True, **telemetry})


async def go(config: Config, n: int = 6, policy: Policy | None = None) -> RunResult:
    """Work through `n` doors."""
    return await arun(config, parts=Parts(policy=policy or doors_policy(), environment=Doors(n)))


def spans_of(config: Config, run_id: str) -> list[Row]:
    """Return the spans of a run."""
    return find(config.workspace, run_id)


def named(spans: list[Row], start: str) -> list[Row]:
    """Return the spans whose name begins so."""
    return [span for span in spans if span["name"].startswith(start)]
