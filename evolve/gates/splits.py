"""Tasks that admit knowledge. Each split has one role: write, select or report, and none shares a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.errors import ConfigError
from evolve.gates.held_out_rules import options_of
from evolve.protocols import Environment
from evolve.seeds import seed_for
from memory.errors import BadInput
from memory.records import Task


def select_tasks(config: Config, environment: Environment, stream: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks that admit knowledge, in an order of which any prefix is spread over families and scenarios.

    Raises `BadInput` when a scenario has two roles: `stream` writes, `run.dev_split` selects, and
    `run.eval_splits` report.
    """
    split = config.run.dev_split
    tasks = load_tasks(config, environment, split)
    report = splits_there(config, environment, config.run.eval_splits)
    roles = {f"run.dev_split {split!r}": tasks, "the stream": tuple(stream)}
    roles |= {f"run.eval_splits {name!r}": found for name, found in report.items()}
    _refuse_shared(roles)
    return stratified(tasks, config.run.seed)[: options_of(config).tasks]


def stratified(tasks: Sequence[Task], seed: int) -> tuple[Task, ...]:
    """Return the tasks in an order of which the first n hold each stratum in proportion, to within one task.

    A stratum is the family that the tasks name, else their scenario. Which stratum comes first is drawn from the seed.
    """
    strata: dict[str, list[Task]] = {}
    for task in tasks:
        strata.setdefault(str(task.metadata.get("family") or task.scenario or task.id), []).append(task)
    places = [
        ((at + 0.5) / len(members), seed_for(seed, "stratum", name), name, at)
        for name, members in strata.items()
        for at in range(len(members))
    ]
    return tuple(strata[name][at] for _, _, name, at in sorted(places))


def slices(config: Config, tasks: Sequence[Task]) -> Mapping[str, tuple[str, ...]]:
    """Return the protected slices: tasks that agree in the metadata key `gate.held_out.slices`.

    Raises `ConfigError` for a key that is in no task's metadata.
    """
    key = options_of(config).slices
    if key is None:
        return {}
    found: dict[str, list[str]] = {}
    for task in tasks:
        if key in task.metadata:
            found.setdefault(f"{key}={task.metadata[key]}", []).append(task.id)
    if not found:
        known = sorted({name for task in tasks for name in task.metadata})
        raise ConfigError(
            f"gate.held_out.slices {key!r} is in no task's metadata; there are {', '.join(known) or 'no keys'}"
        )
    return {name: tuple(ids) for name, ids in found.items()}


def splits_there(config: Config, environment: Environment, splits: Iterable[str]) -> dict[str, tuple[Task, ...]]:
    """Return those of some splits that there are, with their tasks. One that is lacking is refused where it is run.

    Raises `BadInput` for a tasks file that is wrong, and `UserCodeError` for a bug of the environment.
    """
    lacks = (ConfigError,) if config.environment.tasks_file else (BadInput, ConfigError)  # as environments say it
    found: dict[str, tuple[Task, ...]] = {}
    for split in splits:
        with suppress(*lacks):
            found[split] = load_tasks(config, environment, split)
    return found


def _refuse_shared(roles: Mapping[str, Sequence[Task]]) -> None:
    owner: dict[str, str] = {}
    for role, tasks in roles.items():
        scenarios = {task.scenario or task.id for task in tasks}
        shared = sorted(scenarios & set(owner))
        if shared:
            more = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
            raise BadInput(
                f"{owner[shared[0]]} shares scenario {', '.join(map(repr, shared[:3]))}{more} with {role}; expected "
                "tasks of one role each, to write, to select or to report: name another split"
            )
        owner |= dict.fromkeys(scenarios, role)
