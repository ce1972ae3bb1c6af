"""The tasks of a split: those of the environment, or of a JSON Lines file, one object a line, read strictly.

Keys: `instruction` (required), `id` (default `task-<line>`), `scenario` (default: the id), `split` (default `train`),
`metadata` (public facts) and `answer` (for the grader alone: it never enters the `Task`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from evolve.config.model import Config
from evolve.environments.validation import listed
from evolve.errors import ConfigError
from evolve.protocols import Environment
from memory.base import first_error
from memory.errors import BadInput
from memory.records import Frozen, Task


def load_tasks(config: Config, environment: Environment, split: str) -> tuple[Task, ...]:
    """Return the tasks of a split: from the tasks file where one is configured, else the environment's own.

    Raises `BadInput` for a malformed line or a duplicate id, `UserCodeError` for a bug of the environment, and
    `ConfigError` for a split without tasks.
    """
    if not config.environment.tasks_file:
        tasks, known = listed(environment, split), ""
    else:
        found = read_tasks(config.root / config.environment.tasks_file, environment.name)
        tasks = tuple(task for task in found if task.split == split)
        known = f" (the tasks file has {', '.join(sorted({task.split for task in found}))})"
    if not tasks:
        raise ConfigError(f"split {split!r} of {environment.name!r} has no tasks; name another in [run]{known}")
    return tasks


class TaskLine(Frozen):
    """One line of the file."""

    instruction: str = Field(min_length=1)
    id: str = Field(default="", max_length=200)
    scenario: str = ""
    split: str = "train"
    metadata: dict[str, Any] = Field(default_factory=dict)
    answer: Any = None


def read_tasks(path: Path | str, environment: str = "") -> tuple[Task, ...]:
    """Return the tasks of a file, in order, without their answers.

    Raises `BadInput` for a file that cannot be read, a line that is no task, an id used twice, or a scenario that
    stands in two splits (what is learned on one would be tested on itself).
    """
    tasks = list[Task]()
    lines = dict[str, int]()
    splits = dict[str, tuple[str, int]]()
    for number, line in _lines(Path(path)):
        task_id = line.id or f"task-{number}"
        scenario = line.scenario or task_id
        if task_id in lines:
            raise BadInput(f"{path}:{number}: id {task_id!r} was already used on line {lines[task_id]}; ids are unique")
        split, first = splits.setdefault(scenario, (line.split, number))
        if split != line.split:
            raise BadInput(
                f"{path}:{number}: scenario {scenario!r} is in split {line.split!r} here and in {split!r} on line "
                f"{first}; keep one scenario in one split"
            )
        lines[task_id] = number
        task = line.model_dump(exclude={"answer"}) | {"id": task_id, "scenario": scenario, "environment": environment}
        tasks.append(Task.model_validate(task))
    if not tasks:
        raise BadInput(f'{path}: holds no task; expected lines like {{"id": "t1", "instruction": "..."}}')
    return tuple(tasks)


def load_answers(path: Path | str) -> dict[str, Any]:
    """Return task id -> `answer`, for a grade function; tasks without one are left out. Raises `BadInput`."""
    found = ((line.id or f"task-{number}", line.answer) for number, line in _lines(Path(path)))
    return {task_id: answer for task_id, answer in found if answer is not None}


def _lines(path: Path) -> Iterator[tuple[int, TaskLine]]:
    """Yield (line number from 1, parsed line), skipping blank lines."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the task file {str(path)!r}: {error}") from error
    for number, raw in enumerate(text.split("\n"), start=1):
        if not raw.strip():
            continue
        try:
            yield number, TaskLine.model_validate(_object(raw))
        except ValidationError as error:
            known = ", ".join(TaskLine.model_fields)
            raise BadInput(f"{path}:{number}: {first_error(error, 'line')}; a line has the keys {known}") from error
        except ValueError as error:
            raise BadInput(f"{path}:{number}: {error}") from error


def _object(raw: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno}); expected one JSON object a line") from error
    if not isinstance(value, dict):
        raise ValueError(f"got {type(value).__name__}, expected one JSON object a line")
    return value
