"""MLflow: the store that `MLFLOW_TRACKING_URI` names, else `mlflow.db` in the workspace, a SQLite file.

Its old store of plain files is refused by MLflow 3. What it would tell its makers about its use is turned off, unless
`MLFLOW_DISABLE_TELEMETRY` says otherwise.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

EXPERIMENT, ADDRESS = "evolve", "MLFLOW_TRACKING_URI"


class Run:
    """A run `name` of the experiment `evolve`; `settings` are its parameters."""

    def __init__(self, workspace: Path, name: str, settings: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        self.where = os.environ.get(ADDRESS) or f"sqlite:///{workspace / 'mlflow.db'}"
        tracking: Any = import_module("mlflow.tracking")
        self._entities: Any = import_module("mlflow.entities")
        self._client = tracking.MlflowClient(tracking_uri=self.where)
        known = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = known.experiment_id if known else self._client.create_experiment(EXPERIMENT)
        self._id: str = self._client.create_run(experiment, run_name=name).info.run_id
        parameters = [self._entities.Param(key, str(value)) for key, value in settings.items()]
        self._client.log_batch(self._id, params=parameters)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Add the figures of a step; those that are no numbers are left out."""
        now = int(time.time() * 1000)
        points = [
            self._entities.Metric(key, value, now, step) for key, value in figures.items() if math.isfinite(value)
        ]
        self._client.log_batch(self._id, metrics=points)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._id)

    @staticmethod
    def packages() -> tuple[str, ...]:
        """Return what has to be installed: for a database of one's own more than for a server."""
        local = os.environ.get(ADDRESS, "").startswith("sqlite") or not os.environ.get(ADDRESS)
        return ("mlflow", "sqlalchemy", "alembic") if local else ("mlflow",)


MEMBER = Run
