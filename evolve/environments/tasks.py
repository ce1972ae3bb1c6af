"""The tasks of a split, wherever they come from."""

from __future__ import annotations

from evolve.config.model import Config
from evolve.environments import jsonl
from evolve.environments.validation import listed
from evolve.errors import ConfigError
from evolve.protocols import Environment
from memory.records import Task


def load_tasks(config: Config, environment: Environment, split: str) -> tuple[Task, ...]:
    """Return the tasks of a split: from the tasks file where one is configured, else the environment's own.

    Raises `BadInput` for a malformed line or a duplicate id, `UserCodeError` for a bug of the environment, and
    `ConfigError` for a split without tasks.
    """
    if not config.environment.tasks_file:
        tasks, known = listed(environment, split), ""
    else:
        found = jsonl.load_tasks(config.root / config.environment.tasks_file, environment.name)
        tasks = tuple(task for task in found if task.split == split)
        known = f" (the tasks file has {', '.join(sorted({task.split for task in found}))})"
    if not tasks:
        raise ConfigError(f"split {split!r} of {environment.name!r} has no tasks; name another in [run]{known}")
    return tasks
