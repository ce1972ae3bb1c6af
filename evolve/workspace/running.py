"""Under which settings runs, evaluations, comparisons and trainings of an open workspace go, sync or async."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evolve.compare.arms import Given
from evolve.compare.compare_session import folder_of, plan_of
from evolve.compare.plan import ComparisonOptions, Plan
from evolve.config.file import changed, find_modules_of
from evolve.config.model import Config
from evolve.config.training import recipe_settings
from evolve.errors import ConfigError
from evolve.loop.modes.frozen import evaluation
from evolve.loop.session import Parts
from evolve.workspace.config_check import check_names
from memory.errors import BadInput

Settings = Mapping[str, object]


def of_run(config: Config, settings: Settings, *, limit: int | None = None, seed: int | None = None) -> Config:
    """Return the configuration of a run. Raises `ConfigError` for a name that stands for nothing."""
    given = {"run.tasks": limit, "run.seed": seed}
    return _named(config, {**settings, **{key: value for key, value in given.items() if value is not None}})


def of_evaluation(
    config: Config,
    splits: Sequence[str],
    settings: Settings,
    *,
    memory: bool,
    attempts: int | None,
    limit: int | None,
) -> Config:
    """Return the configuration of an evaluation. Raises as `of_run`."""
    asked = evaluation(several(splits, "splits"), memory=memory, attempts=attempts, limit=limit)
    return _named(config, {**settings, **asked})


def of_training(config: Config, recipe: str, settings: Settings) -> Config:
    """Return the configuration of a training. Raises `ConfigError` for an unknown recipe."""
    find_modules_of(config)
    return changed(config, {**recipe_settings(recipe), **settings})


def of_comparison(
    config: Config,
    parts: Parts,
    arms: Sequence[str],
    options: ComparisonOptions | None,
    folder: Path | None,
    settings: Settings,
) -> tuple[Plan, Path, Config]:
    """Return the plan of a comparison, its folder, and the configuration that lists it among the runs."""
    if parts != Parts():
        raise ConfigError("a comparison makes its objects from names; open the workspace without parts")
    asked = _named(config, settings)
    plan = plan_of(
        several(arms, "arms"), Given(start=asked), options or ComparisonOptions(), "evolve.open(...).compare(...)"
    )
    return plan, folder or folder_of(asked, plan), asked


def several(names: Sequence[str], what: str) -> Sequence[str]:
    """Return names as they are. Raises `BadInput` for one text, which would be taken letter by letter."""
    if isinstance(names, str):
        raise BadInput(f"got {what} {names!r}; expected a list of names: [{names!r}]")
    return names


def _named(config: Config, settings: Settings) -> Config:
    """Return the configuration with settings over it, after looking up every name in it."""
    find_modules_of(config)
    asked = changed(config, settings)
    check_names(asked, train=False)
    return asked
