"""Starts a training by the name of its recipe, and says which packages it lacks before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from evolve.config.model import Config
from evolve.config.training import FROM_LOGS, GROUPS
from evolve.errors import ConfigError
from evolve.training.tracker_export import require_tracker
from policies.rl.ranks import rank

if TYPE_CHECKING:
    from evolve.training.training_session import Trained

TRAINERS = ("torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers")


def joined() -> None:
    """Return in the first process of a training; in another do what the first is told until it ends, then end."""
    if rank():
        from policies.rl.processes import follow

        follow()


def start(
    config: Config,
    recipe: str,
    report: Callable[[dict[str, float]], None] = lambda _: None,
    named: Callable[[str], None] = lambda _: None,
) -> Trained:
    """Train by a recipe, on the journal or by rollouts, and publish the adapter as a candidate.

    `named` is told the training's name when it begins. In another process than the first of several (`torchrun`) it
    does what the first is told, and ends the process.
    Raises as `train` and `train_from_logs` of `training_session`, `ConfigError` where a package of the trainer or of
    `train.tracker` is missing.
    """
    require_tracker(config.train.tracker)
    try:
        from evolve.training import training_session
    except ModuleNotFoundError as missing:
        if missing.name not in TRAINERS:
            raise
        raise ConfigError(
            f"a training needs the package {missing.name!r}: pip install 'evolve-agents[pocket,rl]'"
        ) from missing
    joined()
    if recipe in FROM_LOGS:
        groups = recipe == GROUPS
        return training_session.train_from_logs(config, recipe, groups=groups, report=report, named=named)
    return training_session.train(config, recipe, report, named=named)
