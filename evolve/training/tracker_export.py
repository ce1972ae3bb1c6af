"""The figures of a training, handed to a tracker of experiments afterwards: the trainer knows none of them.

They are read from `metrics.jsonl`, so that a training can be exported while it goes on, and again: each time is a run
of its own there.
"""

from __future__ import annotations

import importlib
from typing import Literal

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import FOLDER
from evolve.training import ledger, resumption
from evolve.training.status import told_by

Tracker = Literal["trackio", "mlflow"]
"""A file of `evolve/training/trackers`."""


def export(config: Config, name: str, to: Tracker) -> str:
    """Hand a training's figures and its `[train]` to a tracker; return where they are.

    Raises `NotFound` for a training that is not there or told none, `ConfigError` where the tracker is missing.
    """
    told = told_by(config, name)
    over = "iteration" if "iteration" in told[0] else "update"
    steps = [(int(line[over]), {key: value for key, value in line.items() if key != over}) for line in told]
    begun = resumption.begun(config.workspace / FOLDER / ledger.FOLDER / name)
    settings = {"recipe": begun.recipe, "start": begun.start, **begun.config.get("train", {})} if begun else {}
    try:
        return importlib.import_module(f"evolve.training.trackers.{to}").send(config.workspace, name, steps, settings)
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{to} needs the package {missing.name!r}: pip install 'evolve-agents[track]'") from missing
