"""Plan of a comparison, fixed before its first episode: arms, lives, tasks. Stored beside the results.

A life is one arm in one replicate (a deployment and a seed). All lives of a replicate get the same tasks in the same
order with the same seeds; arms whose environment or stream differs are refused.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from evolve.compare.arms import Arm, ArmRole
from evolve.config.file import stored_config
from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.errors import ConfigError, RunMismatch
from evolve.loop.assembly import make_environment
from evolve.seeds import seed_for
from memory.errors import NotFound
from memory.indexes import for_a_copy
from memory.records import Frozen

_log = logging.getLogger(__name__)
FILE = "plan.json"
LIFE = "comparison-"
"""Begins the tag of a life's runs."""
STREAM = ("run.split", "run.skip", "run.tasks", "run.shuffle", "run.seed")
"""Keys that arms which learn must share beside the environment's own; else they would not do the same tasks."""


class Replicate(Frozen):
    """One world in which every arm lives once."""

    name: str
    world: str
    """Deployment, or the environment's name; what is repeated with other seeds only is one world."""
    seed: int
    environment: dict[str, Any]
    """Keys of the section that this replicate sets."""
    report: tuple[str, ...]
    """Ids of the tasks on which the arms are judged."""


class ComparisonOptions(Frozen):
    """How arms are compared: on which tasks, in which worlds, with which controls."""

    split: str = "test_normal"
    """Split on which the arms are judged; nothing is learned from it and no gate sees it."""
    report_tasks: int | None = Field(default=None, ge=1)
    """Most tasks of it; None = all."""
    deployments: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    """Empty = the configuration's."""
    controls: bool = True
    """Add A/A and the arm without memory."""


class Plan(Frozen):
    """A comparison."""

    format: int = 1
    split: str
    arms: tuple[Arm, ...]
    """The compared ones in the order given, then the controls."""
    replicates: tuple[Replicate, ...]
    command: str = ""
    """How it was started."""
    toys: tuple[str, ...] = ()
    """Policies in it that show how the parts work, and nothing about models in general."""
    look: int = 1
    """Which look at this split it is, of the comparisons kept side by side."""

    @property
    def digest(self) -> str:
        """Return a short hash of what decides the results; speed, budget and place do not."""
        arms = [(arm.name, arm.role, arm.snapshot, _deciding(arm.config)) for arm in self.arms]
        replicates = [replicate.model_dump_json() for replicate in self.replicates]
        return hashlib.sha256(repr((self.format, self.split, arms, replicates)).encode()).hexdigest()[:12]

    @property
    def tag(self) -> str:
        """Return the tag of the runs of all lives; its beginning tells them from runs that a copied workspace holds."""
        return f"{LIFE}{self.digest}"

    @property
    def compared(self) -> tuple[Arm, ...]:
        """Return the arms that were asked for; the others are compared with the first."""
        return tuple(arm for arm in self.arms if arm.role is ArmRole.COMPARED)

    def config(self, folder: Path, arm: Arm, replicate: Replicate, *, frozen: bool) -> Config:
        """Return the configuration of a life while it learns, or while it is judged."""
        run: dict[str, Any] = {**arm.config["run"], "seed": _seed(arm, replicate)}
        run |= {"name": f"{arm.name} in {replicate.name}", "tags": [self.tag]}
        if frozen:
            run |= {"mode": "frozen", "eval_splits": [self.split], "tasks": len(replicate.report), "attempts": 1}
            run |= {"snapshot": arm.snapshot}
        else:  # so that no gate admits anything of the tasks that judge
            run |= {"eval_splits": list(dict.fromkeys((*run["eval_splits"], self.split)))}
        memory = arm.config["memory"]
        values = {
            **{section: value for section, value in arm.config.items() if section != "preset"},
            "run": run,
            "environment": {**arm.config["environment"], **replicate.environment},
            "memory": {**memory, "workspace": ".evolve", "database": "", "index": for_a_copy(memory["index"])},
            "controls": {"no_memory": 0, "aa": False},
        }
        return stored_config(values, folder / replicate.name / str(self.arms.index(arm)))


def make_plan(arms: Sequence[Arm], options: ComparisonOptions, command: str = "evolve compare") -> Plan:
    """Return the plan. Raises `ConfigError` for arms that cannot be compared, and for splits without tasks."""
    if len({arm.name for arm in arms}) < len(arms):
        raise ConfigError("an arm was named twice; A/A is part of every comparison, see `evolve compare --help`")
    for arm in arms:
        _comparable(arms[0], arm, options.split)
    first = arms[0].config
    worlds = [{"deployment": number} for number in options.deployments] or [{}]
    replicates = [
        _replicate(first, world, seed, options) for world in worlds for seed in options.seeds or (first["run"]["seed"],)
    ]
    if len({replicate.name for replicate in replicates}) < len(replicates):
        raise ConfigError(f"a deployment or seed was named twice in {options.deployments!r}, {options.seeds!r}")
    everyone = (*arms, *(_controls(arms) if options.controls else ()))
    return Plan(split=options.split, arms=everyone, replicates=tuple(replicates), command=command)


