"""The figures of a training, handed to a tracker of experiments: the trainer knows none of them.

They are read from `metrics.jsonl`, so that a training can be exported while it goes on, and again: each time is a run
of its own there. Followed, a training hands over each line as soon as it is there; a tracker that fails stops no
training.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Literal, Protocol

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import FOLDER
from evolve.training import ledger, resumption
from evolve.training.ledger import LOCK
from evolve.training.status import told_by
from memory.locks import is_held

Tracker = Literal["trackio", "mlflow"]
"""A file of `evolve/training/trackers`."""
POLL_S = 1.0
"""How often a training is looked at that is followed."""


class TrackedRun(Protocol):
    """A run that a tracker began."""

    where: str
    """Where it is to be seen."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Add the figures of an iteration or an update."""
        ...

    def close(self) -> None:
        """End the run."""
        ...


def export(config: Config, name: str, to: Tracker, *, follow: bool = False) -> str:
    """Hand a training's figures and its `[train]` to a tracker; return where they are.

    `follow`: go on until no process does that training any more.
    Raises `NotFound` for a training that is not there or told none, `ConfigError` where the tracker is missing.
    """
    folder = config.workspace / FOLDER / ledger.FOLDER / name
    told = _followed(config, name, folder) if follow else iter(told_by(config, name))
    first = next(told)
    begun = resumption.begun(folder)
    settings = {"recipe": begun.recipe, "start": begun.start, **begun.config.get("train", {})} if begun else {}
    try:
        tracker = importlib.import_module(f"evolve.training.trackers.{to}")
        run: TrackedRun = tracker.Run(config.workspace, name, settings)
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{to} needs the package {missing.name!r}: pip install 'evolve-agents[track]'") from missing
    over = "iteration" if "iteration" in first else "update"
    try:
        for line in chain((first,), told):
            run.log(int(line[over]), {key: value for key, value in line.items() if key != over})
    finally:
        run.close()
    return run.where


def _followed(config: Config, name: str, folder: Path) -> Iterator[dict[str, float]]:
    """Yield the lines of a training as they come. One that is done again after a kill is not yielded again."""
    sent = 0
    while True:
        under_way = is_held(folder / LOCK)
        lines = ledger.lines(folder / ledger.METRICS) if under_way or sent else told_by(config, name)
        yield from lines[sent:]
        sent = max(sent, len(lines))
        if not under_way:
            return
        time.sleep(POLL_S)
