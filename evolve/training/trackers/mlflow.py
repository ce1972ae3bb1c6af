"""MLflow: the store that `MLFLOW_TRACKING_URI` names, else `mlflow.db` in the workspace, a SQLite file.

Its old store of plain files is refused by MLflow 3. What it would tell its makers about its use is turned off, unless
`MLFLOW_DISABLE_TELEMETRY` says otherwise.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["send"]

EXPERIMENT = "evolve"


def send(
    workspace: Path, name: str, told: Sequence[tuple[int, Mapping[str, float]]], settings: Mapping[str, Any]
) -> str:
    """Write a run `name` of the experiment `evolve`, and return where it is.

    `told`: (step, figures); `settings`: its parameters. Raises `ModuleNotFoundError` where a package is missing.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    place = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{workspace / 'mlflow.db'}"
    if place.startswith("sqlite"):
        import_module("sqlalchemy")
        import_module("alembic")
    tracking: Any = import_module("mlflow.tracking")
    entities: Any = import_module("mlflow.entities")
    client = tracking.MlflowClient(tracking_uri=place)
    known = client.get_experiment_by_name(EXPERIMENT)
    run = client.create_run(known.experiment_id if known else client.create_experiment(EXPERIMENT), run_name=name)
    client.log_batch(run.info.run_id, params=[entities.Param(key, str(value)) for key, value in settings.items()])
    now = int(time.time() * 1000)
    for step, figures in told:
        points = [entities.Metric(key, value, now, step) for key, value in figures.items() if math.isfinite(value)]
        client.log_batch(run.info.run_id, metrics=points)
    client.set_terminated(run.info.run_id)
    return place
