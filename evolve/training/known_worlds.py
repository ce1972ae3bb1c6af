"""The worlds that a workspace worked in: each by its settings, as runs and trainings recorded them.

A world is an environment and the namespace whose knowledge is shown there. Two settings of one namespace with the same
held-out tasks are the same world: a longer train split, or another limit of steps, makes no other one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evolve.config.file import stored_config
from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.errors import ConfigError
from evolve.loop.assembly import make_environment, open_store
from evolve.loop.runs import LEARN, RunRecord
from evolve.training import ledger, resumption
from evolve.usercode import users
from memory.errors import EvolveError, NotFound

LIMITS = ("max_steps", "observation_chars", "history_chars")
"""Keys of `[environment]` that say how its episodes are done, not which world it is."""


@dataclass(frozen=True)
class KnownWorld:
    """One of them."""

    name: str
    config: Config
    """As it was worked in last, under today's policy; the configured world as it is configured."""
    runs: frozenset[str]
    """Ids of the runs that worked in it."""
    missing: str = ""
    """Why its held-out tasks cannot be had any more; empty where they can."""


@dataclass(frozen=True)
class _Stored:
    """Settings of a world as they were stored."""

    settings: Mapping[str, Any]
    environment: str = ""
    """What a run's environment called itself; empty where no run is meant."""
    run_id: str = ""


def known_worlds(config: Config) -> tuple[KnownWorld, ...]:
    """Return the configured world, then the others from the latest to the oldest."""
    own = _Stored(config.model_dump(mode="json", exclude={"root"}))
    alike: dict[str, list[_Stored]] = {}
    for each in (own, *_journalled(config), *_trained_in(config)):
        alike.setdefault(json.dumps(_place(each.settings), sort_keys=True), []).append(each)
    found: dict[str, KnownWorld] = {}
    for same in alike.values():
        tasks, world = _opened(config, same[0], frozenset(each.run_id for each in same if each.run_id))
        known = found.get(tasks)
        if known is None and any(world.name == each.name for each in found.values()):
            world = replace(world, name=f"{world.name}, {_place(same[0].settings)['held out']}")
        found[tasks] = replace(known, runs=known.runs | world.runs) if known else world
    return tuple(found.values())


def runs_elsewhere(config: Config) -> frozenset[str]:
    """Return the ids of the runs that worked in another world than the configured one."""
    _, *others = known_worlds(config)
    return frozenset(run_id for world in others for run_id in world.runs)


def _journalled(config: Config) -> Iterator[_Stored]:
    """Yield the settings of runs that worked on tasks, the latest first."""
    try:
        with open_store(config, len, read_only=True) as store:
            records = [RunRecord.model_validate(data) for data in store.runs()]
    except NotFound:  # nothing was done in this workspace yet
        return
    for record in reversed(records):
        if record.kind == LEARN and record.config:
            yield _Stored(record.config, record.environment, record.run_id)


def _trained_in(config: Config) -> Iterator[_Stored]:
    """Yield the settings of trainings by rollouts, which need no run before them, the latest first."""
    for folder in reversed(ledger.folders(config.workspace)):
        begun = resumption.begun(folder)
        if begun is not None and not begun.journal and begun.config:
            yield _Stored(begun.config)


def _place(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells a world from others in settings as they were stored, defaults left out."""
    environment = own.get("environment", {})
    kept = {key: value for key, value in environment.items() if key not in LIMITS and value is not None}
    return {
        "namespace": own.get("memory", {}).get("namespace", "default"),
        "held out": own.get("run", {}).get("dev_split", ""),
        **kept,
    }


def _name(own: Mapping[str, Any]) -> str:
    """Return what people call a world: `office(deployment=501) in default`."""
    place = _place(own)
    namespace, _, name = place.pop("namespace"), place.pop("held out"), place.pop("name", "?")
    options = ", ".join(f"{key}={value}" for key, value in sorted(place.items()))
    return f"{name}({options}) in {namespace}" if options else f"{name} in {namespace}"


def _opened(config: Config, stored: _Stored, runs: frozenset[str]) -> tuple[str, KnownWorld]:
    """Return what tells the world from others, and the world itself: its held-out tasks, or its name without them."""
    name = _name(stored.settings)
    try:
        kept = _today(config, stored_config(stored.settings, config.root))
        with users(f"environment {kept.environment.name!r}"):
            environment = make_environment(kept)
            tasks = load_tasks(kept, environment, kept.run.dev_split)
        if stored.environment not in ("", environment.name):
            raise ConfigError(
                f"its runs were given {stored.environment!r} as an object, and its settings make {environment.name!r}"
            )
    except (EvolveError, OSError) as gone:
        return name, KnownWorld(name, config, runs, str(gone))
    told = [kept.memory.namespace, *(task.model_dump_json() for task in tasks)]
    return json.dumps(told), KnownWorld(name, kept, runs)


def _today(config: Config, kept: Config) -> Config:
    """Return stored settings under today's policy, training and gate, in the place where the workspace is now."""
    memory = config.memory.model_copy(update={"namespace": kept.memory.namespace})
    run = kept.run.model_copy(update={"concurrency": config.run.concurrency, "seed": config.run.seed})
    return config.model_copy(
        update={
            "run": run,
            "environment": kept.environment,
            "memory": memory,
            "playbook": kept.playbook,
            "skills": kept.skills,
            "exemplars": kept.exemplars,
        }
    )
