"""Refuse an environment that breaks its contract before the first episode of a run, with what to change.

What only an episode can show is checked at each of its answers (`evolve.usercode`), what only playing can show by
`evolve env check` (`evolve.environments.check`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from evolve.errors import ConfigError, UserCodeError
from evolve.protocols import ActionFormat, Environment
from evolve.usercode import broke_contract, users
from memory.errors import BadInput
from memory.records import Task
from policies.protocols import ToolSpec

FORMATS: tuple[str, ...] = get_args(ActionFormat)
METHODS = ("describe", "tasks", "start")


def check_shape(environment: Environment) -> None:
    """Raise `ConfigError` for an environment without what every environment has. No task is listed, nothing starts."""
    what = f"environment {type(environment).__name__}"
    lacks = [name for name in ("name", "action_format", "tools", *METHODS) if not hasattr(environment, name)]
    lacks += [f"{name}()" for name in METHODS if name not in lacks and not callable(getattr(environment, name))]
    if lacks:
        raise ConfigError(f"{what} lacks {', '.join(lacks)}; see `evolve.protocols.Environment`")
    given = cast(Any, environment)  # not yet known to keep its types
    name, wanted = given.name, given.action_format
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what}: name is {name!r}; expected a text that names it")
    if wanted not in FORMATS:
        raise ConfigError(f"environment {name!r}: action_format is {wanted!r}; expected one of {', '.join(FORMATS)}")
    for limit in ("max_steps", "max_concurrency"):
        most = getattr(given, limit, 1)
        if not isinstance(most, int) or most < 1:
            raise ConfigError(f"environment {name!r}: {limit} is {most!r}; expected a whole number from 1 up")
    ends = getattr(given, "stop", ())
    if isinstance(ends, str) or not all(isinstance(each, str) and each for each in ends):
        raise ConfigError(f'environment {name!r}: stop is {ends!r}; expected texts such as ("\\n",)')
    with users(f"tools of environment {name!r}"):
        tools = tuple(given.tools)
    if not all(isinstance(tool, ToolSpec) for tool in tools):
        raise ConfigError(f"environment {name!r}: tools is {tools!r}; expected policies.protocols.ToolSpec(...) each")
    what = f"describe() of environment {name!r}"
    with users(what):
        said = given.describe("full")
    if not isinstance(said, str):
        raise broke_contract(what, environment.describe, said, "a text, empty where there is nothing to tell")


def listed(environment: Environment, split: str) -> tuple[Task, ...]:
    """Return the tasks of a split, each id once. Raises `UserCodeError`, also for an id used twice."""
    what = f"tasks({split!r}) of environment {environment.name!r}"
    with users(what):
        tasks = tuple(cast(Any, environment).tasks(split))
    found = tuple(task for task in tasks if isinstance(task, Task))
    if len(found) < len(tasks):
        wrong = next(task for task in tasks if not isinstance(task, Task))
        raise broke_contract(what, environment.tasks, wrong, "evolve.Task(id=..., instruction=...) each")
    seen = set[str]()
    for task in found:
        if task.id in seen:
            raise UserCodeError(f"{what}: id {task.id!r} is used twice; ids are unique")
        seen.add(task.id)
    return found


def check_splits(name: str, splits: Mapping[str, Sequence[Task]]) -> None:
    """Raise `BadInput` for an id or a scenario that stands in two splits: it would be tested on what was learned."""
    scenarios, ids = dict[str, str](), dict[str, str]()
    for split, tasks in splits.items():
        for task in tasks:
            for what, key, seen in (("id", task.id, ids), ("scenario", task.scenario or task.id, scenarios)):
                first = seen.setdefault(key, split)
                if first != split:
                    raise BadInput(
                        f"environment {name!r}: {what} {key!r} stands in the splits {first!r} and {split!r}, so what "
                        f"is learned on one would be tested on itself; give every {what} one split"
                    )