def store_plan(plan: Plan, folder: Path) -> Plan:
    """Keep the plan in `folder` and return it; one that is kept there already stays if it is the same comparison.

    Raises `ConfigError` when the folder holds another comparison.
    """
    if (folder / FILE).exists():
        kept = read_plan(folder)
        if kept.digest != plan.digest:
            raise ConfigError(
                f"{str(folder)!r} holds another comparison ({kept.command or kept.digest}); choose another --out"
            )
        return plan.model_copy(update={"command": kept.command, "look": kept.look})
    looks = sum(other.split == plan.split for other in _beside(folder))
    looked = plan.model_copy(update={"look": 1 + looks})
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{FILE}.part"
    draft.write_text(looked.model_dump_json(indent=1), encoding="utf-8")
    draft.replace(folder / FILE)
    return looked


def _beside(folder: Path) -> Iterator[Plan]:
    """Yield the plans of the folders beside one. What is no plan of this version is left out, with a warning."""
    for path in sorted(folder.parent.glob(f"*/{FILE}")):
        try:
            yield read_plan(path.parent)
        except (NotFound, RunMismatch, OSError):
            _log.warning("%s is no plan of this version: if it was a look at the same split, it is not counted", path)


def read_plan(folder: Path) -> Plan:
    """Return the plan kept in a folder. Raises `NotFound` where there is none, `RunMismatch` for an unreadable one."""
    try:
        text = (folder / FILE).read_bytes()
    except FileNotFoundError as missing:
        raise NotFound(
            f"no comparison in {str(folder)!r}; its folder is what `evolve compare` prints last"
        ) from missing
    try:
        return Plan.model_validate_json(text)
    except ValueError as malformed:
        raise RunMismatch(f"{folder / FILE} is no plan of this version ({malformed}); compare again") from malformed


def _comparable(first: Arm, arm: Arm, split: str) -> None:
    mine, theirs = first.values(), arm.values()
    same = {key for key in (*mine, *theirs) if key.startswith("environment.") and key != "environment.max_steps"}
    same |= set(STREAM) if first.learns and arm.learns else set()
    for key in sorted(same):
        if mine.get(key) != theirs.get(key):
            raise ConfigError(
                f"{first.name!r} has {key} = {mine.get(key)!r} and {arm.name!r} {theirs.get(key)!r}; "
                "compared are arms that do the same tasks in the same world: make them equal (--set, --env, --tasks)"
            )
    used = {key: theirs[key] for key in ("run.split", "run.dev_split")}
    for key, name in used.items():
        if name == split:
            raise ConfigError(f"{arm.name!r} has {key} = {name!r}, on which it would be judged; name another --split")


def _replicate(config: dict[str, Any], world: dict[str, Any], seed: int, options: ComparisonOptions) -> Replicate:
    section = {**config["environment"], **world}
    settings = Config.model_validate({"environment": section, "run": config["run"]})
    environment = make_environment(settings)
    load_tasks(settings, environment, settings.run.split)
    tasks = load_tasks(settings, environment, options.split)[: options.report_tasks]
    place = f"{environment.name}-{section['deployment']}" if "deployment" in section else environment.name
    return Replicate(
        name=f"{place}-seed-{seed}".replace("/", "_"),
        world=place,
        seed=seed,
        environment=world,
        report=tuple(task.id for task in tasks),
    )


def _controls(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """Return A/A, and the first arm without memory; it works through the stream if any arm does."""
    first = arms[0]
    again = first.model_copy(update={"name": f"{first.name} (again)", "role": ArmRole.AA})
    bare = {**first.config, "playbook": {**first.config["playbook"], "enabled": False}}
    bare["run"] = {**bare["run"], "mode": "online"}
    return again, Arm(name="without memory", role=ArmRole.CONTROL, config=bare, learns=any(arm.learns for arm in arms))


def _seed(arm: Arm, replicate: Replicate) -> int:
    return seed_for(replicate.seed, "again") if arm.role is ArmRole.AA else replicate.seed


def _deciding(config: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the sections of a configuration as its digest sees them."""
    return [("digest", stored_config({k: v for k, v in config.items() if k != "preset"}, Path()).digest)]
